"""The options that augmentations have, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sorites.errors import SoritesError, UnknownName
from sorites.training.augment.base import Augmentation
from sorites.training.augment.shifts import ShiftAugment

Options = Mapping[str, Any]


def option_names(make: Callable[..., Augmentation]) -> set[str]:
    """Return the names of the options that an augmentation has."""
    known = set(inspect.signature(make).parameters) - {"name", "size", "more"}
    return known | ({"stops", "probability", "options"} if isinstance(make, type) and issubclass(make, ShiftAugment) else set())


def refuse_unknown(name: str, make: Callable[..., Augmentation], options: Options) -> None:
    """Raise an error at an option that the augmentation does not have."""
    if not isinstance(options, Mapping):
        raise SoritesError(f"wanted options of {name} as a table of names and values, got {options!r}")
    known = option_names(make)
    for key in options:
        if key not in known:
            has = ", ".join(sorted(known)) or "none"
            raise UnknownName(f"option of the augmentation {name}", str(key), known, f"It has {has}.")
