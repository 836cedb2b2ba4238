"""Helpers for models with query options (``NAME?key=value``) and models whose classes are set later."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from numpy.typing import NDArray

from sorites.core import Outputs
from sorites.core.errors import SoritesError, UnknownName


def options(model: str, query: str, allowed: Collection[str]) -> dict[str, str]:
    """Parse the options of ``NAME?key=value&key=value``."""
    parsed: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if key not in allowed:
            raise UnknownName(f"option of model {model}", key, allowed, f"It has {', '.join(allowed)}.")
        if not equals or not value:
            raise SoritesError(f"model {model}: expected ?{key}=VALUE, got {part!r}")
        parsed[key] = value
    return parsed


def without_classes(name: str) -> Callable[[list[NDArray[Any]]], Outputs]:
    """Return the forward function of a model without classes: it raises an error."""

    def forward(images: list[NDArray[Any]]) -> Outputs:
        raise SoritesError(f'{name} has no classes; set them with model.for_classes(["cat", "dog"])')

    return forward
