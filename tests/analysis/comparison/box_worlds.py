"""Simulated pairs of detectors whose skills are known: arrays of boxes, without images or a run.

Images have one to three objects of two or more classes and of one or more sizes. Both detectors find an object if a common difficulty and a
deviation of their own are below a threshold, so that most objects are found by both or by neither; false boxes
are partly common too. ``worse`` removes the new detector's box of a share of the objects that the base finds, so
that it gains as often as an equal detector and loses more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sorites.analysis.comparison.quantities import EVERY, Cell, Paired, Quantity, measure
from sorites.analysis.comparison.swaps import Plan, plan_of
from sorites.metrics.detection.coco import half_samples
from sorites.metrics.detection.operating import SIZES
from sorites.metrics.detection.scenes import Boxes, Scene

MAP = Quantity("map")
SIDE = 40.0
APART = 200.0
"""The distance between objects, so that they do not overlap."""
RESAMPLES = 100


@dataclass(frozen=True)
class World:
    """A kind of comparison: images, shifts, how much the detectors differ, and how much worse one is.

    Attributes:
        images: The number of samples, with one image under each shift.
        shifts: The number of shifts.
        own: The standard deviation of each detector's own deviation; that of the common difficulty is 1.
        worse: The share of objects that the base finds under the first shift and the new detector loses.
        classes: The number of classes.
        sides: The sides of objects in px, equally frequent.
    """

    images: int = 100
    shifts: int = 1
    own: float = 0.4
    worse: float = 0.0
    classes: int = 2
    sides: tuple[float, ...] = (SIDE,)

    def pairs(self, rng: np.random.Generator) -> list[Paired]:
        """Return the images of each shift, evaluated by both detectors."""
        image = np.repeat(np.arange(self.images), rng.integers(1, 4, self.images))
        label = rng.integers(0, self.classes, len(image))
        easy = rng.normal(0.8, 0.7, self.images)[image] + rng.normal(0, 0.7, len(image))
        side = self._sides(rng, len(image))
        return [self._shifted(rng, image, label, easy, side, k) for k in range(self.shifts)]

    def _sides(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.choice(self.sides, count) if len(self.sides) > 1 else np.full(count, self.sides[0])

    def _shifted(
        self,
        rng: np.random.Generator,
        image: np.ndarray,
        label: np.ndarray,
        easy: np.ndarray,
        side: np.ndarray,
        shift: int,
    ) -> Paired:
        place, nowhere = _places(image), np.zeros(len(image))
        objects = _boxes(image, label, APART * place, nowhere, side, np.full(len(image), np.nan))
        harder = easy - 0.3 * shift + rng.normal(0, 0.3, len(easy))
        ghosts = rng.integers(0, self.images, rng.poisson(0.5 * self.images))
        ghost_label, ghost_conf = rng.integers(0, self.classes, len(ghosts)), rng.beta(2, 3, len(ghosts))
        ghost_side = self._sides(rng, len(ghosts))
        common = rng.beta(4, 2, len(image))
        scenes = []
        base = np.zeros(len(easy), bool)
        for new in range(2):
            found = harder + rng.normal(0, self.own, len(easy)) > 0
            if new and not shift:
                found &= ~base | (rng.random(len(easy)) >= self.worse)
            base = found
            conf = np.clip(common + rng.normal(0, 0.1 * (self.own > 0), len(easy)), 0.01, 0.99)
            seen = rng.random(len(ghosts)) < (0.7 if self.own else 1.0)
            boxes = _boxes(
                np.concatenate([image[found], ghosts[seen]]),
                np.concatenate([label[found], ghost_label[seen]]),
                np.concatenate([APART * place[found] + 3.0, np.full(seen.sum(), 5 * APART)]),
                np.concatenate([np.zeros(found.sum()), APART * np.arange(len(ghosts))[seen]]),
                np.concatenate([side[found], ghost_side[seen]]),
                np.concatenate([conf[found], ghost_conf[seen]]),
            )
            codes = np.arange(self.images)
            scenes.append(Scene({}, codes, codes, codes, boxes, objects, {}))
        return Paired(scenes[0], scenes[1], self.images)


def _places(image: np.ndarray) -> np.ndarray:
    """Return the number of each object among those of its image."""
    first = np.searchsorted(image, image)
    return np.arange(len(image)) - first


def _boxes(
    image: np.ndarray, label: np.ndarray, x: np.ndarray, y: np.ndarray, side: np.ndarray, conf: np.ndarray
) -> Boxes:
    order = np.argsort(image, kind="stable")
    xyxy = np.stack([x, y, x + side, y + side], axis=1)[order]
    crowd = np.zeros(len(image), bool)
    places = np.arange(len(image))
    return Boxes(image[order], label[order], xyxy, conf[order], side[order] ** 2, crowd, places)


def plan(images: int, swaps: int, seed: int) -> Plan:
    """Return the draws of a simulated test, with a small bootstrap."""
    return plan_of(images, half_samples({"simulated": images}, RESAMPLES), swaps, seed)


def cells(
    world: World, rng: np.random.Generator, swaps: int = 300, seed: int = 0, quantity: Quantity = MAP
) -> list[Cell]:
    """Simulate a comparison and return the cell of each shift."""
    draws = plan(world.images, swaps, seed)
    counts = draws.counts()
    return [measure(paired, quantity, draws, counts)[EVERY] for paired in world.pairs(rng)]


def class_cells(
    world: World, rng: np.random.Generator, swaps: int = 300, seed: int = 0, quantity: Quantity = MAP
) -> list[Cell]:
    """Simulate a comparison and return the cell of each shift and class, as a rule with ``class=*`` has."""
    draws = plan(world.images, swaps, seed)
    counts = draws.counts()
    return [
        cell
        for paired in world.pairs(rng)
        for label, cell in measure(paired, quantity, draws, counts).items()
        if label is not EVERY
    ]


def size_cells(
    world: World, rng: np.random.Generator, swaps: int = 300, seed: int = 0, quantity: Quantity = MAP
) -> list[Cell]:
    """Simulate a comparison and return the cell of each shift and size, as a rule with ``size=*`` has."""
    draws = plan(world.images, swaps, seed)
    counts = draws.counts()
    return [
        measure(paired, replace(quantity, size=size), draws, counts)[EVERY]
        for paired in world.pairs(rng)
        for size in SIZES
    ]
