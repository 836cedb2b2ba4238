"""Augmentations by name, as recipes and the command line have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sorites.core import SHIFTS
from sorites.errors import SoritesError, UnknownName
from sorites.training.augment._options import Options, option_names, refuse_unknown
from sorites.training.augment.augmix import AugMix
from sorites.training.augment.base import Augmentation, Chain, Flip, NoAugment
from sorites.training.augment.cascade import Cascade
from sorites.training.augment.digital import Digital
from sorites.training.augment.optics import OpticsAugment
from sorites.training.augment.shifts import CameraAugment, LensAugment, ShiftAugment

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
    names = _names(spec)
    of_parts, others = _parted(names, options or {})
    for name, value in of_parts.items():
        if not isinstance(value, Mapping):
            raise SoritesError(f"augmentation {spec}: wanted options of {name} as a table of names and values, got {value!r}")
    if len(names) == 1:
        return _made(names[0], size, of_parts, others)
    if others:
        raise SoritesError(
            f"augmentation {spec}: wanted the name of an augmentation before its options, such as "
            f"{names[0]}.{next(iter(others))}; got {', '.join(map(str, others))}"
        )
    return Chain([_made(name, size, of_parts, {}) for name in names], size)


def of_recipe(names: str, size: int, options: Options) -> Augmentation | None:
    """Return the augmentation that a recipe names, None for none; options that are for another one are told by their key."""
    if names == "none":
        return None
    parts = _names(names)
    has = [option_names(NAMED.get(name, ShiftAugment)) for name in parts]
    for key, value in _parted(parts, options)[1].items():
        others = [name for name in (*parts, *NAMED) if key in option_names(NAMED.get(name, ShiftAugment))]
        if others and (len(parts) > 1 or key not in has[0]):
            raise SoritesError(
                f"augment.options: the augmentation {names} does not take {key} as it stands. Put it under the name of the one "
                f"that it is for: options = {{ {others[0]} = {{ {key} = {json.dumps(value, default=str)} }} }}"
            )
    return augmentation(names, size, options or None)


def _names(spec: str) -> list[str]:
    names = [name.strip() for name in spec.split(",")]
    for name in names:
        if name not in NAMED and name not in SHIFTS.names():
            known = [*NAMED, *SHIFTS.names()]
            raise UnknownName("augmentation", name, known, f"There are {', '.join(NAMED)}, and every shift: sorites list shifts.")
    return names


def _parted(names: Sequence[str], options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options under the name of an augmentation, and the others; some options of ``digital`` are named as shifts."""
    shifts = {key for key, value in options.items() if key in SHIFTS.names() and isinstance(value, Mapping)}
    of_parts = {key: value for key, value in options.items() if key in NAMED or key in names or key in shifts}
    return of_parts, {key: value for key, value in options.items() if key not in of_parts}


def _made(name: str, size: int, of_parts: Mapping[str, Options], others: Options) -> Augmentation:
    options = {**of_parts.get(name, {}), **others}
    if name == "cascade":
        options = {**{part: of_parts[part] for part in ("optics", "augmix") if part in of_parts}, **options}
    make = NAMED.get(name, ShiftAugment)
    refuse_unknown(name, make, options)
    return make(size=size, **options) if name in NAMED else ShiftAugment(name, size, **options)
