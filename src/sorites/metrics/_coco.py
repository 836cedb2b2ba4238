"""COCO's twelve numbers of a scene, class by class: as they are, and for each resample of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.errors import UnknownName
from sorites.metrics._curves import Curves
from sorites.metrics._matching import IGNORED, TAKEN, Bools, best, by_confidence, group_codes, match, ranks
from sorites.metrics._parts import Bench
from sorites.metrics._precision import Events, average_precision
from sorites.metrics._scenes import Floats, Ints, Scene

THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
"""All things, small, medium and large ones, in px squared; both ends belong to a range."""


@dataclass(frozen=True)
class Number:
    """One of the twelve: average precision, or average recall of the best ``most`` boxes per picture and class."""

    recall: bool
    thresholds: slice
    area: int
    most: int = 100


ALL = slice(0, 10)
NUMBERS = {
    "map": Number(False, ALL, 0),
    "map50": Number(False, slice(0, 1), 0),
    "map75": Number(False, slice(5, 6), 0),
    "map_small": Number(False, ALL, 1),
    "map_medium": Number(False, ALL, 2),
    "map_large": Number(False, ALL, 3),
    "ar1": Number(True, ALL, 0, 1),
    "ar10": Number(True, ALL, 0, 10),
    "ar100": Number(True, ALL, 0),
    "ar_small": Number(True, ALL, 1),
    "ar_medium": Number(True, ALL, 2),
    "ar_large": Number(True, ALL, 3),
}


def number_named(name: str) -> str:
    """Return the name of one of the twelve numbers; another is an error."""
    if name not in NUMBERS:
        raise UnknownName("number of COCO", name, NUMBERS, f"There are {', '.join(NUMBERS)}.")
    return name


@dataclass(frozen=True)
class OneClass:
    """The boxes of one class by falling confidence, and its true ones."""

    label: int
    sample: Ints
    area: Floats
    rank: Ints
    """The place of a box among those of its picture and class."""
    near: Ints
    """Boxes that took a true one in some way, and what became of them."""
    state: NDArray[np.int8]
    truth_sample: Ints
    ignored: Bools
    areas: Sequence[int]
    """The ranges of areas that ``state`` and ``ignored`` are about, by their places in AREAS."""

    def events(self, threshold: int, area: int) -> Events:
        low, high = AREAS[area]
        inside = (self.area >= low) & (self.area <= high)
        state, own = self.state[:, threshold, self.areas.index(area)], inside[self.near]
        some = (state == TAKEN) | ((state == IGNORED) & own)
        hit, own, near = (state == TAKEN)[some], own[some], self.near[some]
        more = np.where(hit, ~own, -1).astype(np.int8)
        return Events(np.cumsum(inside)[near], self.sample[near], hit, more)

    def listed(self, area: int) -> Ints:
        """Return the samples of the boxes that count unless they are matched otherwise: those inside the range of areas."""
        low, high = AREAS[area]
        return self.sample[(self.area >= low) & (self.area <= high)]

    def truths(self, area: int) -> Ints:
        return self.truth_sample[~self.ignored[:, self.areas.index(area)]]

    def recalled(self, number: Number) -> Ints:
        """Return the samples of the matches of a recall, over all its thresholds."""
        early = self.rank[self.near] < number.most
        hits = (self.state[:, number.thresholds, self.areas.index(number.area)] == TAKEN) & early[:, None]
        return np.repeat(self.sample[self.near], hits.sum(axis=1))


def by_class(scene: Scene, names: Sequence[str] = tuple(NUMBERS)) -> list[OneClass]:
    """Match the boxes of a scene once for some of the twelve numbers, and return them by class, for the classes with things."""
    found, things = best(scene.found), scene.things
    areas = sorted({NUMBERS[name].area for name in names})
    ranges = [AREAS[area] for area in areas]
    ignore = np.stack([things.crowd | (things.area < low) | (things.area > high) for low, high in ranges], axis=1)
    matched = match(found, things, THRESHOLDS.tolist(), ignore)
    rank = ranks(group_codes(found, found)[0])
    order = by_confidence(found, found.label)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    near = np.argsort(place[matched.which], kind="stable")
    sorted_labels, near_places = found.label[order], place[matched.which[near]]
    labels = np.unique(things.label[~things.crowd])
    made = []
    for label in labels:
        start, stop = np.searchsorted(sorted_labels, [label, label + 1])
        here, mine = near[slice(*np.searchsorted(near_places, [start, stop]))], order[start:stop]
        theirs = things.label == label
        made.append(
            OneClass(
                int(label), scene.sample[found.picture[mine]], found.area[mine], rank[mine], place[matched.which[here]] - start,
                matched.state[here], scene.sample[things.picture[theirs]], ignore[theirs], areas,
            )
        )  # fmt: skip
    return made


def value(one: OneClass, number: Number) -> float:
    """Return a number of one class, NaN where it has no true box in the range of areas."""
    truths = len(one.truths(number.area))
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    if not truths:
        return float("nan")
    if number.recall:
        return len(one.recalled(number)) / truths / len(thresholds)
    return float(np.mean([average_precision(one.events(k, number.area), truths) for k in thresholds]))


def values(classes: Sequence[OneClass], name: str) -> Floats:
    """Return one of the twelve numbers for each class."""
    return np.array([value(one, NUMBERS[name]) for one in classes], np.float64)


def resampled_values(classes: Sequence[OneClass], name: str, counts: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a number of each class for each resample (classes x resamples)."""
    found = np.full((len(classes), counts.shape[1]), np.nan, np.float32)
    if found.size:
        (_recalls if NUMBERS[name].recall else _precisions)(classes, NUMBERS[name], counts, found)
    return found


def _precisions(classes: Sequence[OneClass], number: Number, counts: NDArray[np.uint8], found: NDArray[np.float32]) -> None:
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    curves = [
        Curves(one.listed(number.area), [one.events(k, number.area) for k in thresholds], one.truths(number.area))
        for one in classes
    ]
    bench = Bench(counts)
    for k, one in enumerate(curves):
        for block in bench.blocks(one.longest):
            found[k, block] = np.mean(one.resampled(bench.weights(block), bench), axis=0)


def _recalls(classes: Sequence[OneClass], number: Number, counts: NDArray[np.uint8], found: NDArray[np.float32]) -> None:
    thresholds = len(range(*number.thresholds.indices(len(THRESHOLDS))))
    both = [(one.recalled(number), one.truths(number.area)) for one in classes]
    hits, truths = (np.stack([np.bincount(one[k], minlength=len(counts)) for one in both]).astype(np.float32) for k in (0, 1))
    bench = Bench(counts)
    for block in bench.blocks(len(classes)):
        weights = bench.weights(block)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = truths @ weights
            found[:, block] = np.where(total > 0, hits @ weights / total / thresholds, np.float32(np.nan))


def over_classes(found: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the mean over the classes that have a value; NaN where none has one."""
    known = np.isfinite(found)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: NDArray[np.floating] = np.where(known, found, 0).sum(axis=0, dtype=np.float64) / known.sum(axis=0)
    return mean
