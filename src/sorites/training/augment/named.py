"""Augmentations by name, as recipes and the command line have them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sorites.core import SHIFTS
from sorites.core.errors import SoritesError, UnknownName
from sorites.training.augment.augmix import AugMix
from sorites.training.augment.base import Augmentation, Chain, Flip, NoAugment
from sorites.training.augment.digital import Digital
from sorites.training.augment.optics import OpticsAugment
from sorites.training.augment.shifts import CameraAugment, LensAugment, ShiftAugment

# The options that augmentations have, by name.


Options = Mapping[str, Any]


def option_names(make: Callable[..., Augmentation]) -> set[str]:
    """Return the names of the options that an augmentation has."""
    known = set(inspect.signature(make).parameters) - {"name", "size", "more"}
    return known | (
        {"settings", "probability", "options"}
        if isinstance(make, type) and issubclass(make, ShiftAugment)
        else set()
    )


def refuse_unknown(name: str, make: Callable[..., Augmentation], options: Options) -> None:
    """Raise an error at an option that the augmentation does not have."""
    if not isinstance(options, Mapping):
        raise SoritesError(f"wanted options of {name} as a table of names and values, got {options!r}")
    known = option_names(make)
    for key in options:
        if key not in known:
            has = ", ".join(sorted(known)) or "none"
            raise UnknownName(f"option of the augmentation {name}", str(key), known, f"It has {has}.")


# The cascade of AugMix and OpticsAugment, with weights from a flat Dirichlet distribution.


# The dimensions of the Dirichlet distribution: two weights that are used and two that only make
# those smaller.
PARTS = 4


class Cascade(Augmentation):
    """AugMix first, OpticsAugment on its result, each with a weight of its own from one draw of
    Dirichlet(1, 1, 1, 1).

    The first of the four numbers is AugMix's weight in the place of its Beta draw, the second
    OpticsAugment's. Chained at full strength the two move images too far to be learnt from; here
    both are seldom strong at once, because their weights sum to at most one. The paper calls the
    weights uniform. They are not: each has the distribution Beta(1, 3), with a mean of 1/4 and
    above 1/2 in one image of eight.
    """

    def __init__(
        self,
        size: int | None = None,
        *,
        optics: Mapping[str, Any] | None = None,
        augmix: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(size)
        refuse_unknown("augmix", AugMix, augmix or {})
        refuse_unknown("optics", OpticsAugment, optics or {})
        self.augmix = AugMix(size, **(augmix or {}))
        self.optics = OpticsAugment(size, **(optics or {}))
        self.seed(torch.initial_seed())

    def weights(self, number: int) -> tuple[Tensor, Tensor]:
        """Draw the weights of AugMix and of OpticsAugment for so many images."""
        drawn = self.dirichlet(number, PARTS).float()
        return drawn[:, 0], drawn[:, 1]

    def augment(self, images: Tensor) -> Tensor:
        mixed, blurred = self.weights(len(images))
        return self.optics.mix(self.augmix.mix(images, mixed), blurred)


# The augmentations that have a name of their own; every other shift has its name too.
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


def augmentation(spec: str, size: int, options: Options | None = None) -> Augmentation:
    """Return an augmentation for images of ``size`` px by name: "none", "optics",
    "optics,augmix", "cascade", "fog" ...

    Names with commas between them make a chain: each moves what the one before made, at its own
    full strength and by its own draws. That is not the published combination, which is "cascade".
    ``options`` are those of the one that is named; options under the name of an augmentation, such
    as ``{"optics": {"scaled": 4}}``, go to that one wherever it takes part, and to none where it
    does not.
    """
    names = _names(spec)
    of_parts, others = _parted(names, options or {})
    for name, value in of_parts.items():
        if not isinstance(value, Mapping):
            raise SoritesError(
                f"augmentation {spec}: wanted options of {name} as a table of names and values, got {value!r}"
            )
    if len(names) == 1:
        return _made(names[0], size, of_parts, others)
    if others:
        raise SoritesError(
            f"augmentation {spec}: wanted the name of an augmentation before its options, such as "
            f"{names[0]}.{next(iter(others))}; got {', '.join(map(str, others))}"
        )
    return Chain([_made(name, size, of_parts, {}) for name in names], size)


def of_recipe(names: str, size: int, options: Options) -> Augmentation | None:
    """Return the augmentation that a recipe names, None for none; options that are for another one
    are told by their key.
    """
    if names == "none":
        return None
    parts = _names(names)
    has = [option_names(NAMED.get(name, ShiftAugment)) for name in parts]
    for key, value in _parted(parts, options)[1].items():
        others = [name for name in (*parts, *NAMED) if key in option_names(NAMED.get(name, ShiftAugment))]
        if others and (len(parts) > 1 or key not in has[0]):
            raise SoritesError(
                f"augment.options: the augmentation {names} does not take {key} as it stands. Put it under"
                f" the name of the one that it is for: options = {{ {others[0]} = {{ {key} ="
                f" {json.dumps(value, default=str)} }} }}"
            )
    return augmentation(names, size, options or None)


def _names(spec: str) -> list[str]:
    names = [name.strip() for name in spec.split(",")]
    for name in names:
        if name not in NAMED and name not in SHIFTS.names():
            known = [*NAMED, *SHIFTS.names()]
            raise UnknownName(
                "augmentation",
                name,
                known,
                f"There are {', '.join(NAMED)}, and every shift: sorites list shifts.",
            )
    return names


def _parted(names: Sequence[str], options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options under the name of an augmentation, and the others; some options of
    ``digital`` are named as shifts.
    """
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
