"""Use a model that follows MAITE's protocol: ``maite:module:object``.

The object, or what it returns when called, is a callable with ``metadata``: it gets images C x H x W and
returns one vector of class scores or one detection (``boxes``, ``scores``, ``labels``) per image. The
protocol does not say which numbers images have: they are 8-bit, or floats in 0..1 with ``?input=float``. The
library is not needed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sorites.core import ImageU8, Model, add_model
from sorites.core.errors import SoritesError
from sorites.io.maite import load, names_of
from sorites.models.options import options
from sorites.models.python import as_model

INPUTS = ("uint8", "float")


@add_model
def maite(argument: str | None) -> Model:
    """Run a classifier or detector that follows MAITE's protocol (maite:module:object[?input=float])."""
    place, _, query = (argument or "").partition("?")
    given = options("maite", query, ("input",)).get("input", INPUTS[0])
    if given not in INPUTS:
        raise SoritesError(f"model maite: input is one of {', '.join(INPUTS)}, got {given}")
    obj = load("model", place, ("__call__", "metadata"))
    predict: Any = functools.partial(_predict, obj, given == "float")
    names = names_of(obj)
    predict.sorites = {} if names is None else {"labels": names}
    model = as_model(f"maite:{argument}", predict)
    return model if model.output == "boxes" or names is None else replace(model, labels=names)


def _predict(model: Any, floats: bool, images: Sequence[ImageU8]) -> Any:
    arrays = [np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images]
    results = list(model([array.astype(np.float32) / 255 for array in arrays] if floats else arrays))
    if results and hasattr(results[0], "boxes"):
        return [_detected(result) for result in results]
    return np.stack([np.asarray(result, np.float32) for result in results])


def _detected(result: Any) -> tuple[Any, Any, Any]:
    """Return boxes, scores and labels; of scores per class, the largest one."""
    scores = np.asarray(result.scores, np.float64)
    highest = scores.max(axis=1) if scores.ndim == 2 and len(scores) else scores.reshape(-1)
    return np.asarray(result.boxes).reshape(-1, 4), highest, np.asarray(result.labels).reshape(-1)
