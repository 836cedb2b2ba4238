"""Options after a mark, as in a web address, and classes given later: shared by models that are
asked by words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from numpy.typing import NDArray

from sorites.core import Outputs
from sorites.core.errors import SoritesError, UnknownName


def options(model: str, query: str, allowed: Collection[str]) -> dict[str, str]:
    """Return the options of ``NAME?key=value&key=value`` by their keys."""
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in allowed:
            raise UnknownName(f"option of model {model}", key, allowed, f"It has {', '.join(allowed)}.")
        if not equals or not value:
            raise SoritesError(f"model {model}: wanted ?{key}=VALUE, got {part!r}")
        found[key] = value
    return found


def without_classes(name: str) -> Callable[[list[NDArray[Any]]], Outputs]:
    """Return what a model does that was not told its classes: it refuses, and says how to tell it."""

    def forward(images: list[NDArray[Any]]) -> Outputs:
        raise SoritesError(
            f'{name} has no classes of its own: give it some with model.for_classes(["cat", "dog"])'
        )

    return forward
