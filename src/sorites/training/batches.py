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

Indices = NDArray[np.int64]

# Batches prepared ahead of the step that needs them.
PREFETCHED_BATCHES = 3
# Prepared images are cached in memory up to this many bytes; beyond that they are prepared in every epoch.
MAX_CACHE_BYTES = 1 << 29
CROP_TRIES = 10
ASPECT_RATIOS = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Batch:
    """The images of one weight update as uint8, N x H x W x 3, with their labels."""

    step: int
    indices: Indices
    images: NDArray[np.uint8]
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

    def _prepare(self, index: int, seed: int, epoch: int) -> ImageU8:
        # "picture" seeds the draw, so the word must never change.
        rng = rng_for(seed, f"{epoch}/{index}", "picture")
        image = self.images.image(index, rng)
        if self.crop is None:
            return self.wants.prepare(image, self.framed)
        return random_crop(image, self.wants.size, self.crop, rng)


def random_crop(
    image: ImageU8, size: tuple[int, int], area: tuple[float, float], rng: np.random.Generator
) -> ImageU8:
    """Return a random crop, resized to ``size``, like torchvision's RandomResizedCrop.

    The crop covers a share of the image within ``area`` at an aspect ratio from 3:4 to 4:3. If ten draws do
    not fit, the center is used.
    """
    height, width = image.shape[:2]
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
    part = Pil.fromarray(image[top : top + tall, left : left + wide])
    return np.asarray(part.resize(size[::-1], Pil.Resampling.BILINEAR))


class Batches:
    """The batches of all steps of a training.

    Each step gets ``count`` images. The remainder at the end of an epoch is skipped; it differs between
    epochs.
    """

    def __init__(self, prepared: Prepared, count: int, seed: int, flip: bool) -> None:
        self.prepared, self.seed, self.flip = prepared, seed, flip
        self.count = min(count, len(prepared))
        self.per_epoch = len(prepared) // self.count
        self._orders: dict[tuple[str, int], NDArray[Any]] = {}

    def indices(self, step: int) -> Indices:
        """Return the indices of a step's images."""
        epoch, number = divmod(step, self.per_epoch)
        order: Indices = self._draw("order", epoch)
        return order[number * self.count : (number + 1) * self.count]

    def batch(self, step: int, pool: ThreadPoolExecutor | None = None) -> Batch:
        indices, epoch = self.indices(step), step // self.per_epoch
        images = self.prepared.several(indices, self.seed, epoch, pool)
        if self.flip:
            mirrored = self._draw("flip", epoch)[indices]
            images[mirrored] = images[mirrored, :, ::-1]
        return Batch(step, indices, images, self.prepared.labels[indices])

    def ids(self, step: int) -> list[str]:
        """Return the ids of a step's images."""
        return [self.prepared.images.id(int(index)) for index in self.indices(step)]

    def _draw(self, what: str, epoch: int) -> NDArray[Any]:
        """Return the image order of an epoch, or a mask of the images to mirror."""
        if (what, epoch) not in self._orders:
            self._orders = {key: drawn for key, drawn in self._orders.items() if key[1] >= epoch - 1}
            rng = rng_for(self.seed, str(epoch), what)
            count = len(self.prepared)
            self._orders[what, epoch] = rng.permutation(count) if what == "order" else rng.random(count) < 0.5
        return self._orders[what, epoch]

    def between(self, first: int, last: int, workers: int = 1) -> Generator[Batch, None, None]:
        """Yield the batches of steps ``first`` to ``last`` - 1, prefetched by threads."""
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


def torch_seed(*parts: object) -> int:
    """Return a seed for torch's generators, derived from ``parts``."""
    return int.from_bytes(digest(*parts)[:8], "little") >> 1
