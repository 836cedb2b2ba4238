"""The basic digital set: colours jittered, bright values inverted, few bits kept.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024: the basic
augmentations of its experiments.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sorites.core.errors import SoritesError
from sorites.training.augment.base import Augmentation

# The weights of red, green and blue in grey: ITU-R BT.601.
LUMA = (0.299, 0.587, 0.114)


class Digital(Augmentation):
    """Jitters brightness, contrast, saturation and hue in a random order, and sometimes inverts
    bright values or keeps few bits.

    ``brightness``, ``contrast`` and ``saturation`` are the largest change of a factor around 1,
    ``hue`` that of a turn of the colour circle. Values from ``threshold`` of 255 upwards are
    inverted with probability ``solarize``; ``bits`` per colour are kept with probability
    ``posterize``. The defaults are the published ones. Values are rounded to 8 bits only where bits
    are counted.
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
                raise SoritesError(f"Digital: wanted {name} from 0 to {largest:g}, got {value!r}")
        for name, whole, most in (("threshold", threshold, 256), ("bits", bits, 8)):
            if isinstance(whole, bool) or not isinstance(whole, int) or not 0 <= whole <= most:
                raise SoritesError(
                    f"Digital: wanted a whole number from 0 to {most} as {name}, got {whole!r}"
                )

    def augment(self, images: Tensor) -> Tensor:
        number = len(images)
        largest = torch.tensor([*self.factors, self.hue])
        amounts = (self.uniform(number, 4, low=-1) * largest + torch.tensor([1.0, 1.0, 1.0, 0.0])).to(
            images.dtype
        )
        order = torch.argsort(self.uniform(number, 4), dim=1)
        inverted, coarse = self.uniform(number) < self.solarize, self.uniform(number) < self.posterize
        moved = images.clone()
        for place in range(4):
            for kind, change in enumerate((brightened, contrasted, saturated, hue_turned)):
                _change(moved, order[:, place] == kind, change, amounts[:, kind])
        _change(moved, inverted, solarized, torch.full((number,), self.threshold))
        _change(moved, coarse, posterized, torch.full((number,), self.bits))
        return moved


def _change(
    images: Tensor, chosen: Tensor, change: Callable[[Tensor, Tensor], Tensor], amounts: Tensor
) -> None:
    """Change the chosen images in place, each by its own amount."""
    rows = torch.nonzero(chosen)[:, 0]
    if len(rows):
        places = rows.to(images.device)
        images[places] = change(images[places], amounts[rows].to(images.device)[:, None, None, None])


def grey(images: Tensor) -> Tensor:
    """Return the luma, N x 1 x H x W."""
    return (images * images.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def brightened(images: Tensor, factor: Tensor) -> Tensor:
    """Mix with black: 1 leaves images as they are."""
    return (images * factor).clamp_(0, 1)


def contrasted(images: Tensor, factor: Tensor) -> Tensor:
    """Mix with the mean grey of each image."""
    return torch.lerp(grey(images).mean((2, 3), keepdim=True).expand_as(images), images, factor).clamp_(0, 1)


def saturated(images: Tensor, factor: Tensor) -> Tensor:
    """Mix with the grey image."""
    return torch.lerp(grey(images).expand_as(images), images, factor).clamp_(0, 1)


def hue_turned(images: Tensor, turn: Tensor) -> Tensor:
    """Turn every colour by a share of the colour circle, at its own value and saturation (HSV)."""
    most, which = images.max(1, keepdim=True)
    chroma = most - images.amin(1, keepdim=True)
    red, green, blue = (images[:, colour : colour + 1] for colour in range(3))
    safe = chroma.clamp(min=1e-12)
    sixths = torch.where(
        which == 0,
        (green - blue) / safe,
        torch.where(which == 1, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    turned = (sixths + 6 * turn) % 6
    places = (turned + images.new_tensor([5.0, 3.0, 1.0])[:, None, None]) % 6
    return most - chroma * torch.minimum(places, 4 - places).clamp(0, 1)


def solarized(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the values that are at least ``threshold`` of 255."""
    return torch.where((images * 255 + 0.5).floor() >= threshold, 1 - images, images)


def posterized(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of the 8 of each value."""
    step = 2 ** (8 - bits)
    return (images * 255 + 0.5).floor().div(step).floor() * step / 255
