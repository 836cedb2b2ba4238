"""Sliders: low-rank adapters with a severity, our own and those of public trainers.

Our own are a folder with ``pytorch_lora_weights.safetensors``, which ``pipe.load_lora_weights(DIR)`` of
diffusers also reads, and ``slider.json`` with the training parameters. Single files in the layouts of peft
and of concept sliders (``lora_unet_..._to_q.lora_down.weight`` with ``alpha``) are read too, as safetensors
or weights-only torch files.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.diffusion.pipeline import why_unreadable
from sorites.diffusion.records import SliderRecord
from sorites.io.digests import digest_of, write_sealed
from sorites.io.files import write_bytes
from sorites.io.listed import digests_of, read_verified
from sorites.io.readers import json_file, json_value
from sorites.io.sealed_tensors import sorted_header
from sorites.io.validation import read_typed

# The published trainer's ``noxattn`` layers: all except cross-attention and the time embedding.
NOXATTN = re.compile(
    r".*(attn1\.(to_q|to_k|to_v|to_out\.0)|resnets\.\d+\.(conv1|conv2|time_emb_proj|conv_shortcut)|(down|up)samplers\.0\.conv)"
)
XATTN = re.compile(r".*attn2\.(to_q|to_k|to_v|to_out\.0)")
# Projections of attention in any network, and in transformers also those of the text beside the image.
ATTENTION = re.compile(r".*\.attn[12]?\.(to_q|to_k|to_v|to_out\.0)")
TEXT_ATTENTION = re.compile(r".*\.attn\.(add_q_proj|add_k_proj|add_v_proj|to_add_out)")
METHODS = {
    "noxattn": (NOXATTN,),
    "xattn": (XATTN,),
    "full": (NOXATTN, XATTN),
    "attention": (ATTENTION,),
    "joint": (ATTENTION, TEXT_ATTENTION),
}

_OF_UNETS = ("down_blocks.", "mid_block.", "up_blocks.", "conv_in", "conv_out", "time_embedding.")

# The two matrices of one layer: down (rank x in) and up (out x rank), with the training scale folded into up.
LowRank = tuple[Any, Any]


def targets(network: Any, method: str) -> list[str]:
    """Return the names of the layers that a training method adapts, in the network's order."""
    if method not in METHODS:
        raise SoritesError(f"expected layers among {', '.join(METHODS)}, got {method!r}")
    names = [
        name for name, _ in network.named_modules() if any(rule.fullmatch(name) for rule in METHODS[method])
    ]
    if not names:
        fitting = [
            name
            for name, rules in METHODS.items()
            if any(rule.fullmatch(layer) for rule in rules for layer, _ in network.named_modules())
        ]
        raise SoritesError(
            f"this network has no layers for the method {method}; use"
            f" {option('layers', '|'.join(fitting) or 'NAME')}"
        )
    return names


def part_of(layers: Iterable[str]) -> str:
    """Return the part of a pipeline that layers belong to, by which diffusers prefixes their names."""
    return "unet" if any(name.startswith(_OF_UNETS) for name in layers) else "transformer"


def shapes(layer: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of down and up for a layer."""
    if hasattr(layer, "kernel_size"):
        return (rank, layer.in_channels, *layer.kernel_size), (layer.out_channels, rank, 1, 1)
    return (rank, layer.in_features), (layer.out_features, rank)


def check_fits(network: Any, lows: Mapping[str, LowRank], called: str) -> None:
    """Raise an error if an adapter was made for another network, naming the first layer that differs."""
    modules = dict(network.named_modules())
    for name, (down, up) in lows.items():
        layer = modules.get(name)
        if layer is None or not (hasattr(layer, "kernel_size") or hasattr(layer, "in_features")):
            raise SoritesError(
                f"the slider {called} is for another architecture: this network has no layer {name}"
            )
        expected = shapes(layer, down.shape[0])
        if (tuple(down.shape), tuple(up.shape)) != expected:
            got_text = " and ".join(" x ".join(map(str, low.shape)) for low in (down, up))
            expected_text = " and ".join(" x ".join(map(str, shape)) for shape in expected)
            raise SoritesError(
                f"the slider {called} is for another architecture: layer {name} expects {expected_text}, the"
                f" slider has {got_text}"
            )


def adapter_output(layer: Any, inputs: Any, down: Any, up: Any, scale: Any) -> Any:
    """Return what an adapter adds to a layer's output: up(scale * down(inputs)), with scale as images x
    ranks.
    """
    from torch.nn import functional as F

    if hasattr(layer, "kernel_size"):
        low = F.conv2d(inputs, down, None, layer.stride, layer.padding, layer.dilation)
        return F.conv2d(low * scale[:, :, None, None], up)
    low = F.linear(inputs, down)
    return F.linear(low * scale.view(scale.shape[0], *(1,) * (low.ndim - 2), scale.shape[1]), up)


class SliderScales:
    """Severities of the sliders for each image of the batch; None switches them off."""

    def __init__(self) -> None:
        self.scales: Any = None
        """Images x sliders."""


@contextlib.contextmanager
def attach_sliders(
    network: Any, sliders: Sequence[Mapping[str, LowRank]], device: str | None = None
) -> Iterator[SliderScales]:
    """Attach sliders to a network within the context; their outputs are summed, each scaled by its severity.

    Args:
        network: The network.
        sliders: The matrices of each slider by layer.
        device: The torch device that computes; by default that of the network's weights, which may wait
            elsewhere.
    """
    import torch

    dial, handles, modules = SliderScales(), [], dict(network.named_modules())
    where = device or next(network.parameters()).device
    for name in dict.fromkeys(name for lows in sliders for name in lows):
        adapters = [(slider_index, *lows[name]) for slider_index, lows in enumerate(sliders) if name in lows]
        down = _concatenate([low for _, low, _ in adapters], 0).to(where)
        up = _concatenate([low for _, _, low in adapters], 1).to(where)
        columns = torch.tensor(
            [slider_index for slider_index, low, _ in adapters for _ in range(low.shape[0])],
            device=where,
        )
        handles.append(modules[name].register_forward_hook(_make_hook(dial, down, up, columns)))
    try:
        yield dial
    finally:
        for handle in handles:
            handle.remove()


def _make_hook(dial: SliderScales, down: Any, up: Any, columns: Any) -> Any:
    def hook(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        if dial.scales is None:
            return output
        layer_input = inputs[0]
        return output + adapter_output(
            layer,
            layer_input,
            down.to(layer_input.dtype),
            up.to(layer_input.dtype),
            dial.scales[:, columns].to(layer_input.dtype),
        )

    return hook


def _concatenate(parts: list[Any], dim: int) -> Any:
    """Concatenate matrices; a single one is returned as is, so that it can be trained."""
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


# File layouts of public trainers
_KEY = re.compile(
    r"(?P<layer>.+?)[._]"
    r"(?P<side>lora_A|lora_B|lora_down|lora_up|lora\.down|lora\.up|lora_linear_layer\.down|lora_linear_layer\.up)"
    r"(?:\.default|\.default_0)?\.weight"
)
_DOWN = ("lora_A", "lora_down", "lora.down", "lora_linear_layer.down")
_PREFIXES = ("base_model.model.", "unet.", "transformer.", "lora_unet_", "lora_transformer_")
_TEXT = ("text_encoder", "lora_te", "te1", "te2")


def lows_of(
    tensors: Mapping[str, Any], header: Mapping[str, str], file: Path, network: Any
) -> dict[str, LowRank]:
    """Return (down, up) by layer with alpha / rank folded into up, so that severity 1 is the trained
    adapter.
    """
    flat = {name.replace(".", "_"): name for name, _ in network.named_modules()}
    alphas, configured = _alphas(tensors), _configured_alphas(header, file)
    sides = _pair_sides(tensors, file)
    lows = {}
    for spelled, pair in sides.items():
        if len(pair) < 2:
            raise SoritesError(f"{file}: the layer {spelled} has only one of its two matrices")
        layer = _layer_name(spelled, flat)
        down, up = pair[True].float(), pair[False].float()
        alpha = alphas.get(spelled, configured.get(layer, configured.get("", float(down.shape[0]))))
        lows[layer] = _reshape(network, layer, down, up * (alpha / down.shape[0]))
    return lows


def _pair_sides(tensors: Mapping[str, Any], file: Path) -> dict[str, dict[bool, Any]]:
    """Return the matrices by layer as written in the file, then by whether they are ``down``."""
    sides: dict[str, dict[bool, Any]] = {}
    for key, tensor in tensors.items():
        if key.endswith(".alpha"):
            continue
        if key.startswith(_TEXT):
            raise SoritesError(
                f"{file}: {key} adapts the text encoder; only adapters of the image network are supported"
            )
        match = _KEY.fullmatch(key)
        if not match:
            raise SoritesError(
                f"{file}: expected low-rank adapters (lora_A and lora_B, or lora_down and lora_up), got"
                f" {key!r}"
            )
        sides.setdefault(match["layer"], {})[match["side"] in _DOWN] = tensor
    if not sides:
        raise SoritesError(f"{file}: expected low-rank adapters of an image network, got no matrices")
    return sides


def _layer_name(spelled: str, flat: Mapping[str, str]) -> str:
    """Return the network's name of a layer; unknown names are returned as is and fail in ``check_fits``."""
    name = spelled
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    head, _, last = name.rpartition(".processor.")
    if head:
        name = f"{head}.{last.removesuffix('_lora')}"
    name = re.sub(r"\.to_out$", ".to_out.0", name)
    return flat.get(name.replace(".", "_"), name)


def _alphas(tensors: Mapping[str, Any]) -> dict[str, float]:
    return {
        key.removesuffix(".alpha"): float(tensor) for key, tensor in tensors.items() if key.endswith(".alpha")
    }


def _configured_alphas(header: Mapping[str, str], file: Path) -> dict[str, float]:
    """Return alpha from the file's header or peft's ``adapter_config.json``, by layer, with "" for all
    layers.
    """
    config: Any = {}
    if "lora_adapter_metadata" in header:
        try:
            config = json_value(header["lora_adapter_metadata"])
        except ValueError as error:
            raise SoritesError(f"{file}: its header cannot be read: {error}") from error
        config = (
            {
                str(key).removeprefix("unet.").removeprefix("transformer."): value
                for key, value in config.items()
            }
            if isinstance(config, dict)
            else {}
        )
    elif (file.parent / "adapter_config.json").is_file():
        config = json_file(file.parent / "adapter_config.json", "peft's configuration of an adapter")
    if not isinstance(config, dict) or not isinstance(config.get("lora_alpha"), int | float):
        return {}
    pattern = config.get("alpha_pattern")
    by_layer = {str(key): float(value) for key, value in pattern.items()} if isinstance(pattern, dict) else {}
    return {"": float(config["lora_alpha"]), **by_layer}


def _reshape(network: Any, layer: str, down: Any, up: Any) -> LowRank:
    """Return the matrices in the layer's shape; 1 x 1 convolutions are often stored as plain matrices."""
    module = dict(network.named_modules()).get(layer)
    if module is None:
        return down, up
    ndim = 4 if hasattr(module, "kernel_size") else 2
    if ndim == 4 and down.ndim == 2:
        return down[:, :, None, None], up[:, :, None, None]
    if ndim == 2 and down.ndim == 4 and down.shape[2:] == (1, 1):
        return down[:, :, 0, 0], up[:, :, 0, 0]
    return down, up


WEIGHTS, RECORD = "pytorch_lora_weights.safetensors", "slider.json"
TRAIN_AGAIN = "Restore it from a backup, or delete its folder and train the slider again."
EXPECTED = f"a slider: a folder with {WEIGHTS}, or a .safetensors, .pt or .pth file of a public trainer"


@dataclass(frozen=True, eq=False)
class Slider:
    """An adapter for a shift.

    Attributes:
        shift: Name of the shift.
        lows: Matrices by layer.
        record: Its training; fields that are not known are not set.
    """

    shift: str
    lows: Mapping[str, LowRank] = field(repr=False)
    record: SliderRecord = field(default_factory=SliderRecord)
    version: str = ""
    """A hash of its matrices."""

    @property
    def concept(self) -> str:
        """The class that it was trained for, empty if not recorded."""
        return self.record.concept


def make_slider(shift: str, lows: Mapping[str, LowRank], record: SliderRecord) -> Slider:
    """Return a slider with the hash of its matrices."""
    import torch

    parts: list[object] = []
    for name, low in sorted(lows.items()):
        parts += [
            name,
            *(
                digest(part.detach().to(torch.float32).contiguous().cpu().numpy().tobytes().hex())
                for part in low
            ),
        ]
    return Slider(shift, dict(lows), record, digest(*parts, size=8).hex())


def save(slider: Slider, folder: Path, half: bool = False) -> None:
    """Write a slider. Its metadata is written last; a folder without it counts as unfinished."""
    import torch
    from safetensors.torch import save as packed

    number = torch.float16 if half else torch.float32
    tensors, rank, part = {}, 1, part_of(slider.lows)
    for name, (down, up) in slider.lows.items():
        tensors[f"{part}.{name}.lora_A.weight"] = down.detach().to(number).cpu().contiguous()
        tensors[f"{part}.{name}.lora_B.weight"] = up.detach().to(number).cpu().contiguous()
        rank = int(down.shape[0])
    config = {"r": rank, "lora_alpha": rank, "target_modules": sorted(slider.lows)}
    header = {
        "format": "pt",
        "lora_adapter_metadata": json.dumps({f"{part}.{key}": value for key, value in config.items()}),
    }
    (folder / RECORD).unlink(missing_ok=True)
    data = sorted_header(packed(tensors, metadata=header))
    write_bytes(data, folder / WEIGHTS)
    stored = make_slider(
        slider.shift, {name: _as_dtype(low, number) for name, low in slider.lows.items()}, slider.record
    )
    files = {WEIGHTS: digest_of(data)}
    record = slider.record.having(shift=slider.shift, version=stored.version, files=files)
    write_sealed(record.as_json(), folder / RECORD)


def _as_dtype(low: LowRank, number: Any) -> LowRank:
    return low[0].detach().to(number), low[1].detach().to(number)


def load(path: str | Path, network: Any, shift: str = "") -> Slider:
    """Read a slider and check that it fits the network.

    Args:
        path: Folder or file of the slider.
        network: The network to attach it to.
        shift: Name of the shift, for files that do not record it.
    """
    root = Path(path)
    file = root / WEIGHTS if root.is_dir() else root
    if not file.is_file():
        raise SoritesError(f"{root} contains no slider. Expected {EXPECTED}")
    record = SliderRecord()
    if (file.parent / RECORD).is_file():
        record = read_record(file.parent)
        read_verified(file, digests_of(record.files, file.name), TRAIN_AGAIN)
    tensors, header = _tensors(file)
    lows = lows_of(tensors, header, file, network)
    check_fits(network, lows, str(root))
    return make_slider(shift or record.shift or file.stem, lows, record)


def read_record(folder: Path) -> SliderRecord:
    """Read how the slider in a folder was trained.

    Raises:
        Damaged: The record is damaged, or a field is missing, unknown or of another type.
    """
    return read_typed(folder / RECORD, SliderRecord, TRAIN_AGAIN)


def _tensors(file: Path) -> tuple[dict[str, Any], dict[str, str]]:
    try:
        if file.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(str(file), framework="pt") as opened:
                tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
                return tensors, dict(opened.metadata() or {})
        import torch

        tensors = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file can make the readers raise anything
        raise SoritesError(f"cannot read {file}: {why_unreadable(error)}. Expected {EXPECTED}") from error
    if not isinstance(tensors, dict) or not all(hasattr(value, "shape") for value in tensors.values()):
        raise SoritesError(f"{file}: expected a torch file with a table of weights only. Expected {EXPECTED}")
    return tensors, {}
