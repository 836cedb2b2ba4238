"""Collect images of several tasks into batches of a constant size.

Kernels are chosen by the number of images in a pass. With a constant size, the rows of an image do not depend
on the images beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.evaluation.pipeline.jobs import Made

# The number of a task, and the position of an image in it.
Place = tuple[int, int]


@dataclass
class Batch:
    """Inputs of some models; they may belong to several tasks.

    Attributes:
        models: The names of the models, which have the same input.
        size: The number of inputs if the batch is full.
        inputs: The inputs, which are copies.
        places: Where each belongs.
    """

    models: tuple[str, ...]
    size: int
    inputs: list[NDArray[Any]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.inputs) >= self.size

    @property
    def nbytes(self) -> int:
        """The number of bytes of the inputs."""
        return sum(array.nbytes for array in self.inputs)


class Batcher:
    """Fills batches with images in the order of their arrival.

    Args:
        models: By task, the models that evaluate it, grouped by their input.
        size: The number of images in a batch.
    """

    def __init__(self, models: Sequence[Mapping[int, tuple[str, ...]]], size: int) -> None:
        self._models, self._size = models, size
        self._open: dict[tuple[int, tuple[str, ...]], Batch] = {}

    def add(self, made: Made) -> Iterator[Batch]:
        """Copy the inputs of an image, and yield the batches that are full now."""
        if made.error is not None:
            return
        for (number, names), array in zip(self._models[made.task].items(), made.inputs, strict=True):
            if not isinstance(array, np.ndarray):
                continue
            batch = self._open.setdefault((number, names), Batch(names, self._size))
            batch.inputs.append(np.array(array))
            batch.places.append((made.task, made.index))
            if batch.is_full:
                yield self._open.pop((number, names))

    def rest(self) -> Iterator[Batch]:
        """Yield the batches that are not full."""
        yield from self._open.values()
        self._open = {}
