"""Shifts as transforms of other libraries' pipelines.

``Coma(severity=(0, 3))`` is the shift ``coma`` at a severity drawn from level 0 to 3 for each image: a
callable that takes a Pillow image, an array or a tensor and returns the same type. Every registered shift has
such a name (``defocus_disk`` is ``DefocusDisk``); ``shift_transform`` makes them by the name of the shift.
``as_torchvision``, ``as_albumentations``, ``as_nrtk`` and ``as_maite`` wrap them, or any augmentation of
``sorites.training``, in the classes of these libraries.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sorites.core.errors import MissingExtra, UnknownName
from sorites.core.plugins import SHIFTS
from sorites.core.types import SettingValue
from sorites.transforms.albumentations import as_albumentations
from sorites.transforms.maite import as_maite
from sorites.transforms.nrtk import as_nrtk
from sorites.transforms.torchvision import as_torchvision

if TYPE_CHECKING:
    from sorites.training.augment import ImageTransform

__all__ = ["as_albumentations", "as_maite", "as_nrtk", "as_torchvision", "shift_transform"]


def shift_transform(
    name: str,
    severity: float | tuple[float, float] | None = None,
    *,
    settings: Sequence[SettingValue] | None = None,
    probability: float = 1.0,
    seed: int = 0,
    **options: Any,
) -> ImageTransform:
    """Return a shift as a transform of one image.

    The draws (severity, direction, noise) depend on ``seed``, the epoch (``set_epoch``), and the pixels of
    the image or, if given, a key: ``transform(image, key=path)``. They do not depend on the worker of a
    loader, on the order or on earlier calls, so a repeated call with the same image gives the same result.

    Args:
        name: Name of the shift.
        severity: The severity in the unit of the shift, or the lowest and highest of a range from which one
            is drawn uniformly for each image; by default a published level is drawn.
        settings: Severities or settings to draw from instead.
        probability: Probability of changing an image.
        seed: The seed.
        **options: Options of the shift.

    Returns:
        The transform.

    Raises:
        UnknownName: There is no such shift or option.
        SoritesError: The severity is not one of this shift.
        MissingExtra: torch is not installed.

    Example:
        >>> import numpy as np
        >>> blur = shift_transform("coma", severity=(0, 3), seed=1)
        >>> blur(np.zeros((32, 32, 3), np.uint8)).shape
        (32, 32, 3)
    """
    try:
        from sorites.training.augment import ImageTransform, ShiftAugment
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("sorites.transforms", "torch") from error
    augmentation = ShiftAugment(
        name, settings=settings, severity=severity, probability=probability, options=options
    )
    return ImageTransform(augmentation, seed)


def class_name(shift: str) -> str:
    """Return the name under which a shift is found here.

    Example:
        >>> class_name("defocus_disk")
        'DefocusDisk'
    """
    return "".join(word[:1].upper() + word[1:] for word in shift.split("_"))


def _by_class_name() -> dict[str, str]:
    return {class_name(name): name for name in SHIFTS.names()}


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not name[:1].isupper():
        raise AttributeError(f"module 'sorites.transforms' has no attribute {name!r}")
    shifts = _by_class_name()
    if name not in shifts:
        error = UnknownName("transform", name, shifts, "There is one for every shift.")
        raise AttributeError(str(error))
    return functools.partial(shift_transform, shifts[name])


def __dir__() -> list[str]:
    return sorted([*__all__, *_by_class_name()])
