"""Memory that a producer and its parent share: slots for the arrays of images.

The memory is an unnamed file, which the system removes with the last process that has it open.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.evaluation.pipeline.jobs import Made

# Bytes per slot; larger images are sent through the pipe.
SLOT_BYTES = 8 << 20
# Slots per producer: one is filled while others are copied.
SLOTS = 4
# Images per message at most; the receiver handles messages one at a time.
IMAGES_PER_MESSAGE = 64


class Slots:
    """The slots of one producer.

    Args:
        file: The descriptor of the file, if it exists already; it is closed.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = _new_file() if file is None else file
        self.memory = mmap.mmap(self.file, SLOTS * SLOT_BYTES)

    def close(self) -> None:
        """Release the memory; arrays that are still used keep it alive."""
        os.close(self.file)
        with contextlib.suppress(BufferError):
            self.memory.close()


def _new_file() -> int:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("sorites")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, SLOTS * SLOT_BYTES)
    return file


@dataclass(frozen=True)
class _Stored:
    """An array in a slot."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    def view(self, memory: mmap.mmap | memoryview) -> NDArray[Any]:
        return np.ndarray(self.shape, np.dtype(self.dtype), memory, self.offset)


@dataclass(frozen=True)
class Message:
    """Images of a job; their arrays are in a slot, or inline if they do not fit. Without images, the job is
    done.
    """

    job: int
    slot: int | None = None
    images: tuple[Made, ...] = ()

    def restored(self, slots: Slots) -> Sequence[Made]:
        """Return the images with their arrays as views of the shared memory."""
        return [_restored(made, slots.memory) for made in self.images]


def _restored(made: Made, memory: mmap.mmap) -> Made:
    inputs = (array.view(memory) if isinstance(array, _Stored) else array for array in made.inputs)
    return replace(made, inputs=tuple(inputs))


@dataclass
class Filling:
    """A message that is being filled."""

    job: int
    slot: int | None = None
    used: int = 0
    images: list[Made] = field(default_factory=list)

    def is_full(self, made: Made) -> bool:
        """Return whether an image belongs into the next message."""
        size = _size(made)
        fits = self.used + size <= SLOT_BYTES or size > SLOT_BYTES
        return bool(self.images) and (not fits or len(self.images) >= IMAGES_PER_MESSAGE)

    def add(self, made: Made, memory: mmap.mmap | memoryview) -> None:
        """Copy the arrays of an image into the slot."""
        inputs = made.inputs
        if _size(made) <= SLOT_BYTES:
            inputs = tuple(self._store(array, memory) for array in made.inputs)
        self.images.append(replace(made, inputs=inputs))

    def message(self) -> Message:
        """Return the message."""
        return Message(self.job, self.slot, tuple(self.images))

    def _store(self, array: Any, memory: mmap.mmap | memoryview) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        assert self.slot is not None
        stored = _Stored(self.slot * SLOT_BYTES + self.used, array.shape, array.dtype.str)
        stored.view(memory)[...] = array
        self.used += array.nbytes
        return stored


def _size(made: Made) -> int:
    return sum(array.nbytes for array in made.inputs if isinstance(array, np.ndarray))
