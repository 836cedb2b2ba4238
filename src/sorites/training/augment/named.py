"""Augmentations by name, for recipes and the command line."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sorites.core import SHIFTS
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command
from sorites.training.augment.augmix import AugMix, AugMixReleased
from sorites.training.augment.base import Augmentation, Chain, Flip, NoAugment
from sorites.training.augment.digital import Digital
from sorites.training.augment.optics import OpticsAugment
from sorites.training.augment.shifts import CameraAugment, LensAugment, ShiftAugment

Options = Mapping[str, Any]


def option_names(make: Callable[..., Augmentation]) -> set[str]:
    """Return the option names of an augmentation."""
    names = set(inspect.signature(make).parameters) - {"name", "size", "more"}
    return names | (
        {"settings", "probability", "options"}
        if isinstance(make, type) and issubclass(make, ShiftAugment)
        else set()
    )


def refuse_unknown(name: str, make: Callable[..., Augmentation], options: Options) -> None:
    """Raise an error for options that an augmentation does not have."""
    if not isinstance(options, Mapping):
        raise SoritesError(f"The options of {name} must be a table, got {options!r}")
    available = option_names(make)
    for key in options:
        if key not in available:
            listed = ", ".join(sorted(available)) or "none"
            raise UnknownName(f"option of the augmentation {name}", str(key), available, f"It has {listed}.")


# The cascade of AugMix and OpticsAugment.


# Dimensions of the Dirichlet distribution: two weights are used, two only make those smaller.
DIRICHLET_DIMENSIONS = 4


class Cascade(Augmentation):
    """AugMix followed by OpticsAugment, with blending weights from one draw of Dirichlet(1, 1, 1, 1).

    The first of the four numbers is the weight of AugMix instead of its Beta draw, the second that of
    OpticsAugment. At full strength the two together distort images too much; here both are rarely strong at
    once, since their weights sum to at most one. The paper calls the weights uniform, but each is Beta(1, 3)
    distributed, with mean 1/4, and above 1/2 for one image in eight.
    """

    in_loader = True

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
        """Draw the weights of AugMix and OpticsAugment for ``number`` images."""
        drawn = self.dirichlet(number, DIRICHLET_DIMENSIONS).float()
        return drawn[:, 0], drawn[:, 1]

    def augment(self, images: Tensor) -> Tensor:
        augmix_weights, optics_weights = self.weights(len(images))
        return self.optics.mix(self.augmix.mix(images, augmix_weights), optics_weights)


# Named augmentations. In addition, every shift is available under its own name.
NAMED: Mapping[str, Callable[..., Augmentation]] = {
    "none": NoAugment,
    "flip": Flip,
    "optics": OpticsAugment,
    "augmix": AugMix,
    "augmix_released": AugMixReleased,
    "cascade": Cascade,
    "digital": Digital,
    "lens": LensAugment,
    "camera": CameraAugment,
}


def augmentation(spec: str, size: int, options: Options | None = None) -> Augmentation:
    """Return an augmentation by name, such as ``"none"``, ``"optics"``, ``"cascade"`` or ``"fog"``.

    Comma-separated names make a chain in which each augmentation is applied at full strength with its own
    draws. The published combination of AugMix and OpticsAugment is ``"cascade"``, not a chain.

    Args:
        spec: Names, separated by commas.
        size: Side of the images in px.
        options: Options of a single augmentation, or tables by augmentation name, such as
        ``{"optics": {"scaled": 4}}``; tables of augmentations that are not used are ignored.
    """
    names = _names(spec)
    of_parts, others = _split_options(names, options or {})
    for name, value in of_parts.items():
        if not isinstance(value, Mapping):
            raise SoritesError(f"augmentation {spec}: the options of {name} must be a table, got {value!r}")
    if len(names) == 1:
        return _build(names[0], size, of_parts, others)
    if others:
        raise SoritesError(
            f"augmentation {spec}: put options under the name of an augmentation, such as "
            f"{names[0]}.{next(iter(others))}; got {', '.join(map(str, others))}"
        )
    return Chain([_build(name, size, of_parts, {}) for name in names], size)


def of_recipe(names: str, size: int, options: Options) -> Augmentation | None:
    """Return the augmentation of a recipe (None for "none").

    Misplaced options raise an error that shows the fix.
    """
    if names == "none":
        return None
    parts = _names(names)
    option_sets = [option_names(NAMED.get(name, ShiftAugment)) for name in parts]
    for key, value in _split_options(parts, options)[1].items():
        others = [name for name in (*parts, *NAMED) if key in option_names(NAMED.get(name, ShiftAugment))]
        if others and (len(parts) > 1 or key not in option_sets[0]):
            raise SoritesError(
                f"augment.options: the augmentation {names} has no plain option {key}. Put it under "
                "the augmentation it belongs to: options = "
                f"{{ {others[0]} = {{ {key} = {json.dumps(value, default=str)} }} }}"
            )
    return augmentation(names, size, options or None)


def _names(spec: str) -> list[str]:
    names = [name.strip() for name in spec.split(",")]
    for name in names:
        if name not in NAMED and name not in SHIFTS:
            available = [*NAMED, *SHIFTS.names()]
            raise UnknownName(
                "augmentation",
                name,
                available,
                f"Available: {', '.join(NAMED)}, and every shift ({command('list', 'shifts')}).",
            )
    return names


def _split_options(names: Sequence[str], options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into tables by augmentation name and plain options.

    Some plain options of ``digital`` share their name with a shift.
    """
    shifts = {key for key, value in options.items() if key in SHIFTS and isinstance(value, Mapping)}
    of_parts = {key: value for key, value in options.items() if key in NAMED or key in names or key in shifts}
    return of_parts, {key: value for key, value in options.items() if key not in of_parts}


def _build(name: str, size: int, of_parts: Mapping[str, Options], others: Options) -> Augmentation:
    options = {**of_parts.get(name, {}), **others}
    if name == "cascade":
        options = {**{part: of_parts[part] for part in ("optics", "augmix") if part in of_parts}, **options}
    make = NAMED.get(name, ShiftAugment)
    refuse_unknown(name, make, options)
    return make(size=size, **options) if name in NAMED else ShiftAugment(name, size, **options)
