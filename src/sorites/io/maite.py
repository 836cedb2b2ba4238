"""Objects of MAITE by structure: user code with MAITE's attributes, without importing the library."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import BadImage, SoritesError
from sorites.core.registry import load_object


@functools.lru_cache(maxsize=16)
def load(kind: str, argument: str, attributes: tuple[str, ...]) -> Any:
    """Return the object of ``module:name`` with all ``attributes``; a factory or class is called without
    arguments.

    Raises:
        SoritesError: The object has another structure.
    """
    found = load_object(kind, argument)
    if isinstance(found, type) or inspect.isfunction(found):
        try:
            found = found()
        except Exception as error:  # user code may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise SoritesError(f"{kind} maite:{argument}: calling it raised {reason}") from error
    missing = [name for name in attributes if not hasattr(found, name)]
    if missing:
        raise SoritesError(
            f"{kind} maite:{argument}: a {type(found).__name__} has no {', '.join(missing)}, which MAITE's"
            f" protocol of a {'dataset' if kind == 'source' else kind} requires"
        )
    return found


def names_of(obj: Any) -> tuple[str, ...] | None:
    """Return the class names by number of an object's metadata, or None if there are none."""
    names = dict(obj.metadata).get("index2label") if isinstance(obj.metadata, Mapping) else None
    if not names:
        return None
    return tuple(str(names.get(i, f"class {i}")) for i in range(max(map(int, names)) + 1))


def image_of(value: Any, called: str) -> NDArray[np.uint8]:
    """Return an image C x H x W as 8-bit RGB: whole numbers as they are, floats of 0..1 times 255.

    Raises:
        BadImage: It has another shape, or other numbers.
    """
    array = np.asarray(value)
    if array.ndim != 3 or array.shape[0] not in (1, 3):
        raise BadImage(f"{called}: expected an image of 1 or 3 channels x H x W, got {array.shape}")
    limit = 255 if array.dtype.kind in "iu" else 1
    if array.size and not (array.min() >= 0 and array.max() <= limit):
        found = f"{array.min():g} to {array.max():g}"
        raise BadImage(f"{called}: expected {array.dtype} in 0..{limit}, got {found}")
    scaled = array if limit == 255 else np.rint(array * 255)
    rows = np.repeat(scaled, 3, axis=0) if array.shape[0] == 1 else scaled
    return np.ascontiguousarray(rows.transpose(1, 2, 0)).astype(np.uint8)
