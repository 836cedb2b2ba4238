"""OpticsAugment: blend images with versions blurred by optical aberrations.

Mueller, Braun and Keuper, "Examining the Impact of Optical Aberrations to Image Classification and Object
Detection", section VII.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sorites.core.errors import SoritesError
from sorites.shifts.aberration import LEVELS, WAVES, choose
from sorites.training.augment.base import Mixing

# Blur with one kernel per image.


# Kernels up to this side use grouped convolution, larger ones FFT.
MAX_DIRECT_SIDE = 15

# Pixels per FFT batch on a CPU, where more exceed the cache and fewer cost calls; and on other devices, where
# each call costs and a batch of 256 images of 224 px takes one (about 1 GB with its spectra).
PIXELS_PER_FFT = 4 * 250 * 250
PIXELS_PER_FFT_ON_DEVICE = 320 * 250 * 250


class KernelBlur:
    """Cross-correlates images with kernels K x 3 x side x side (odd side).

    Borders are reflected without repeating the edge, several times if the image is smaller than the kernel.
    Kernel spectra are cached for the latest image size and device only, which bounds the memory.
    """

    def __init__(self, taps: Tensor) -> None:
        self.taps = taps
        self.side = taps.shape[-1]
        self._spectra: tuple[tuple[tuple[int, int], torch.device], Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The spectra are large and quick to recompute; see Augmentation.__getstate__ for arrays.
        return {**self.__dict__, "taps": self.taps.numpy(), "_spectra": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, taps=torch.from_numpy(np.array(state["taps"])))

    def mixed(self, images: Tensor, choice: Tensor, weights: Tensor) -> Tensor:
        """Return (1 - weight) * image + weight * blurred image, with one kernel and weight per image."""
        blend = self._direct if self.side <= MAX_DIRECT_SIDE else self._by_fft
        return blend(images.contiguous(), choice, weights.to(images.device, images.dtype)).clamp_(0, 1)

    def _direct(self, images: Tensor, choice: Tensor, weights: Tensor) -> Tensor:
        """Blur by grouped convolution.

        Blurring is linear, so the blending weights are folded into the kernels.
        """
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
        on_cpu = images.device.type == "cpu"
        step = max(1, (PIXELS_PER_FFT if on_cpu else PIXELS_PER_FFT_ON_DEVICE) // (size[0] * size[1]))
        for start in range(0, len(images), step):
            batch = images[start : start + step]
            spectrum = torch.fft.rfft2(mirrored(batch.float(), middle), s=size)
            _multiply(spectrum, transfer, choice[start : start + step])
            blurred = torch.fft.irfft2(spectrum, s=size)[
                ..., middle : middle + height, middle : middle + width
            ]
            out[start : start + step] = torch.lerp(
                batch, blurred.to(batch.dtype), weights[start : start + step, None, None, None]
            )
        return out

    def _transfer(self, size: tuple[int, int], device: torch.device) -> Tensor:
        if self._spectra is None or self._spectra[0] != (size, device):
            margin = (0, size[1] - self.side, 0, size[0] - self.side)
            padded = torch.roll(
                functional.pad(self.taps.to(device), margin), (-(self.side // 2),) * 2, (-2, -1)
            )
            self._spectra = (size, device), torch.fft.rfft2(padded).conj().resolve_conj()
        return self._spectra[1]


def _multiply(spectra: Tensor, transfer: Tensor, choice: Tensor) -> None:
    """Multiply each spectrum with the transfer function chosen for it, in place.

    On a CPU one by one, which needs no copy of the transfer functions; on other devices at once.
    """
    if spectra.device.type == "cpu":
        for spectrum, kernel in zip(spectra, choice.tolist(), strict=True):
            spectrum *= transfer[kernel]
    else:
        spectra *= transfer[choice.to(spectra.device, non_blocking=True)]


def mirrored(images: Tensor, margin: int) -> Tensor:
    """Pad images by reflection without repeating the edge."""
    height, width = images.shape[2:]
    if margin < min(height, width):
        return functional.pad(images, (margin,) * 4, mode="reflect")
    rows, columns = (_reflected(side, margin).to(images.device) for side in (height, width))
    return images[:, :, rows][:, :, :, columns]


def _reflected(side: int, margin: int) -> Tensor:
    """Return the source row of each row from -margin to side + margin - 1."""
    period = max(1, 2 * (side - 1))
    rows = torch.arange(-margin, side + margin) % period
    return torch.minimum(rows, period - rows) if side > 1 else torch.zeros_like(rows)


def fast_length(least: int) -> int:
    """Return the smallest length >= ``least`` without prime factors above five, which suits FFTs."""
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
    """Blurs each image by one of the eight OpticsBench aberrations, drawn uniformly, and blends the two.

    x' = (1 - w) x + w blur(x), with w from Beta(alpha, alpha). The published values are severity 3 and alpha
    1 (uniform w). Apply it before normalization: normalization is affine and the weights sum to one, so the
    result equals the published mixture of normalized images. The blur is that of the shifts with
    ``padding="reflect"``.

    Args:
        size: Side of the images in px.
        severity: A severity from 0 to 5, or several to draw from uniformly.
        alpha: Parameter of the Beta distribution.
        kernels: File with a published kernel stack.
        colours: ``"rgb"`` or ``"rg"``.
        scaled: Factor by which kernels are shrunk for small images (4 for 32 px).
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
        self.kernels = [(mode, severity) for mode in WAVES for severity in self.severities]
        taps = np.array([chosen.taps(mode, severity) for mode, severity in self.kernels], np.float32)
        self.blur = KernelBlur(torch.from_numpy(taps))

    def choices(self, number: int) -> Tensor:
        """Draw one kernel per image, as indices into ``kernels``: uniform over modes and severities."""
        return self.whole(number, below=len(self.kernels))

    def mix(self, images: Tensor, weights: Tensor) -> Tensor:
        return self.blur.mixed(images, self.choices(len(images)), weights)

    def extra_repr(self) -> str:
        return f"severity={self.severities}, alpha={self.alpha:g}, taps={self.blur.side}"


def _severities(severity: Any) -> tuple[float, ...]:
    severities = (
        tuple(severity) if isinstance(severity, Sequence) and not isinstance(severity, str) else (severity,)
    )
    for value in severities:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LEVELS[-1]:
            raise SoritesError(f"OpticsAugment: severities must be from 0 to {LEVELS[-1]}, got {value!r}")
    if not severities:
        raise SoritesError(f"OpticsAugment: need at least one severity from 0 to {LEVELS[-1]}, got none")
    return tuple(map(float, severities))
