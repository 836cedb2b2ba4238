"""Use any shift of Sorites as an augmentation: images moved as an evaluation would move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sorites.core import SettingValue, shift
from sorites.core.errors import SoritesError
from sorites.training.augment.base import Augmentation, as_images


class ShiftAugment(Augmentation):
    """Moves images by any shift of Sorites: ``ShiftAugment("fog")``, ``ShiftAugment("camera",
    options={"grid": "val"})``.

    Each image is moved with ``probability``, to a setting drawn uniformly from ``stops``: severities
    on the dial or settings of the grid, by default the shift's published levels or all its
    settings. What the shift itself draws (a direction, a noise field) is drawn for each image
    afresh. Shifts work on the CPU, one image at a time, on values that are not rounded; a batch
    on another device travels there and back.
    """

    def __init__(
        self,
        name: str,
        size: int | None = None,
        *,
        settings: Sequence[SettingValue] | None = None,
        probability: float = 1.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(size)
        self.shift = shift(name, **(options or {}))
        published: Sequence[SettingValue] = self.shift.levels or self.shift.settings
        self.settings = tuple(published if settings is None else settings)
        if not self.settings:
            raise SoritesError(
                f"ShiftAugment: wanted at least one setting of the shift {name} to move images to, got none"
            )
        if (
            isinstance(probability, bool)
            or not isinstance(probability, int | float)
            or not 0 <= probability <= 1
        ):
            raise SoritesError(f"ShiftAugment: wanted a probability from 0 to 1, got {probability!r}")
        self.probability = float(probability)
        self._name, self._options = name, dict(options or {})

    def augment(self, images_u8: Tensor) -> Tensor:
        number = len(images_u8)
        moved = self.uniform(number) < self.probability
        settings = self.whole(number, below=len(self.settings)).tolist()
        seeds = self.whole(number, below=2**62).tolist()
        out = images_u8.clone()
        places = torch.nonzero(moved)[:, 0]
        if not len(places):
            return out
        images = as_images(images_u8[places.to(images_u8.device)])
        for place, image in zip(places.tolist(), images, strict=True):
            rng = np.random.Generator(np.random.SFC64(seeds[place]))
            image = self.shift(image, self.settings[settings[place]], rng)
            out[place] = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).to(
                images_u8.device, images_u8.dtype
            )
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "shift": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.shift = shift(self._name, **self._options)

    def extra_repr(self) -> str:
        return f"{self.shift.name!r}, stops={len(self.settings)}, probability={self.probability:g}"


class LensAugment(ShiftAugment):
    """Blurs images as real lenses do, a lens and a distance from the middle of its image drawn for each.

    ``lenses`` is a folder of traced lenses; without it the fifteen built-in ones are used.
    """

    def __init__(self, size: int | None = None, *, lenses: str | None = None, **more: Any) -> None:
        options = {**(more.pop("options", None) or {}), **({} if lenses is None else {"lenses": lenses})}
        super().__init__("lens", size, options=options, **more)


class CameraAugment(ShiftAugment):
    """Photographs images on a screen, a setting of the published camera grid drawn for each.

    ``grid`` is val (64 manual settings), test (27) or both; train on val and test on test. The
    automatic shots are drawn too.
    """

    def __init__(self, size: int | None = None, *, grid: str = "val", **more: Any) -> None:
        super().__init__("camera", size, options={**(more.pop("options", None) or {}), "grid": grid}, **more)
