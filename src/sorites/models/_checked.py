"""The promise of every model: N pictures give N rows of finite logits, or an error that says what came instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Outputs
from sorites.errors import SoritesError

Forward = Callable[[list[NDArray[Any]]], Outputs]


def rows(name: str, what: str, values: Any, n: int) -> NDArray[np.float32]:
    """Return ``values`` as float32 N x C, from anything array-like (a torch tensor too); raise an error if they are not that."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu()
    try:
        array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SoritesError(f"model {name}: wanted {what} as {n} rows of numbers, got {type(values).__name__}") from error
    if array.ndim != 2 or len(array) != n or array.shape[1] == 0:
        raise SoritesError(f"model {name}: wanted {what} of shape ({n}, C) for {n} pictures, got {array.shape}")
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array).all(axis=1)).sum())
        raise SoritesError(f"model {name}: wanted finite {what}, got NaN or infinity in {bad} of {n} rows")
    return array


def checked(name: str, forward: Callable[[list[NDArray[Any]]], Outputs]) -> Forward:
    """Return the same pass with its outputs checked against the promise; no pictures give empty outputs."""

    def run(pictures: list[NDArray[Any]]) -> Outputs:
        if not pictures:
            return Outputs()
        outputs, n = forward(pictures), len(pictures)
        if outputs.logits is not None:
            outputs.logits = rows(name, "logits", outputs.logits, n)
        if outputs.features is not None:
            outputs.features = rows(name, "features", outputs.features, n)
        return outputs

    return run
