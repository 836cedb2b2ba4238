"""Use any shift as an augmentation, with the same results as in evaluation."""

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
    """Applies a shift: ``ShiftAugment("fog")``, ``ShiftAugment("camera", options={"grid": "val"})``.

    Random draws inside the shift (a direction, a noise field) differ for each image. Shifts run on the CPU,
    one image at a time, on unrounded values; batches on other devices are copied there and back.

    Args:
        name: Name of the shift.
        size: Side of the images in px.
        settings: Severities or grid settings to draw from uniformly; by default the published levels, or all
            settings.
        severity: A severity instead of ``settings``, or the lowest and highest of a range from which one is
            drawn uniformly for each image.
        probability: Probability of changing an image.
        options: Options of the shift.
    """

    in_loader = True

    def __init__(
        self,
        name: str,
        size: int | None = None,
        *,
        settings: Sequence[SettingValue] | None = None,
        severity: float | tuple[float, float] | None = None,
        probability: float = 1.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(size)
        self.shift = shift(name, **(options or {}))
        published: Sequence[SettingValue] = self.shift.levels or self.shift.settings
        self.span = None if severity is None else self._span(severity)
        if self.span is not None:
            if settings is not None:
                raise SoritesError(f"ShiftAugment: expected settings or a severity of {name}, got both")
            settings = self.span
        self.settings = tuple(published if settings is None else settings)
        if not self.settings:
            raise SoritesError(f"ShiftAugment: need at least one setting of the shift {name}, got none")
        if (
            isinstance(probability, bool)
            or not isinstance(probability, int | float)
            or not 0 <= probability <= 1
        ):
            raise SoritesError(f"ShiftAugment: probability must be from 0 to 1, got {probability!r}")
        self.probability = float(probability)
        self._name, self._options = name, dict(options or {})

    def _span(self, severity: float | tuple[float, float]) -> tuple[float, float]:
        """Return the lowest and the highest severity."""
        name, ends = self.shift.name, severity if isinstance(severity, tuple | list) else (severity, severity)
        if not self.shift.levels:
            raise SoritesError(
                f"ShiftAugment: the shift {name} has settings and no severity, got {severity!r}"
            )
        numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends)
        if len(ends) != 2 or not numbers or not 0 <= ends[0] <= ends[1] < np.inf:
            expected = f"a severity in {self.shift.unit} or (lowest, highest), both at least 0"
            raise SoritesError(f"ShiftAugment: expected {expected}, got {severity!r}")
        return float(ends[0]), float(ends[1])

    def _drawn_settings(self, number: int) -> Sequence[SettingValue]:
        """Draw a setting for each image."""
        if self.span is not None:
            drawn: list[float] = self.uniform(number, low=self.span[0], high=self.span[1]).tolist()
            return drawn
        return [self.settings[i] for i in self.whole(number, below=len(self.settings)).tolist()]

    @property
    def moves_objects(self) -> bool:
        return self.shift.moves_objects

    def augment(self, images_u8: Tensor) -> Tensor:
        number = len(images_u8)
        is_shifted = self.uniform(number) < self.probability
        settings = self._drawn_settings(number)
        seeds = self.whole(number, below=2**62).tolist()
        out = images_u8.clone()
        indices = torch.nonzero(is_shifted)[:, 0]
        if not len(indices):
            return out
        images = as_images(images_u8[indices.to(images_u8.device)])
        for index, image in zip(indices.tolist(), images, strict=True):
            rng = np.random.Generator(np.random.SFC64(seeds[index]))
            image = self.shift(image, settings[index], rng)
            out[index] = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).to(
                images_u8.device, images_u8.dtype
            )
        return out

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make this augmentation again."""
        return {
            "name": self._name,
            "severity": self.span,
            "settings": None if self.span is not None else list(self.settings),
            "probability": self.probability,
            "options": dict(self._options),
        }

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "shift": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.shift = shift(self._name, **self._options)

    def extra_repr(self) -> str:
        drawn = f"settings={len(self.settings)}" if self.span is None else f"severity={self.span}"
        return f"{self.shift.name!r}, {drawn}, probability={self.probability:g}"


class LensAugment(ShiftAugment):
    """Blurs images like real lenses do; lens and image height are drawn for each image.

    Args:
        size: Side of the images in px.
        lenses: Folder of traced lenses; by default the fifteen built-in ones.
        **more: Other arguments of ``ShiftAugment``.
    """

    def __init__(self, size: int | None = None, *, lenses: str | None = None, **more: Any) -> None:
        options = {**(more.pop("options", None) or {}), **({} if lenses is None else {"lenses": lenses})}
        super().__init__("lens", size, options=options, **more)


class CameraAugment(ShiftAugment):
    """Simulates photographs of images on a screen, at a random setting of the published camera grid.

    Args:
        size: Side of the images in px.
        grid: ``"val"`` (64 manual settings), ``"test"`` (27) or ``"both"``, each with its auto-exposure
            shots.
        Train on val and test on test.
        **more: Other arguments of ``ShiftAugment``.
    """

    def __init__(self, size: int | None = None, *, grid: str = "val", **more: Any) -> None:
        super().__init__("camera", size, options={**(more.pop("options", None) or {}), "grid": grid}, **more)
