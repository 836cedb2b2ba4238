"""Augmentations by name, as recipes and the command line have them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sorites.core import SHIFTS
from sorites.errors import SoritesError, UnknownName
from sorites.training.augment.augmix import AugMix
from sorites.training.augment.base import Augmentation, Chain, Flip, NoAugment
from sorites.training.augment.cascade import Cascade
from sorites.training.augment.digital import Digital
from sorites.training.augment.optics import OpticsAugment
from sorites.training.augment.shifts import CameraAugment, LensAugment, ShiftAugment

Options = Mapping[str, Any]
NAMED: Mapping[str, Callable[..., Augmentation]] = {
    "none": NoAugment,
    "flip": Flip,
    "optics": OpticsAugment,
    "augmix": AugMix,
    "cascade": Cascade,
    "digital": Digital,
    "lens": LensAugment,
    "camera": CameraAugment,
}
"""The augmentations that have a name of their own; every other shift has its name too."""


def augmentation(spec: str, size: int, options: Options | None = None) -> Augmentation:
    """Return an augmentation for pictures of ``size`` px by name: "none", "optics", "optics,augmix", "cascade", "fog" ...

    Names with commas between them make a chain: each moves what the one before made, at its own full strength and by its own
    draws. That is not the published combination, which is "cascade". ``options`` are those of the one that is named; options
    under the name of an augmentation, such as ``{"optics": {"scaled": 4}}``, go to that one wherever it takes part, and to
    none where it does not.
    """
    names = [name.strip() for name in spec.split(",")]
    given = dict(options or {})
    for name in names:
        if name not in NAMED and name not in SHIFTS.names():
            known = [*NAMED, *SHIFTS.names()]
            raise UnknownName("augmentation", name, known, f"There are {', '.join(NAMED)}, and every shift: sorites list shifts.")
    of_parts = {key: value for key, value in given.items() if key in NAMED or key in names}
    for name, value in of_parts.items():
        if not isinstance(value, Mapping):
            raise SoritesError(f"augmentation {spec}: wanted options of {name} as a table of names and values, got {value!r}")
    others = {key: value for key, value in given.items() if key not in of_parts}
    if len(names) == 1:
        return _made(names[0], size, of_parts, others)
    if others:
        raise SoritesError(
            f"augmentation {spec}: wanted the name of an augmentation before its options, such as "
            f"{names[0]}.{next(iter(others))}; got {', '.join(map(str, others))}"
        )
    return Chain([_made(name, size, of_parts, {}) for name in names], size)


def _made(name: str, size: int, of_parts: Mapping[str, Options], others: Options) -> Augmentation:
    options = {**of_parts.get(name, {}), **others}
    if name == "cascade":
        options = {**{part: of_parts[part] for part in ("optics", "augmix") if part in of_parts}, **options}
    make = NAMED.get(name, ShiftAugment)
    _refuse_unknown(name, make, options)
    if name == "cascade":
        for part in ("optics", "augmix"):
            _refuse_unknown(part, NAMED[part], options.get(part, {}))
    return make(size=size, **options) if name in NAMED else ShiftAugment(name, size, **options)


def _refuse_unknown(name: str, make: Callable[..., Augmentation], options: Options) -> None:
    """Raise an error at an option that the augmentation does not have."""
    known = set(inspect.signature(make).parameters) - {"name", "size", "more"}
    if issubclass(make, ShiftAugment) if isinstance(make, type) else False:
        known |= {"stops", "probability", "options"}
    for key in options:
        if key not in known:
            has = ", ".join(sorted(known)) or "none"
            raise UnknownName(f"option of the augmentation {name}", str(key), known, f"It has {has}.")
