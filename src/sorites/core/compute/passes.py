"""Forward passes in two steps (start one, and wait for its outputs later), and the inputs that they share.

A GPU computes while Python continues. If the next pass is started before the outputs of the last one are
awaited, the GPU never waits for Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from sorites.core.types import Model, Outputs

# Inputs of a pass: single arrays, or one array with all of them.
Inputs = Sequence[NDArray[Any]] | NDArray[Any]
Wait = Callable[[], "Outputs"]
Forward = Callable[[list[NDArray[Any]]], "Outputs"]


class Staged:
    """A forward function that can also be started, and awaited later.

    Args:
        start: Starts a pass and returns a function that waits for its outputs.
    """

    def __init__(self, start: Callable[[Inputs], Wait]) -> None:
        self.start = start

    def __call__(self, images: list[NDArray[Any]]) -> Outputs:
        return self.start(images)()


def start_pass(forward: Forward, images: Inputs) -> Wait:
    """Start a pass; a forward function that cannot be started computes now, on single arrays."""
    if isinstance(forward, Staged):
        return forward.start(images)
    outputs = forward(list(images))
    return lambda: outputs


def then(forward: Forward, after: Callable[[int, Outputs], Outputs]) -> Forward:
    """Return a forward function whose outputs are changed afterwards; it can be started if the first one can.

    Args:
        forward: The forward function.
        after: Called with the number of images and the outputs.
    """

    def start(images: Inputs) -> Wait:
        wait = start_pass(forward, images)
        return lambda: after(len(images), wait())

    return Staged(start) if isinstance(forward, Staged) else lambda images: start(images)()


def unless_empty(forward: Forward, empty: Wait) -> Forward:
    """Return a forward function that is not called without images; its outputs are then ``empty()``."""

    def start(images: Inputs) -> Wait:
        return start_pass(forward, images) if len(images) else empty

    return Staged(start) if isinstance(forward, Staged) else lambda images: start(images)()


def in_constant_passes(forward: Forward, size: int) -> Forward:
    """Return a forward function with passes of exactly ``size`` images.

    A pass is filled up with copies of its last image, whose outputs are dropped.
    """

    def start(images: Inputs) -> Wait:
        parts = [images[begin : begin + size] for begin in range(0, max(len(images), 1), size)]
        # Only the last pass is left running, so that no more than one is added to those of the caller.
        done = [start_pass(forward, part)() for part in parts[:-1]]
        last = start_pass(forward, _filled(parts[-1], size))
        return lambda: _joined([*done, last()[: len(parts[-1])]])

    return Staged(start) if isinstance(forward, Staged) else lambda images: start(images)()


def _joined(outputs: list[Outputs]) -> Outputs:
    return outputs[0] if len(outputs) == 1 else type(outputs[0]).join(outputs)


def _filled(images: Inputs, size: int) -> Inputs:
    missing = size - len(images)
    if not missing:
        return images
    if isinstance(images, np.ndarray):
        return np.concatenate([images, np.repeat(images[-1:], missing, axis=0)])
    return [*images, *list(images[-1:]) * missing]


# Evaluates images, or inputs that were made of them.
Call = Callable[[Inputs], "Outputs"]


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
