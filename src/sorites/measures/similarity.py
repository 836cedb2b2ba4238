"""How far a picture is from the one it was made from: PSNR, SSIM and LPIPS, exposure error and clipping.

Every measure takes two 8-bit pictures of one size, the reference first, and gives a number. Larger is further for LPIPS, for the
size of the exposure error and for clipping, and nearer for PSNR and SSIM.
PSNR and SSIM stand in ``optics.quality`` too, for values 0..1: sums on another scale, in another order, have other last bits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sorites.core import Picture
from sorites.errors import BadPicture, MissingExtra, SoritesError, UnknownName
from sorites.measures._lpips_weights import alexnet
from sorites.optics.srgb import light_of_bytes

Measure = Callable[[Picture, Picture], float]


def _same(reference: Picture, moved: Picture) -> None:
    if reference.shape != moved.shape or reference.dtype != np.uint8 or moved.dtype != np.uint8:
        raise SoritesError(
            f"wanted two 8-bit pictures of one size, got {reference.dtype} {reference.shape} and {moved.dtype} {moved.shape}"
        )


def psnr(reference: Picture, moved: Picture) -> float:
    """Peak signal to noise ratio in dB, white = 255; infinite for equal pictures."""
    _same(reference, moved)
    error = np.square(reference.astype(np.float64) - moved).mean()
    return float(10 * math.log10(255**2 / error)) if error else math.inf


def ssim(reference: Picture, moved: Picture) -> float:
    """Structural similarity, mean over pixels and channels: Gaussian window of 11 px, sigma 1.5 (Wang et al. 2004)."""
    _same(reference, moved)
    if min(reference.shape[:2]) < 11:
        raise BadPicture(f"SSIM looks through a window of 11 px; the picture is {reference.shape[1]}x{reference.shape[0]}")
    from sorites.optics.quality import window

    x, y = reference.astype(np.float64), moved.astype(np.float64)
    mean_x, mean_y = window(x), window(y)
    var_x, var_y = window(x * x) - mean_x**2, window(y * y) - mean_y**2
    both = window(x * y) - mean_x * mean_y
    flat, steep = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    alike = (2 * mean_x * mean_y + flat) * (2 * both + steep) / ((mean_x**2 + mean_y**2 + flat) * (var_x + var_y + steep))
    return float(alike[5:-5, 5:-5].mean())


def exposure_error(reference: Picture, moved: Picture) -> float:
    """How many stops lighter (darker: below 0) the mean luminance is; a black picture counts as half the least 8-bit step."""
    _same(reference, moved)
    return math.log2(_luminance(moved) / _luminance(reference))


def _luminance(picture: Picture) -> float:
    means = [light_of_bytes()[picture[..., channel]].mean() for channel in range(3)]
    return max(float(np.dot(means, (0.2126, 0.7152, 0.0722))), float(light_of_bytes()[1]) / 2)


def clipped_share(reference: Picture, moved: Picture) -> float:
    """The share of values at 0 or 255 that were not in the reference."""
    _same(reference, moved)
    ends = np.isin(moved, (0, 255)) & ~np.isin(reference, (0, 255))
    return float(ends.mean())


def lpips(reference: Picture, moved: Picture) -> float:
    """Learned perceptual distance with AlexNet features, version 0.1 (Zhang et al. 2018)."""
    _same(reference, moved)
    if min(reference.shape[:2]) < 32:
        raise BadPicture(f"LPIPS wants pictures of 32 px a side or more, got {reference.shape[1]}x{reference.shape[0]}")
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("LPIPS", "lpips") from error
    with torch.inference_mode():
        return float(_distance(torch, reference, moved))


SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Of the inputs in -1..1, by channel."""
STRIDES, PADS, POOLED = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1), (1, 2)
"""AlexNet's five convolutions; a 3 x 3 maximum at every second place goes before the second and the third."""


def _distance(torch: Any, reference: Picture, moved: Picture) -> Any:
    pair = torch.from_numpy(np.stack([reference, moved]).astype(np.float32)).permute(0, 3, 1, 2) / 127.5 - 1
    x = (pair - torch.tensor(SHIFT).view(1, 3, 1, 1)) / torch.tensor(SCALE).view(1, 3, 1, 1)
    total = torch.zeros(())
    for layer, (kernel, bias, head) in enumerate(_tensors()):
        if layer in POOLED:
            x = torch.nn.functional.max_pool2d(x, 3, 2)
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, bias, STRIDES[layer], PADS[layer]))
        unit = x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10)
        total = total + torch.einsum("chw,c->hw", (unit[0] - unit[1]).square(), head).mean()
    return total


@functools.cache
def _tensors() -> list[tuple[Any, Any, Any]]:
    import torch

    return [(torch.from_numpy(k), torch.from_numpy(b), torch.from_numpy(h)) for k, b, h in alexnet()]


MEASURES: dict[str, Measure] = {
    "psnr": psnr,
    "ssim": ssim,
    "lpips": lpips,
    "exposure_error": exposure_error,
    "clipped_share": clipped_share,
}


def known(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once; one that is no measure of pictures is an error."""
    for name in names:
        if name not in MEASURES:
            raise UnknownName("measure of pictures", name, MEASURES, f"There are {', '.join(MEASURES)}.")
    return tuple(dict.fromkeys(names))
