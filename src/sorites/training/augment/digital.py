"""Digital augmentations: color jitter, solarization and posterization.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024: the basic augmentations of
its experiments.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sorites.core.errors import SoritesError
from sorites.training.augment.base import Augmentation

# Weights of red, green and blue in luma (ITU-R BT.601).
LUMA = (0.299, 0.587, 0.114)


class Digital(Augmentation):
    """Jitters brightness, contrast, saturation and hue in random order, then may solarize or posterize.

    The defaults are the published values. Values are rounded to 8 bits only for posterization.

    Args:
        size: Side of the images in px.
        brightness: Largest change of the factor around 1.
        contrast: Largest change of the factor around 1.
        saturation: Largest change of the factor around 1.
        hue: Largest rotation of the color circle, as a share of it.
        solarize: Probability of inverting values from ``threshold`` upwards.
        threshold: Threshold of solarization, out of 255.
        posterize: Probability of keeping only ``bits`` per channel.
        bits: Bits kept by posterization.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        brightness: float = 0.125,
        contrast: float = 0.5,
        saturation: float = 0.5,
        hue: float = 0.05,
        solarize: float = 0.3,
        threshold: int = 192,
        posterize: float = 0.1,
        bits: int = 2,
    ) -> None:
        super().__init__(size)
        self.factors = (brightness, contrast, saturation)
        self.hue, self.solarize, self.threshold, self.posterize, self.bits = (
            hue,
            solarize,
            threshold,
            posterize,
            bits,
        )
        for name, value, largest in zip(
            ("brightness", "contrast", "saturation", "hue", "solarize", "posterize"),
            (*self.factors, hue, solarize, posterize),
            (1.0, 1.0, 1.0, 0.5, 1.0, 1.0),
            strict=True,
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
                raise SoritesError(f"Digital: {name} must be from 0 to {largest:g}, got {value!r}")
        for name, integer, most in (("threshold", threshold, 256), ("bits", bits, 8)):
            if isinstance(integer, bool) or not isinstance(integer, int) or not 0 <= integer <= most:
                raise SoritesError(f"Digital: {name} must be an integer from 0 to {most}, got {integer!r}")

    def augment(self, images: Tensor) -> Tensor:
        number = len(images)
        largest = torch.tensor([*self.factors, self.hue])
        amounts = (self.uniform(number, 4, low=-1) * largest + torch.tensor([1.0, 1.0, 1.0, 0.0])).to(
            images.dtype
        )
        order = torch.argsort(self.uniform(number, 4), dim=1)
        to_solarize, to_posterize = (
            self.uniform(number) < self.solarize,
            self.uniform(number) < self.posterize,
        )
        augmented = images.clone()
        for position in range(4):
            for kind, change in enumerate((brightened, contrasted, saturated, hue_turned)):
                _change(augmented, order[:, position] == kind, change, amounts[:, kind])
        _change(augmented, to_solarize, solarized, torch.full((number,), self.threshold))
        _change(augmented, to_posterize, posterized, torch.full((number,), self.bits))
        return augmented


def _change(
    images: Tensor, chosen: Tensor, change: Callable[[Tensor, Tensor], Tensor], amounts: Tensor
) -> None:
    """Apply ``change`` in place to the chosen images, each with its own amount."""
    rows = torch.nonzero(chosen)[:, 0]
    if len(rows):
        indices, chosen_amounts = rows.to(images.device), amounts[rows]
        if images.device.type == "mps":  # which has no 64-bit floats
            chosen_amounts = chosen_amounts.float()
        images[indices] = change(images[indices], chosen_amounts.to(images.device)[:, None, None, None])


def grey(images: Tensor) -> Tensor:
    """Return the luma, N x 1 x H x W."""
    return (images * images.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def brightened(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black; factor 1 changes nothing."""
    return (images * factor).clamp_(0, 1)


def contrasted(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean luma of each image."""
    return torch.lerp(grey(images).mean((2, 3), keepdim=True).expand_as(images), images, factor).clamp_(0, 1)


def saturated(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grayscale image."""
    return torch.lerp(grey(images).expand_as(images), images, factor).clamp_(0, 1)


def hue_turned(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hue by a share of the color circle, keeping value and saturation (HSV)."""
    value, channel = images.max(1, keepdim=True)
    chroma = value - images.amin(1, keepdim=True)
    red, green, blue = (images[:, colour : colour + 1] for colour in range(3))
    safe = chroma.clamp(min=1e-12)
    sixths = torch.where(
        channel == 0,
        (green - blue) / safe,
        torch.where(channel == 1, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = (sixths + 6 * turn) % 6
    offsets = (hue + images.new_tensor([5.0, 3.0, 1.0])[:, None, None]) % 6
    return value - chroma * torch.minimum(offsets, 4 - offsets).clamp(0, 1)


def solarized(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert values of at least ``threshold``, out of 255."""
    return torch.where((images * 255 + 0.5).floor() >= threshold, 1 - images, images)


def posterized(images: Tensor, bits: Tensor) -> Tensor:
    """Keep only the highest ``bits`` of each 8-bit value."""
    step = 2 ** (8 - bits)
    return (images * 255 + 0.5).floor().div(step).floor() * step / 255
