"""Batches of a training: which images each step sees, brought to the network's input, a few steps
ahead of it.

The order of an epoch follows from the seed and the epoch, and what is drawn for an image from the
seed, the epoch and its place. Nothing follows from how many threads decode images, or from where
a stopped training goes on.
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

Places = NDArray[np.int64]

# Batches that are made ahead of the step that needs them.
AHEAD = 3
# The most bytes of prepared images that are kept in memory instead of being prepared again in
# each epoch.
MOST_HELD = 1 << 29
TRIES = 10
RATIOS = (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Batch:
    """The images of one update of the weights: 8 bits, N x H x W x 3, and their labels."""

    step: int
    places: Places
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


class Prepared:
    """Images at the size of a network's input; kept in memory where they never change and are not
    too many.
    """

    def __init__(
        self, images: Images, wants: Input, framed: bool, crop: tuple[float, float] | None = None
    ) -> None:
        self.images, self.wants, self.framed, self.crop = images, wants, framed, crop
        fixed = isinstance(images, SampleImages) and crop is None
        size = (len(images), *wants.size, 3)
        self._held = np.empty(size, np.uint8) if fixed and math.prod(size) <= MOST_HELD else None
        self._known = np.zeros(len(images), bool)
        self.labels = np.array([images.label(place) for place in range(len(images))], np.int64)

    def __len__(self) -> int:
        return len(self.images)

    def several(
        self, places: Places, seed: int, epoch: int, pool: ThreadPoolExecutor | None = None
    ) -> NDArray[np.uint8]:
        """Return some images, each drawn by its own generator."""
        if self._held is None:
            made = (pool.map if pool else map)(lambda place: self._made(int(place), seed, epoch), places)
            return np.stack(list(made))
        missing = [int(place) for place in places if not self._known[place]]
        for place, image in zip(
            missing, (pool.map if pool else map)(lambda p: self._made(p, seed, 0), missing), strict=True
        ):
            self._held[place] = image
            self._known[place] = True
        return self._held[places]

    def _made(self, place: int, seed: int, epoch: int) -> ImageU8:
        rng = rng_for(seed, f"{epoch}/{place}", "picture")
        image = self.images.image(place, rng)
        if self.crop is None:
            return self.wants.prepare(image, self.framed)
        return random_crop(image, self.wants.size, self.crop, rng)


def random_crop(
    image: ImageU8, size: tuple[int, int], area: tuple[float, float], rng: np.random.Generator
) -> ImageU8:
    """Return a random part of an image at ``size``, as torchvision's RandomResizedCrop cuts it: a
    share of the area in ``area``, an aspect of 3:4 to 4:3, and where ten draws do not fit, the
    middle.
    """
    height, width = image.shape[:2]
    for _ in range(TRIES):
        share = rng.uniform(*area) * height * width
        aspect = math.exp(rng.uniform(math.log(RATIOS[0]), math.log(RATIOS[1])))
        wide, tall = round(math.sqrt(share * aspect)), round(math.sqrt(share / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
            break
    else:
        wide = min(width, round(height * RATIOS[1]))
        tall = min(height, round(width / RATIOS[0]))
        top, left = (height - tall) // 2, (width - wide) // 2
    part = Pil.fromarray(image[top : top + tall, left : left + wide])
    return np.asarray(part.resize(size[::-1], Pil.Resampling.BILINEAR))


class Batches:
    """The batches of all steps of a training.

    A step sees ``count`` images; those left over at an epoch's end are skipped, others in each epoch.
    """

    def __init__(self, prepared: Prepared, count: int, seed: int, flip: bool) -> None:
        self.prepared, self.seed, self.flip = prepared, seed, flip
        self.count = min(count, len(prepared))
        self.per_epoch = len(prepared) // self.count
        self._orders: dict[tuple[str, int], NDArray[Any]] = {}

    def places(self, step: int) -> Places:
        """Return the places of the images that a step sees."""
        epoch, number = divmod(step, self.per_epoch)
        order: Places = self._drawn("order", epoch)
        return order[number * self.count : (number + 1) * self.count]

    def batch(self, step: int, pool: ThreadPoolExecutor | None = None) -> Batch:
        """Return the batch of a step."""
        places, epoch = self.places(step), step // self.per_epoch
        images = self.prepared.several(places, self.seed, epoch, pool)
        if self.flip:
            mirrored = self._drawn("flip", epoch)[places]
            images[mirrored] = images[mirrored, :, ::-1]
        return Batch(step, places, images, self.prepared.labels[places])

    def ids(self, step: int) -> list[str]:
        """Return the ids of the images that a step sees."""
        return [self.prepared.images.id(int(place)) for place in self.places(step)]

    def _drawn(self, what: str, epoch: int) -> NDArray[Any]:
        """Return the order of an epoch, or which images are mirrored in it."""
        if (what, epoch) not in self._orders:
            self._orders = {key: held for key, held in self._orders.items() if key[1] >= epoch - 1}
            rng = rng_for(self.seed, str(epoch), what)
            count = len(self.prepared)
            self._orders[what, epoch] = rng.permutation(count) if what == "order" else rng.random(count) < 0.5
        return self._orders[what, epoch]

    def between(self, first: int, last: int, workers: int = 1) -> Generator[Batch, None, None]:
        """Yield the batches of the steps from ``first`` to ``last`` - 1, made ahead by threads."""
        with ThreadPoolExecutor(1) as maker, ThreadPoolExecutor(workers) as pool:
            helpers = pool if workers > 1 else None
            waiting: deque[Future[Batch]] = deque()
            try:
                for step in range(first, last):
                    while len(waiting) < AHEAD and step + len(waiting) < last:
                        waiting.append(maker.submit(self.batch, step + len(waiting), helpers))
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def torch_seed(*parts: object) -> int:
    """Return a seed for torch's generators that follows from the parts alone."""
    return int.from_bytes(digest(*parts)[:8], "little") >> 1
