"""Make the images of a training ahead of the steps that need them: one future per image, in threads or
processes.

Processes write into memory that they share with the training. What an image looks like depends on the seed,
the step and its position in the batch, so neither the number of workers nor their kind changes it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.evaluation.engines.local import end_with_parent
from sorites.io.decode import allow_pixels, max_pixels

if TYPE_CHECKING:
    from sorites.training.augment import Augmentation

# Batches prepared ahead of the step that needs them.
PREFETCHED_BATCHES = 3
THREADS, PROCESSES = "threads", "processes"


@dataclass(frozen=True)
class ImageTask:
    """One image of one step.

    Attributes:
        step: The step.
        place: The position in the batch of all processes of the training.
        index: The index of the image.
        epoch: The epoch.
        mirrored: Whether to mirror it.
    """

    step: int
    place: int
    index: int
    epoch: int
    mirrored: bool


Make = Callable[[ImageTask], NDArray[Any]]


class LoaderAugment:
    """Augments single images where they are decoded, with the numbers that a whole batch would draw.

    Args:
        augmentation: The augmentation.
        seed: The seed of the training.
        total: The number of images of a batch of all processes.
        views: Whether to return the three views of the JSD loss instead of one.
    """

    def __init__(self, augmentation: Augmentation, seed: int, total: int, views: bool) -> None:
        self.augmentation, self.seed, self.total, self.views = augmentation, seed, total, views
        self._copies = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_copies"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._copies = threading.local()

    @property
    def count(self) -> int:
        """The number of views of an image."""
        return 3 if self.views else 1

    def __call__(self, image: NDArray[np.uint8], task: ImageTask) -> NDArray[np.float32]:
        """Return the views of an image, V x H x W x 3, in 0..1."""
        import torch

        own = getattr(self._copies, "own", None)
        if own is None:  # the generator of an augmentation serves one thread
            own = self._copies.own = copy.deepcopy(self.augmentation)
        own.seed(self.seed, "step", task.step)
        batch = torch.from_numpy(np.array(image, order="C"))[None].permute(0, 3, 1, 2).float().div_(255)
        with one_thread():
            views = own.of_rows(batch, task.place, self.total, self.views)
        return np.stack([view[0].permute(1, 2, 0).numpy() for view in views])


class Workers(Protocol):
    """Makes the images of a batch into an array."""

    def begin(self, tasks: Sequence[ImageTask]) -> Pending: ...


@dataclass(frozen=True)
class Pending:
    """The images of a batch that are being made."""

    futures: Sequence[Future[None]]
    images: Callable[[], NDArray[Any]]

    def result(self) -> NDArray[Any]:
        """Wait for all images and return them."""
        try:
            for future in self.futures:
                future.result()
        except BrokenProcessPool as error:
            raise SoritesError(
                "A process that decodes images has died, perhaps for lack of memory. Repeat the command to"
                f" resume, with fewer {option('workers', 'N')} or {option('loader', THREADS)}."
            ) from error
        return self.images()

    def cancel(self) -> None:
        """Drop the images that nobody has begun."""
        for future in self.futures:
            future.cancel()


@dataclass(frozen=True)
class _Threads:
    pool: Executor
    make: Make
    shape: tuple[int, ...]
    dtype: Any

    def begin(self, tasks: Sequence[ImageTask]) -> Pending:
        images = np.empty((len(tasks), *self.shape), self.dtype)
        futures = [self.pool.submit(self._into, images, row, task) for row, task in enumerate(tasks)]
        return Pending(futures, lambda: images)

    def _into(self, images: NDArray[Any], row: int, task: ImageTask) -> None:
        images[row] = self.make(task)


@dataclass
class _Processes:
    """A pool of processes and a ring of batches in shared memory."""

    pool: Executor
    memory: SharedMemory
    shape: tuple[int, ...]
    dtype: Any
    begun: int = 0

    def begin(self, tasks: Sequence[ImageTask]) -> Pending:
        size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        start = self.begun % (PREFETCHED_BATCHES + 1) * len(tasks) * size
        self.begun += 1
        futures = [self.pool.submit(_write, start + row * size, task) for row, task in enumerate(tasks)]
        return Pending(futures, functools.partial(self._copied, start, len(tasks)))

    def _copied(self, start: int, count: int) -> NDArray[Any]:
        """Return a copy of a batch: NumPy does not keep the memory mapped that its arrays refer to."""
        shared: NDArray[Any] = np.ndarray(
            (count, *self.shape), self.dtype, buffer=self.memory.buf, offset=start
        )
        return shared.copy()


@contextlib.contextmanager
def image_workers(
    kind: str, count: int, make: Make, batch: int, shape: tuple[int, ...], dtype: Any
) -> Iterator[Workers]:
    """Start threads or processes that make images.

    Args:
        kind: ``threads`` or ``processes``.
        count: Their number.
        make: Makes one image; for processes it must be possible to pickle it.
        batch: The number of images of a batch.
        shape: The shape of an image.
        dtype: The type of its values.
    """
    if kind == THREADS:
        with ThreadPoolExecutor(count) as pool:
            yield _Threads(pool, make, shape, dtype)
        return
    size = (PREFETCHED_BATCHES + 1) * batch * math.prod(shape) * np.dtype(dtype).itemsize
    memory = SharedMemory(create=True, size=size)
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(
            count, context, initializer=_start, initargs=(make, memory.name, max_pixels())
        ) as pool:
            try:
                yield _Processes(pool, memory, shape, dtype)
            finally:
                pool.shutdown(cancel_futures=True)
    finally:
        memory.close()
        memory.unlink()


def chosen_kind(asked: str | None, device: str, count: int, make: Make) -> str:
    """Return what makes the images: threads, or processes if there is a GPU to keep busy.

    Threads share one interpreter, which is the limit of decoding on machines with many cores. On a CPU the
    training itself is the limit.

    Args:
        asked: ``threads``, ``processes``, or None for the default.
        device: The device of the training.
        count: The number of workers.
        make: Makes one image.

    Raises:
        SoritesError: There is no such kind, or images that exist only in this process were asked of others.
    """
    if asked not in (None, THREADS, PROCESSES):
        raise SoritesError(f"{option('loader', None)}: expected {THREADS} or {PROCESSES}, got {asked!r}")
    if asked == THREADS or (asked is None and (device == "cpu" or count == 1)):
        return THREADS
    try:
        pickle.dumps(make)
    except Exception as error:  # objects of users may raise anything
        if asked is None:
            return THREADS
        raise SoritesError(
            f"{option('loader', PROCESSES)}: the images cannot be made in other processes ({error}); use"
            f" {option('loader', THREADS)}."
        ) from error
    return PROCESSES


@dataclass
class _Process:
    """The state of a worker process."""

    make: Make | None = None
    memory: SharedMemory | None = None


_process = _Process()


def _start(make: Make, name: str, pixels: int) -> None:
    """Begin a worker process: Ctrl-C, which reaches all processes of a terminal, ends it with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    allow_pixels(pixels)
    _process.make = make
    _process.memory = SharedMemory(name)


def _write(start: int, task: ImageTask) -> None:
    assert _process.make is not None
    assert _process.memory is not None
    image = np.ascontiguousarray(_process.make(task))
    place: NDArray[Any] = np.ndarray(image.shape, image.dtype, buffer=_process.memory.buf, offset=start)
    place[:] = image
