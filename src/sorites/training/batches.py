"""Batches for training: choose, decode and prepare the images of each step, a few steps ahead.

The order of an epoch depends only on the seed and the epoch; random draws for an image depend only on the
seed, the epoch and the image's index. The number of decoding threads and interruptions have no effect.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil

from sorites.core import ImageU8
from sorites.core.rng import digest, rng_for
from sorites.models.preprocess import Input
from sorites.training.images import Images, SampleImages
from sorites.training.loader import (
    PREFETCHED_BATCHES,
    THREADS,
    ImageTask,
    LoaderAugment,
    Pending,
    image_workers,
)
from sorites.training.processes import ALONE, Processes

Indices = NDArray[np.int64]

# Prepared images are cached in memory up to this many bytes; beyond that they are prepared in every epoch.
MAX_CACHE_BYTES = 1 << 29
CROP_TRIES = 10
# Seeds the draws of an image, so the word must never change.
DRAW = "picture"
ASPECT_RATIOS = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Batch:
    """The images of one weight update with their labels.

    Attributes:
        step: The step.
        indices: The indices of the images.
        images: N x H x W x 3 as uint8, or N x V x H x W x 3 as floats in 0..1 if the loader makes V augmented
            views of each.
        labels: Their labels.
    """

    step: int
    indices: Indices
    images: NDArray[Any]
    labels: NDArray[np.int64]


class Prepared:
    """Images resized to a network's input, cached in memory if they are fixed and small enough."""

    def __init__(
        self, images: Images, wants: Input, framed: bool, crop: tuple[float, float] | None = None
    ) -> None:
        self.images, self.wants, self.framed, self.crop = images, wants, framed, crop
        fixed = isinstance(images, SampleImages) and crop is None
        size = (len(images), *wants.size, 3)
        self._cache = np.empty(size, np.uint8) if fixed and math.prod(size) <= MAX_CACHE_BYTES else None
        self._is_cached = np.zeros(len(images), bool)
        self.labels = np.array([images.label(index) for index in range(len(images))], np.int64)

    def __len__(self) -> int:
        return len(self.images)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": None}  # large; other processes decode the images that they need

    @property
    def is_cached(self) -> bool:
        """True if images stay in memory, so that they are decoded in the first epoch only."""
        return self._cache is not None

    def several(
        self, indices: Indices, seed: int, epoch: int, pool: ThreadPoolExecutor | None = None
    ) -> NDArray[np.uint8]:
        """Return several images as N x H x W x 3. Each has its own random generator."""
        if self._cache is None:
            images = (pool.map if pool else map)(
                lambda index: self._prepare(int(index), seed, epoch), indices
            )
            return np.stack(list(images))
        missing = [int(index) for index in indices if not self._is_cached[index]]
        for index, image in zip(
            missing, (pool.map if pool else map)(lambda p: self._prepare(p, seed, 0), missing), strict=True
        ):
            self._cache[index] = image
            self._is_cached[index] = True
        return self._cache[indices]

    def one(self, index: int, seed: int, epoch: int) -> NDArray[np.uint8]:
        """Return one image as H x W x 3; equal to that of ``several``."""
        if self._cache is None or not self._is_cached[index]:
            image = self._prepare(index, seed, 0 if self._cache is not None else epoch)
            if self._cache is None:
                return image
            self._cache[index] = image
            self._is_cached[index] = True
        cached: NDArray[np.uint8] = self._cache[index]
        return cached

    def _prepare(self, index: int, seed: int, epoch: int) -> ImageU8:
        rng = rng_for(seed, f"{epoch}/{index}", DRAW)
        image = self.images.image(index, rng)
        if self.crop is None:
            return self.wants.prepare(image, self.framed)
        return random_crop(image, self.wants.size, self.crop, rng)


def random_crop(
    image: ImageU8, size: tuple[int, int], area: tuple[float, float], rng: np.random.Generator
) -> ImageU8:
    """Return a random crop, resized to ``size``, like torchvision's RandomResizedCrop."""
    height, width = image.shape[:2]
    top, left, tall, wide = crop_window(height, width, area, rng)
    part = Pil.fromarray(image[top : top + tall, left : left + wide])
    return np.asarray(part.resize(size[::-1], Pil.Resampling.BILINEAR))


def crop_window(
    height: int, width: int, area: tuple[float, float], rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """Draw the window of a random crop: top, left, height, width.

    The crop covers a share of the image within ``area`` at an aspect ratio from 3:4 to 4:3. If ten draws do
    not fit, the center is used.
    """
    for _ in range(CROP_TRIES):
        share = rng.uniform(*area) * height * width
        aspect = math.exp(rng.uniform(math.log(ASPECT_RATIOS[0]), math.log(ASPECT_RATIOS[1])))
        wide, tall = round(math.sqrt(share * aspect)), round(math.sqrt(share / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
            break
    else:
        wide = min(width, round(height * ASPECT_RATIOS[1]))
        tall = min(height, round(width / ASPECT_RATIOS[0]))
        top, left = (height - tall) // 2, (width - wide) // 2
    return top, left, tall, wide


class Batches:
    """The batches of all steps of a training.

    Each step gets ``count`` images, of which every process of the training has its share. The remainder at
    the end of an epoch is skipped; it differs between epochs.

    Args:
        prepared: The images.
        count: The number of images of a step.
        seed: The seed of the training.
        flip: Whether to mirror images at random.
        processes: The processes of the training.
    """

    def __init__(
        self, prepared: Prepared, count: int, seed: int, flip: bool, processes: Processes = ALONE
    ) -> None:
        self.prepared, self.seed, self.flip = prepared, seed, flip
        self.count = min(count, len(prepared))
        self.rows = processes.rows(self.count)
        self.per_epoch = len(prepared) // self.count
        self.augment: LoaderAugment | None = None
        self._orders: dict[tuple[str, int], NDArray[Any]] = {}

    @property
    def maker(self) -> Maker:
        """Makes single images."""
        return Maker(self.prepared, self.seed, self.augment)

    def all_indices(self, step: int) -> Indices:
        """Return the indices of a step's images in all processes."""
        epoch, number = divmod(step, self.per_epoch)
        order: Indices = self._draw("order", epoch)
        return order[number * self.count : (number + 1) * self.count]

    def indices(self, step: int) -> Indices:
        """Return the indices of a step's images in this process."""
        return self.all_indices(step)[self.rows]

    def batch(self, step: int, pool: ThreadPoolExecutor | None = None) -> Batch:
        """Make a batch."""
        indices, epoch = self.indices(step), step // self.per_epoch
        if self.augment is not None:
            images: NDArray[Any] = np.stack([self.maker(task) for task in self._tasks(step)])
        else:
            images = self.prepared.several(indices, self.seed, epoch, pool)
            mirrored = self.mirrored(step)
            images[mirrored] = images[mirrored, :, ::-1]
        return Batch(step, indices, images, self.prepared.labels[indices])

    def ids(self, step: int) -> list[str]:
        """Return the ids of a step's images in all processes."""
        return [self.prepared.images.id(int(index)) for index in self.all_indices(step)]

    def _draw(self, what: str, epoch: int) -> NDArray[Any]:
        """Return the image order of an epoch, or a mask of the images to mirror."""
        drawn = self._orders.get((what, epoch))
        if drawn is None:  # other threads draw ahead, so only what was drawn here is returned
            rng = rng_for(self.seed, str(epoch), what)
            count = len(self.prepared)
            drawn = rng.permutation(count) if what == "order" else rng.random(count) < 0.5
            kept = {key: old for key, old in self._orders.items() if key[1] >= epoch - 1}
            self._orders = {**kept, (what, epoch): drawn}
        return drawn

    def mirrored(self, step: int) -> NDArray[np.bool_]:
        """Return which of a step's images in this process are mirrored."""
        indices = self.indices(step)
        if not self.flip:
            return np.zeros(len(indices), bool)
        return np.asarray(self._draw("flip", step // self.per_epoch)[indices], bool)

    def _tasks(self, step: int) -> list[ImageTask]:
        epoch, indices = step // self.per_epoch, self.indices(step)
        return [
            ImageTask(step, self.rows.start + row, int(index), epoch, bool(mirror))
            for row, (index, mirror) in enumerate(zip(indices, self.mirrored(step), strict=True))
        ]

    def between(
        self, first: int, last: int, workers: int = 1, kind: str = THREADS
    ) -> Generator[Batch, None, None]:
        """Yield the batches of steps ``first`` to ``last`` - 1, prefetched by threads or processes.

        Args:
            first: The first step.
            last: The step after the last one.
            workers: The number of threads or processes.
            kind: ``threads`` or ``processes``.
        """
        if self.augment is None and kind == THREADS and (self.prepared.is_cached or workers == 1):
            yield from self._in_one_thread(first, last, workers)
            return
        size = self.prepared.wants.size
        shape: tuple[int, ...] = (*size, 3)
        dtype: Any = np.uint8
        if self.augment is not None:
            shape, dtype = (self.augment.count, *shape), np.float32
        share = self.rows.stop - self.rows.start
        with image_workers(kind, workers, self.maker, share, shape, dtype) as pool:
            waiting: deque[Pending] = deque()
            try:
                for step in range(first, last):
                    while len(waiting) < PREFETCHED_BATCHES and step + len(waiting) < last:
                        waiting.append(pool.begin(self._tasks(step + len(waiting))))
                    indices = self.indices(step)
                    yield Batch(step, indices, waiting.popleft().result(), self.prepared.labels[indices])
            finally:
                for pending in waiting:
                    pending.cancel()

    def _in_one_thread(self, first: int, last: int, workers: int) -> Generator[Batch, None, None]:
        """Yield batches made by one thread, which copies images from memory; others decode missing ones."""
        with ThreadPoolExecutor(1) as maker, ThreadPoolExecutor(workers) as pool:
            helpers = pool if workers > 1 else None
            waiting: deque[Future[Batch]] = deque()
            try:
                for step in range(first, last):
                    while len(waiting) < PREFETCHED_BATCHES and step + len(waiting) < last:
                        waiting.append(maker.submit(self.batch, step + len(waiting), helpers))
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


@dataclass(frozen=True)
class Maker:
    """Makes single images: decodes, resizes, mirrors and augments them."""

    prepared: Prepared
    seed: int
    augment: LoaderAugment | None

    def __call__(self, task: ImageTask) -> NDArray[Any]:
        image = self.prepared.one(task.index, self.seed, task.epoch)
        if task.mirrored:
            image = image[:, ::-1]
        return image if self.augment is None else self.augment(image, task)


def torch_seed(*parts: object) -> int:
    """Return a seed for torch's generators, derived from ``parts``."""
    return int.from_bytes(digest(*parts)[:8], "little") >> 1
