"""ControlNet: hold the edges of an image, or another map of it, while a slider moves it.

A second network sees the map and adds to what the first one computes (Zhang et al., ICCV 2023). The map is
made from the image without a slider, so that all severities of a trajectory share it: what is drawn keeps its
layout, and differs by the shift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import import_with_torchvision
from sorites.core.errors import SoritesError
from sorites.core.registry import load_object
from sorites.core.rng import digest
from sorites.core.samples import ImageU8
from sorites.diffusion.pipeline import Pipe, silence_libraries, version_of
from sorites.io.paths import reason
from sorites.io.readers import json_file

EDGES = "edges"
CLASS = "ControlNetModel"
EXPECTED = "a folder written by diffusers (controlnet.save_pretrained), with config.json and .safetensors"
# Thresholds of the published maps of edges.
LOW, HIGH = 100, 200
# The tangent of 22.5 degrees, times 2 ** 15.
_TANGENT = 13573


@dataclass(frozen=True, eq=False)
class Control:
    """A network that holds a map of an image.

    Attributes:
        network: The ControlNet.
        image: What the map is: ``edges``, or the spec of a function.
        make: Makes the map of an 8-bit image, in 8 bits.
        scale: The weight of what the network adds.
        version: A hash of the network, the map and the scale.
    """

    network: Any
    image: str
    make: Callable[[ImageU8], ImageU8]
    scale: float
    version: str

    def maps(self, images: list[ImageU8], device: str) -> Any:
        """Return the maps of images as the network takes them: 0 to 1, images x channels x height x width."""
        import torch

        made = []
        for image in images:
            found = np.asarray(self.make(image))
            if found.dtype != np.uint8 or found.shape != image.shape:
                raise SoritesError(
                    f"the map {self.image}: expected an 8-bit image of shape {image.shape}, got"
                    f" {found.dtype} of shape {found.shape}"
                )
            made.append(torch.from_numpy(np.ascontiguousarray(found)).permute(2, 0, 1))
        return torch.stack(made).to(device, self.network.dtype) / 255

    def residuals(self, latents: Any, time: Any, hidden: Any, added: Any, held: Any) -> dict[str, Any]:
        """Return what the network adds to the passes of the image network."""
        down, middle = self.network(
            latents, time, encoder_hidden_states=hidden, controlnet_cond=held,
            conditioning_scale=self.scale, added_cond_kwargs=added, return_dict=False,
        )  # fmt: skip
        return {"down_block_additional_residuals": down, "mid_block_additional_residual": middle}


def with_control(pipe: Pipe, folder: str | Path, image: str = EDGES, scale: float = 1.0) -> Pipe:
    """Return a pipeline that holds a map of images while sliders move them.

    Args:
        pipe: A pipeline of Stable Diffusion 1, 2 or XL.
        folder: A ControlNet as diffusers writes it.
        image: ``edges``, or ``python:module:function``, which returns the map of an 8-bit image, such as
            depth.
        scale: The weight of what the ControlNet adds.

    Raises:
        SoritesError: The folder is no ControlNet for this pipeline.
    """
    if pipe.kind not in ("sd", "sdxl"):
        raise SoritesError(
            f"a ControlNet needs a pipeline of Stable Diffusion 1, 2 or XL, got {type(pipe.parts).__name__}"
        )
    make = require_control(folder, image, scale)
    network = _read(Path(folder), pipe)
    version = digest(version_of(Path(folder)), image, scale, size=8).hex()
    control = Control(network, image, make, scale, version)
    return replace(
        pipe, control=control, version=digest(pipe.version, version, size=8).hex(), base=pipe.base_version
    )


def require_control(
    folder: str | Path, image: str = EDGES, scale: float = 1.0
) -> Callable[[ImageU8], ImageU8]:
    """Check what needs no pipeline, and return the function that makes maps.

    Args:
        folder: A ControlNet as diffusers writes it.
        image: ``edges``, or ``python:module:function``.
        scale: The weight of what the ControlNet adds.

    Raises:
        SoritesError: The folder is no ControlNet, or the map or the scale cannot be.
    """
    if not 0 < scale <= 10:
        raise SoritesError(f"the scale of a ControlNet must be above 0, at most 10; got {scale}")
    make, config = _maker(image), Path(folder) / "config.json"
    if not config.is_file():
        raise SoritesError(f"{folder} is no ControlNet: it has no config.json. Expected {EXPECTED}")
    name = json_file(config, "the configuration of a ControlNet").get("_class_name")
    if name != CLASS:
        raise SoritesError(f"{config}: expected a {CLASS}, got {str(name)[:80]!r}")
    if not list(Path(folder).glob("*.safetensors")):
        raise SoritesError(f"{folder}: expected weights as .safetensors. Expected {EXPECTED}")
    return make


def _maker(image: str) -> Callable[[ImageU8], ImageU8]:
    if image == EDGES:
        return edges
    kind, _, spec = image.partition(":")
    if kind != "python" or not spec:
        raise SoritesError(
            f"the map of a ControlNet: expected {EDGES} or python:module:function, got {image!r}"
        )
    made: Callable[[ImageU8], ImageU8] = load_object("map of a ControlNet", spec)
    return made


def _read(folder: Path, pipe: Pipe) -> Any:
    diffusers = import_with_torchvision("diffusers", "a ControlNet", "generate")
    import torch

    try:
        with silence_libraries():
            network = diffusers.ControlNetModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True
            )
            network = network.to(pipe.device, getattr(torch, pipe.dtype))
    except Exception as error:  # a damaged or partial folder can make the library raise anything
        raise SoritesError(f"cannot load the ControlNet in {folder}: {reason(error)}") from error
    ours, theirs = pipe.network.config, network.config
    for key in ("in_channels", "cross_attention_dim", "block_out_channels"):
        if list(np.atleast_1d(ours[key])) != list(np.atleast_1d(theirs[key])):
            raise SoritesError(
                f"the ControlNet in {folder} is for another pipeline: expected {key} {ours[key]}, got"
                f" {theirs[key]}"
            )
    return network.requires_grad_(False).eval()


def edges(image: ImageU8, low: int = LOW, high: int = HIGH) -> ImageU8:
    """Return the edges of an image in white on black (Canny 1986), equal to those of OpenCV.

    Args:
        image: H x W x 3 in 8 bits.
        low: Gradients above it continue an edge.
        high: Gradients above it begin one.
    """
    from scipy import ndimage

    x, y = _gradients(image)
    size = np.abs(x) + np.abs(y)
    thin = _is_ridge(x, y, size) & (size > low)
    pieces, count = ndimage.label(thin, np.ones((3, 3)))
    begun = np.zeros(count + 1, bool)
    begun[np.unique(pieces[thin & (size > high)])] = True
    begun[0] = False
    white = np.where(begun[pieces], 255, 0).astype(np.uint8)
    return np.repeat(white[..., None], 3, 2)


def _gradients(image: ImageU8) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the gradients of the channel in which they are largest, by Sobel's kernels."""
    from scipy import ndimage

    pixels, kernel = image.astype(np.int64), np.outer((1, 2, 1), (-1, 0, 1))[..., None]
    x, y = (ndimage.correlate(pixels, k, mode="nearest") for k in (kernel, kernel.swapaxes(0, 1)))
    channel = (np.abs(x) + np.abs(y)).argmax(2)[..., None]
    return tuple(np.take_along_axis(part, channel, 2)[..., 0] for part in (x, y))  # type: ignore[return-value]


def _is_ridge(x: NDArray[np.int64], y: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return where the gradient is largest across an edge, whose direction is one of four."""
    around = np.pad(size, 1)
    height, width = size.shape

    def at(down: int, right: int) -> NDArray[np.int64]:
        return around[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    shallow, up = np.abs(x) * _TANGENT, np.abs(y) << 15
    steep = shallow + (np.abs(x) << 16)
    falling = (x ^ y) < 0
    along = (size > at(0, -1)) & (size >= at(0, 1))
    across = (size > at(-1, 0)) & (size >= at(1, 0))
    slanted = np.where(
        falling,
        (size > at(-1, 1)) & (size > at(1, -1)),
        (size > at(-1, -1)) & (size > at(1, 1)),
    )
    return np.where(up < shallow, along, np.where(up > steep, across, slanted)).astype(bool)
