"""OpticsAugment: images mixed with themselves seen through a lens that is out of shape.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and
Object Detection", VI-B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sorites.core.errors import SoritesError
from sorites.shifts.aberration import LEVELS, WAVES, choose
from sorites.training.augment.base import Mixing

# Blur every image of a batch by a kernel of its own: grouped convolution where kernels are small, FFT
# where they are large.


# The largest kernel, in taps per side, that is laid over images directly; larger ones go through
# an FFT.
LARGEST_DIRECT = 15

# The number of pixels transformed together: more leave the processor's cache and take more memory,
# fewer cost calls.
TOGETHER = 4 * 250 * 250


class KernelBlur:
    """A set of kernels, K x 3 x side x side with an odd side, laid over images as they are drawn
    (cross-correlation).

    Beyond the border an image is mirrored without its edge repeated, again and again where it is
    smaller than the kernel. The spectra of the kernels are kept for the latest size and device
    only, which bounds the memory.
    """

    def __init__(self, taps: Tensor) -> None:
        self.taps = taps
        self.side = taps.shape[-1]
        self._kept: tuple[tuple[tuple[int, int], torch.device], Tensor] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}  # spectra are large and soon made again

    def mixed(self, images: Tensor, choice: Tensor, weights: Tensor) -> Tensor:
        """Return (1 - weight) x image + weight x blurred image, with one kernel and one weight
        per image.
        """
        blend = self._direct if self.side <= LARGEST_DIRECT else self._by_fft
        return blend(images.contiguous(), choice, weights.to(images.device, images.dtype)).clamp_(0, 1)

    def _direct(self, images: Tensor, choice: Tensor, weights: Tensor) -> Tensor:
        """Blurring is linear, so that the weights go into the kernels and the images are read once."""
        number, colours, height, width = images.shape
        middle = self.side // 2
        kernels = self.taps[choice].to(images.device, images.dtype) * weights[:, None, None, None]
        kernels[:, :, middle, middle] += 1 - weights[:, None]
        wide = mirrored(images, middle).reshape(1, number * colours, height + 2 * middle, width + 2 * middle)
        blurred = functional.conv2d(
            wide, kernels.reshape(number * colours, 1, self.side, self.side), groups=number * colours
        )
        return blurred.reshape(images.shape)

    def _by_fft(self, images: Tensor, choice: Tensor, weights: Tensor) -> Tensor:
        height, width = images.shape[2:]
        middle = self.side // 2
        size = fast_length(height + 2 * middle), fast_length(width + 2 * middle)
        transfer, out = self._transfer(size, images.device), torch.empty_like(images)
        step = max(1, TOGETHER // (size[0] * size[1]))
        which = choice.tolist()
        for start in range(0, len(images), step):
            some = images[start : start + step]
            spectrum = torch.fft.rfft2(mirrored(some.float(), middle), s=size)
            for place in range(len(some)):
                spectrum[place] *= transfer[which[start + place]]
            blurred = torch.fft.irfft2(spectrum, s=size)[
                ..., middle : middle + height, middle : middle + width
            ]
            out[start : start + step] = torch.lerp(
                some, blurred.to(some.dtype), weights[start : start + step, None, None, None]
            )
        return out

    def _transfer(self, size: tuple[int, int], device: torch.device) -> Tensor:
        if self._kept is None or self._kept[0] != (size, device):
            margin = (0, size[1] - self.side, 0, size[0] - self.side)
            laid = torch.roll(
                functional.pad(self.taps.to(device), margin), (-(self.side // 2),) * 2, (-2, -1)
            )
            self._kept = (size, device), torch.fft.rfft2(laid).conj().resolve_conj()
        return self._kept[1]


def mirrored(images: Tensor, margin: int) -> Tensor:
    """Return the images with a margin on every side that mirrors them without repeating their edge."""
    height, width = images.shape[2:]
    if margin < min(height, width):
        return functional.pad(images, (margin,) * 4, mode="reflect")
    rows, columns = (_reflected(side, margin).to(images.device) for side in (height, width))
    return images[:, :, rows][:, :, :, columns]


def _reflected(side: int, margin: int) -> Tensor:
    """Return which row stands at each place from -margin to side + margin - 1."""
    period = max(1, 2 * (side - 1))
    places = torch.arange(-margin, side + margin) % period
    return torch.minimum(places, period - places) if side > 1 else torch.zeros_like(places)


def fast_length(least: int) -> int:
    """Return the least length from ``least`` that has no prime factor above five, which an FFT is
    quick at.
    """
    length = least
    while True:
        left = length
        for factor in (2, 3, 5):
            while left % factor == 0:
                left //= factor
        if left == 1:
            return length
        length += 1


class OpticsAugment(Mixing):
    """Blurs each image by one of the eight OpticsBench aberrations, drawn uniformly, and mixes the two.

    x' = (1 - w) x + w blur(x), with w from Beta(alpha, alpha) for each image: published are
    severity 3 and alpha 1, for which w is uniform. Give images before they are normalised;
    normalising is affine and the weights sum to one, so normalising afterwards gives exactly the
    published mixture of normalised images. Borders are mirrored.

    ``severity`` is a number from 0 to 5, or several to draw from uniformly. The blur is that of our
    shifts with ``padding="reflect"``, and the other options are theirs: ``kernels`` is a file with
    a published stack, ``colours`` is rgb or rg, and ``scaled`` shrinks the kernels so many times
    for small images (4 for 32 px).
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        severity: float | Sequence[float] = 3.0,
        alpha: float = 1.0,
        kernels: str | None = None,
        colours: str = "rgb",
        scaled: float = 1.0,
    ) -> None:
        super().__init__(size, alpha)
        self.severities = _severities(severity)
        chosen = choose("OpticsAugment", kernels=kernels, colours=colours, scaled=scaled)
        self.places = [(mode, severity) for mode in WAVES for severity in self.severities]
        taps = np.array([chosen.taps(mode, severity) for mode, severity in self.places], np.float32)
        self.blur = KernelBlur(torch.from_numpy(taps))

    def choices(self, number: int) -> Tensor:
        """Draw the kernels of so many images, as places in ``places``: uniform over modes and
        severities.
        """
        return self.whole(number, below=len(self.places))

    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        return self.blur.mixed(images, self.choices(len(images)), weights)

    def extra_repr(self) -> str:
        return f"severity={self.severities}, alpha={self.alpha:g}, taps={self.blur.side}"


def _severities(given: Any) -> tuple[float, ...]:
    some = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    for severity in some:
        fits = (
            isinstance(severity, int | float) and not isinstance(severity, bool) and math.isfinite(severity)
        )
        if not fits or not 0 <= severity <= LEVELS[-1]:
            raise SoritesError(
                f"OpticsAugment: wanted a severity from 0 to {LEVELS[-1]}, or several, got {severity!r}"
            )
    if not some:
        raise SoritesError(f"OpticsAugment: wanted a severity from 0 to {LEVELS[-1]}, or several, got none")
    return tuple(map(float, some))
