"""Estimate the memory of a pipeline before it is loaded, from the configurations in its folder alone.

The networks are built on torch's device ``meta``, where tensors have sizes and no numbers, and go through one
pass. So parameters are counted exactly, and activations as the code makes them. Attention is counted as fused
kernels do it, without the matrix of all pairs. What libraries allocate besides tensors is not counted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.diffusion.conditions import predict
from sorites.diffusion.latents import PIXELS_PER_DECODING
from sorites.diffusion.memory import peak_bytes
from sorites.diffusion.pipeline import (
    BY_WORDS,
    DTYPES,
    TOY,
    TRANSFORMERS,
    Pipe,
    check_index,
    silence_libraries,
    toy_folder,
)
from sorites.diffusion.sampler import BATCH
from sorites.diffusion.saving import OFFLOADS, has_tiles
from sorites.io.paths import reason
from sorites.io.readers import json_file

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Tokens of a prompt: of CLIP, with T5's of Stable Diffusion 3 beside them, and of FLUX.
TOKENS = {"sd": 77, "sdxl": 77, "sd3": 77 + 256, "flux": 512}
META = "meta"


@dataclass(frozen=True)
class Estimate:
    """The memory of drawing with a pipeline, in bytes.

    Attributes:
        weights: The weights of each component.
        layers: The weights of the largest layer of each component.
        tensors: The tensors of a pass through each component, besides weights.
        side: The width of images in pixels.
        has_tiles: Whether the autoencoder can decode in tiles.
    """

    weights: Mapping[str, int]
    layers: Mapping[str, int]
    tensors: Mapping[str, int]
    side: int
    has_tiles: bool = True

    def peak(self, offload: str = "none") -> int:
        """Return the peak with one of ``OFFLOADS``."""
        if offload not in OFFLOADS:
            raise SoritesError(f"offload: expected one of {', '.join(OFFLOADS)}, got {offload!r}")
        if offload == "none":
            return sum(self.weights.values()) + max(self.tensors.values())
        there = self.weights if offload == "model" else self.layers
        return max(size + self.tensors[name] for name, size in there.items())


def estimate(
    path: str | Path,
    side: int | None = None,
    batch: int = 1,
    dtype: str = "bfloat16",
    guided: bool = True,
    tiling: bool = False,
) -> Estimate:
    """Estimate the memory of drawing images, without loading weights.

    Args:
        path: A pipeline folder, of which only the configurations are read, or ``toy``.
        side: The width of images in pixels; by default that of training.
        batch: Images per pass.
        dtype: The number format of the weights.
        guided: Whether the guidance doubles a pass.
        tiling: Whether the autoencoder decodes in tiles, if it can.
    """
    folder = toy_folder() if str(path) == TOY else Path(path)
    if dtype not in DTYPES:
        raise SoritesError(f"dtype: expected one of {', '.join(DTYPES)}, got {dtype!r}")
    import_with_torchvision("diffusers", "a diffusion pipeline", "generate")
    kind, _ = check_index(folder, BY_WORDS)
    components = dict(_components(folder, dtype))
    pipe = _meta_pipe(folder, kind, components, dtype)
    width = side or pipe.side
    vae = pipe.parts.vae
    if tiling and has_tiles(vae):
        vae.enable_tiling()
    guided = guided and not pipe.has_embedded_guidance
    network = "transformer" if kind in TRANSFORMERS else "unet"
    passes = {name: _encoding(part) for name, part in components.items() if name.startswith("text_encoder")}
    passes |= {network: _denoising(pipe, width, batch, guided), "vae": _decoding(pipe, width, batch)}
    with _fused_attention():
        tensors = {name: peak_bytes(passes[name]) for name in components}
    return Estimate(
        {name: _bytes(part.parameters()) for name, part in components.items()},
        {
            name: max(_bytes(m.parameters(recurse=False)) for m in part.modules())
            for name, part in components.items()
        },
        tensors,
        width,
        has_tiles(vae),
    )


def memory_table(
    path: str | Path,
    sides: Sequence[int] = (),
    batches: Sequence[int] = (1, BATCH),
    dtype: str = "bfloat16",
    guided: bool = True,
) -> pl.DataFrame:
    """Return the estimated memory in GB for image widths, batches and what waits on the CPU.

    Args:
        path: A pipeline folder, of which only the configurations are read, or ``toy``.
        sides: Widths of images in pixels; by default that of training.
        batches: Images per pass.
        dtype: The number format of the weights.
        guided: Whether the guidance doubles a pass.

    Returns:
        A row per width, batch and tiling, where the autoencoder has it: weights, most tensors of a pass, and
        the peak for each of ``OFFLOADS``.
    """
    rows = []
    for side, batch, tiling in itertools.product(sides or (None,), batches, (False, True)):
        found = estimate(path, side, batch, dtype, guided, tiling)
        if tiling and not found.has_tiles:
            continue
        parts = {
            "weights_gb": sum(found.weights.values()),
            "tensors_gb": max(found.tensors.values()),
            **{f"{name}_gb": found.peak(name) for name in OFFLOADS},
        }
        rows.append(
            {"side": found.side, "batch": batch, "tiling": tiling}
            | {name: size / 1e9 for name, size in parts.items()}
        )
    return pl.DataFrame(rows)


def _bytes(parameters: Any) -> int:
    return sum(weight.numel() * weight.element_size() for weight in parameters)


def _components(folder: Path, dtype: str) -> Iterator[tuple[str, Any]]:
    """Yield the networks of a folder on the device ``meta``, in a number format."""
    import diffusers
    import torch
    import transformers

    index = json_file(folder / "model_index.json", "the components of a pipeline")
    for name, value in index.items():
        if (
            not isinstance(value, list)
            or value == [None, None]
            or name in ("safety_checker", "image_encoder")
        ):
            continue
        library, class_name = value
        owner = {"diffusers": diffusers, "transformers": transformers}.get(library)
        made = getattr(owner, class_name, None)
        config = folder / name / "config.json"
        if made is None or not config.is_file():
            continue
        try:
            with silence_libraries(), torch.device(META):
                if library == "diffusers":
                    part = made.from_config(json_file(config, "the configuration of a network"))
                else:
                    part = made(made.config_class.from_pretrained(folder / name, local_files_only=True))
        except Exception as error:  # a damaged configuration can make the libraries raise anything
            raise SoritesError(f"cannot build the network of {config}: {reason(error)}") from error
        upcast = name == "vae" and getattr(part.config, "force_upcast", False)
        number = torch.float32 if upcast else getattr(torch, dtype)
        with silence_libraries():
            part = part.to(META, number).requires_grad_(False).eval()
        yield name, part


def _meta_pipe(folder: Path, kind: str, components: Mapping[str, Any], dtype: str) -> Pipe:
    blocks = components["vae"].config.block_out_channels
    parts = SimpleNamespace(**components, vae_scale_factor=2 ** (len(blocks) - 1), default_sample_size=128)
    return Pipe(folder, kind, parts, "", META, dtype)


def _encoding(encoder: Any) -> Callable[[], Any]:
    """Return a pass of one prompt through a text encoder."""
    import torch

    is_clip = hasattr(encoder.config, "max_position_embeddings")
    length = min(TOKENS["sd"], int(encoder.config.max_position_embeddings)) if is_clip else TOKENS["flux"]
    tokens = torch.empty((1, length), dtype=torch.long, device=META)

    def encode() -> Any:
        with torch.no_grad():
            return encoder(tokens, output_hidden_states=is_clip)

    return encode


def _denoising(pipe: Pipe, side: int, batch: int, guided: bool) -> Callable[[], Any]:
    """Return a pass through the image network, as the sampler makes it."""
    import torch

    number, config = getattr(torch, pipe.dtype), pipe.network.config
    images, side_ = batch * (1 + guided), pipe.latent_side(side)

    def empty(*shape: int) -> Any:
        return torch.empty(shape, device=META, dtype=number)

    added: dict[str, Any] | None = None
    if pipe.kind in ("sd3", "flux"):
        added = {"text_embeds": empty(images, int(config.pooled_projection_dim))}
    elif pipe.kind == "sdxl":
        pooled = int(config.projection_class_embeddings_input_dim) - 6 * int(config.addition_time_embed_dim)
        added = {"text_embeds": empty(images, pooled), "time_ids": empty(images, 6)}
    text = config.joint_attention_dim if pipe.kind in ("sd3", "flux") else config.cross_attention_dim
    hidden, latents = empty(images, TOKENS[pipe.kind], int(text)), empty(batch, pipe.channels, side_, side_)
    time = torch.empty((), device=META)

    def denoise() -> Any:
        with torch.no_grad():
            out = predict(pipe, torch.cat([latents] * 2) if guided else latents, time, hidden, added)
            if not guided:
                return out
            without, with_ = out.chunk(2)
            return without + 2.0 * (with_ - without)

    return denoise


def _decoding(pipe: Pipe, side: int, batch: int) -> Callable[[], Any]:
    """Return a decoding of as many images as are decoded at a time."""
    import torch

    vae, side_ = pipe.parts.vae, pipe.latent_side(side)
    number = next(vae.parameters()).dtype
    images = max(1, min(batch, PIXELS_PER_DECODING // side**2))
    latents = torch.empty((images, int(vae.config.latent_channels), side_, side_), device=META, dtype=number)

    def decode() -> Any:
        with torch.no_grad():
            return (vae.decode(latents, return_dict=False)[0] / 2 + 0.5).clamp(0, 1)

    return decode


def _fused_attention() -> Any:
    """Return a context in which attention makes its result and nothing else, as fused kernels do."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Fused(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.nn.functional.scaled_dot_product_attention:
                named = dict(zip(("query", "key", "value"), args, strict=False)) | (kwargs or {})
                query, value = named["query"], named["value"]
                return query.new_empty((*query.shape[:-1], value.shape[-1]))
            return func(*args, **(kwargs or {}))

    return Fused()
