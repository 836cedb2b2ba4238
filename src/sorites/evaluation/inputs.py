"""Inputs of models: copies that a model may modify, made once for all models that prepare images alike."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs
from sorites.core.compute.passes import Inputs

# Evaluates images, or inputs that were made of them.
Call = Callable[[Inputs], Outputs]


def copied(call: Callable[[list[NDArray[Any]]], Outputs]) -> Call:
    """Return a function that passes copies of the images, which a model may modify."""
    return lambda images: call([np.array(image) for image in images])


class SharedInputs:
    """Makes the inputs of the images of one batch once for all models that prepare images in the same way.

    Args:
        models: The models that will evaluate the batch.
    """

    def __init__(self, models: Iterable[Model]) -> None:
        self._prepares: list[Any] = []
        self._shared: list[Any] = []
        for model in models:
            known = model.prepare in self._prepares and model.prepare not in self._shared
            (self._shared if known else self._prepares).append(model.prepare)
        self._made: dict[tuple[int, int, bool], NDArray[Any]] = {}

    def clear(self) -> None:
        """Forget the inputs of the last batch."""
        self._made.clear()

    def call(self, model: Model, framed: bool) -> Call:
        """Return a function that evaluates images with a model, with copies of the shared inputs."""
        if model.prepare not in self._shared:
            return copied(functools.partial(model, framed=framed))
        place = self._shared.index(model.prepare)

        def prepared(image: NDArray[Any]) -> NDArray[Any]:
            key = place, id(image), framed
            if key not in self._made:
                self._made[key] = model.prepare(np.array(image), framed)
            return np.array(self._made[key])

        return lambda images: model.forward([prepared(image) for image in images])
