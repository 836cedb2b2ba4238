"""Collect images of several tasks into batches of a constant size.

Kernels are chosen by the number of images in a pass. With a constant size, the rows of an image do not depend
on the images beside it. Images are copied once, from the memory of a producer into that of a batch, which is
used again when the batch is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.passes import Inputs
from sorites.core.compute.transfers import host_buffer
from sorites.evaluation.pipeline.jobs import Made

# The number of a task, and the position of an image in it.
Place = tuple[int, int]
# Bytes of a batch above which its inputs are kept as single arrays.
MAX_STACK_BYTES = 1 << 30


class Buffers:
    """Memory for batches: one that is done leaves its memory to the next of the same shape."""

    def __init__(self) -> None:
        # Appending to a list and taking from it are atomic, so that threads need no lock.
        self._free: dict[tuple[Any, ...], list[NDArray[Any]]] = {}

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array with any content."""
        free = self._free.setdefault((shape, dtype), [])
        try:
            return free.pop()
        except IndexError:
            return host_buffer(shape, dtype)

    def give_back(self, array: NDArray[Any]) -> None:
        """Accept an array that ``take`` returned and nobody uses."""
        self._free[(array.shape, array.dtype)].append(array)


@dataclass
class Batch:
    """Inputs of some models; they may belong to several tasks.

    Attributes:
        models: The names of the models, which have the same input.
        size: The number of inputs if the batch is full.
        buffers: Provides its memory.
        places: Where each input belongs.
    """

    models: tuple[str, ...]
    size: int
    buffers: Buffers
    places: list[Place] = field(default_factory=list)
    _stack: NDArray[Any] | None = None
    _single: list[NDArray[Any]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.places) >= self.size

    @property
    def inputs(self) -> Inputs:
        """The inputs, as one array if all have the same shape."""
        return self._single if self._stack is None else self._stack[: len(self.places)]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the inputs."""
        return sum(array.nbytes for array in self.inputs)

    def add(self, array: NDArray[Any], place: Place) -> None:
        """Copy an input."""
        if not self.places and array.nbytes * self.size <= MAX_STACK_BYTES:
            self._stack = self.buffers.take((self.size, *array.shape), array.dtype)
        if self._stack is not None and (array.shape, array.dtype) != (
            self._stack.shape[1:],
            self._stack.dtype,
        ):
            self._single = [np.array(row) for row in self.inputs]
            self.release()
        if self._stack is None:
            self._single.append(np.array(array))
        else:
            self._stack[len(self.places)] = array
        self.places.append(place)

    def release(self) -> None:
        """Leave the memory to other batches."""
        if self._stack is not None:
            self.buffers.give_back(self._stack)
            self._stack = None


class Batcher:
    """Fills batches with images in the order of their arrival.

    Args:
        models: By task, the models that evaluate it, grouped by their input.
        size: The number of images in a batch.
        buffers: Provides memory.
    """

    def __init__(self, models: Sequence[Mapping[int, tuple[str, ...]]], size: int, buffers: Buffers) -> None:
        self._models, self._size, self._buffers = models, size, buffers
        self._open: dict[tuple[int, tuple[str, ...]], Batch] = {}

    def add(self, made: Made) -> Iterator[Batch]:
        """Copy the inputs of an image, and yield the batches that are full now."""
        if made.error is not None:
            return
        for (number, names), array in zip(self._models[made.task].items(), made.inputs, strict=True):
            if not isinstance(array, np.ndarray):
                continue
            batch = self._open.setdefault((number, names), Batch(names, self._size, self._buffers))
            batch.add(array, (made.task, made.index))
            if batch.is_full:
                yield self._open.pop((number, names))

    def rest(self) -> Iterator[Batch]:
        """Yield the batches that are not full."""
        yield from self._open.values()
        self._open = {}
