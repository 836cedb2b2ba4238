"""COCO's twelve numbers of a scene, class by class: as they are, and for each resample of the samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import UnknownName
from sorites.metrics.detection.matching import (
    IGNORED,
    TAKEN,
    Bools,
    best,
    by_confidence,
    group_codes,
    match,
    ranks,
)
from sorites.metrics.detection.scenes import Floats, Ints, Scene

# Resamples in parts that fit into memory: their weights, and room for sums.


# This many numbers of each kind are held at a time, and twice as many weights.
CELLS = 1 << 23

# rows x resamples.
Singles = NDArray[np.float32]


class Bench:
    """The weights of some resamples, and room for sums, used over and over: fresh memory would cost
    more than the sums.
    """

    def __init__(self, counts: NDArray[np.uint8]) -> None:
        self._counts = counts
        self._block: tuple[slice, Singles] | None = None
        self._room: dict[str, Singles] = {}

    def __call__(self, name: str, rows: int, columns: int) -> Singles:
        held = self._room.get(name)
        if held is None or held.size < rows * columns:
            held = self._room[name] = np.empty(rows * columns, np.float32)
        return held[: rows * columns].reshape(rows, columns)

    def blocks(self, longest: int) -> list[slice]:
        """Return the resamples in slices for which ``longest`` rows fit into memory."""
        width = max(1, min(CELLS // max(longest, 1), 2 * CELLS // max(len(self._counts), 1)))
        return [slice(start, start + width) for start in range(0, self._counts.shape[1], width)]

    def weights(self, block: slice) -> Singles:
        """Return how often each sample counts in some resamples; the last are kept."""
        if self._block is None or self._block[0] != block:
            self._block = block, self._counts[:, block].astype(np.float32)
        return self._block[1]


# Average precision at 101 recalls; the draws of a bootstrap over samples, and its interval.


# Precision is read at these recalls, which are those of pycocotools to the last bit.
RECALLS: Floats = np.linspace(0.0, 1.0, 101)

SEED = 0


@dataclass(frozen=True)
class Events:
    """The matches of one class by falling confidence, with boxes that count other than their kind."""

    at: Ints
    """The number of boxes of the list up to each one, itself included."""
    sample: Ints
    hit: NDArray[np.bool_]
    more: NDArray[np.int8]
    """1 where it counts and is not in the list, -1 where it is in the list and does not count."""


def average_precision(events: Events, ground_truths: int) -> float:
    """Return the mean over 101 recalls of the greatest precision at that recall or a greater one."""
    if not ground_truths:
        return float("nan")
    hits = np.cumsum(events.hit)
    seen = events.at + np.cumsum(events.more)
    precision = np.maximum.accumulate((hits / (seen + np.spacing(1.0)))[::-1])[::-1]
    places = np.searchsorted(hits / ground_truths, RECALLS, side="left")
    reached = places < len(hits)
    return float(np.sum(precision[places[reached]]) / len(RECALLS))


def drawn(samples: int, resamples: int) -> NDArray[np.uint8]:
    """Return how often each sample stands in each resample (samples x resamples), always the same draws."""
    rng = np.random.default_rng(SEED)
    counts = np.empty((samples, resamples), np.uint8)
    for k in range(resamples):
        counts[:, k] = np.bincount(rng.integers(0, samples, samples), minlength=samples)
    return counts


def interval(values: NDArray[np.floating], value: float) -> tuple[float | None, float | None]:
    """Return the 95 % percentile interval of resampled values, moved so that their mean stands at the value.

    A resample holds some images twice, which raises the average precision of classes with few
    objects; so resamples lie above the value, and only their spread says how sure it is.
    """
    some = values[np.isfinite(values)].astype(np.float64)
    if not len(some) or not np.isfinite(value):
        return None, None
    low, high = np.percentile(some, [2.5, 97.5]) - some.mean() + value
    return min(float(low), value), max(float(high), value)


# Average precision for many resamples of the images at once.


# This many numbers of each kind are summed at a time, so that they stay in the cache.
NEAR = 1 << 17

# Rows are summed in groups of this many: one row of all groups at a time, then group after group.
GROUP = 8

# Stands for no box at all where one divides by their number: no box is a match there either.
LEAST = np.float32(0.5)


@dataclass(frozen=True)
class Curve:
    """Events of one variant, and those of them at which precision can be greatest.

    A match raises precision unless a box that counts as wrong stands between it and the match
    before it. So of matches that follow each other only the last matters, and the recalls that the
    others reach have its precision.
    """

    events: Events
    tops: Ints
    places: Ints
    """The place of each top among the cuts of its class."""


class Curves:
    """All variants of one class, which share their list of boxes and their true ones, ready to be
    resampled.
    """

    def __init__(self, listed: Ints, variants: Sequence[Events], ground_truths: Ints) -> None:
        self.ground_truths, tops = ground_truths, [_tops(variant) for variant in variants]
        at = [variant.at[top] for variant, top in zip(variants, tops, strict=True)]
        self.cuts = np.unique(np.concatenate([*at, np.zeros(0, np.int64)]))
        self.listed = listed[: int(self.cuts[-1]) if len(self.cuts) else 0]
        self.rows = np.concatenate([[0], self.cuts])
        """The boxes between one cut and the next."""
        each = zip(variants, tops, at, strict=True)
        self.variants = [Curve(events, top, np.searchsorted(self.cuts, where)) for events, top, where in each]

    @property
    def longest(self) -> int:
        """The most rows that are held at a time."""
        return max(len(self.ground_truths), len(self.cuts))

    def resampled(self, weights: Singles, bench: Bench) -> list[Singles]:
        """Return the average precision of each variant for each resample, NaN where a resample
        holds no truth.
        """
        total = weights.take(
            self.ground_truths,
            axis=0,
            out=bench("own", len(self.ground_truths), weights.shape[1]),
            mode="clip",
        ).sum(axis=0)
        before = self._before(weights)
        areas = [_area(curve, before, total, weights, bench) for curve in self.variants]
        return [np.where(total > 0, area / np.float32(len(RECALLS)), np.float32(np.nan)) for area in areas]

    def _before(self, weights: Singles) -> Singles:
        """Return the weights of the boxes up to each cut."""
        from scipy.sparse import csr_array

        shape = len(self.cuts), len(weights)
        shares = csr_array((np.ones(len(self.listed), np.float32), self.listed, self.rows), shape=shape)
        sums: Singles = shares @ weights
        for last, row in itertools.pairwise(sums):
            row += last
        return np.maximum(sums, LEAST, out=sums)


def _tops(events: Events) -> Ints:
    wrong = np.diff(events.at) + events.more[1:] - events.hit[1:]
    return np.flatnonzero(np.append(wrong != 0, True)) if len(events.at) else events.at


def _area(curve: Curve, before: Singles, total: Singles, weights: Singles, bench: Bench) -> Singles:
    """Return the sum over recalls of the greatest precision at that recall or a greater one."""
    wide, height = weights.shape[1], -(-len(curve.tops) // GROUP) * GROUP
    rows = max(GROUP, NEAR // wide // GROUP * GROUP)
    precision, steps = bench("precision", height, wide), bench("steps", height, wide)
    _climb(curve, before, np.maximum(total, 1), weights, bench, rows, precision, steps)
    area, best = np.zeros((2, wide), np.float32)
    for start in reversed(range(0, height, rows)):
        here = precision[start : start + rows]
        _accumulate(np.maximum, _groups(here)[::-1, ::-1], best, bench)
        best[:] = here[0]
        area += np.einsum("kb,kb->b", steps[start : start + rows], here)
    return area


def _climb(
    curve: Curve,
    before: Singles,
    total: Singles,
    weights: Singles,
    bench: Bench,
    rows: int,
    precision: Singles,
    steps: Singles,
) -> None:
    """Fill in the precision at each top, and how many of the recalls are reached there first."""
    events, more = curve.events, bool(curve.events.more.any())
    hits, extra, last = np.zeros((3, weights.shape[1]), np.float32)
    last -= 1
    first = 0
    for start in range(0, len(curve.tops), rows):
        tops, places = curve.tops[start : start + rows], curve.places[start : start + rows]
        order = _woven(len(tops))[0]
        here, span = slice(start, start + len(order)), slice(first, int(tops[-1]) + 1)
        where = _woven(span.stop - first)[1][tops[order] - first]
        seen = before.take(places[order], axis=0, out=precision[here], mode="clip")
        if more:
            np.floor(seen, out=seen)
            seen += _running(weights, events.sample[span], events.more[span], extra, bench)[where]
            np.maximum(seen, LEAST, out=seen)
        own = _running(weights, events.sample[span], events.hit[span], hits, bench)
        reached = own.take(where, axis=0, out=bench("reached", len(order), weights.shape[1]), mode="clip")
        np.divide(reached, seen, out=seen)
        reached *= np.float32(len(RECALLS) - 1)
        reached /= total
        np.floor(reached, out=reached)
        _rises(_groups(reached), last, _groups(steps[here]))
        last[:] = reached[-1]
        first = span.stop


def _running(
    weights: Singles, samples: Ints, factor: NDArray[np.generic], start: Singles, bench: Bench
) -> Singles:
    """Return the running sums of some weights in woven order; they go on from ``start``, which
    becomes the last.
    """
    order, place = _woven(len(samples))
    own = weights.take(samples[order], axis=0, out=bench("own", len(order), weights.shape[1]), mode="clip")
    if not (factor == 1).all():
        own *= factor[order].astype(np.float32)[:, None]
    _accumulate(np.add, _groups(own), start, bench)
    start[:] = own[place[-1]]
    return own


@functools.lru_cache(1024)
def _woven(count: int) -> tuple[Ints, Ints]:
    """Return rows as they stand in memory, and the place of each: the first rows of all groups,
    then all second ones.

    The last row is repeated until the last group is full.
    """
    many = -(-count // GROUP)
    order = np.minimum(np.arange(many * GROUP), count - 1).reshape(many, GROUP).T.ravel()
    return order, np.arange(many * GROUP).reshape(GROUP, many).T.ravel()[:count]


def _groups(rows: Singles) -> Singles:
    """Return woven rows as place in the group x group x resamples."""
    return rows.reshape(GROUP, len(rows) // GROUP, rows.shape[1])


def _accumulate(how: np.ufunc, groups: Singles, start: Singles, bench: Bench) -> None:
    """Accumulate grouped rows in place; NumPy's own way along the first axis is slow."""
    for k in range(1, GROUP):
        how(groups[k], groups[k - 1], out=groups[k])
    carry = bench("carry", groups.shape[1], groups.shape[2])
    carry[0] = start
    for k in range(1, len(carry)):
        how(carry[k - 1], groups[-1, k - 1], out=carry[k])
    how(groups, carry, out=groups)


def _rises(groups: Singles, last: Singles, out: Singles) -> None:
    """Write by how much each row exceeds the one before it, the first of them ``last``."""
    np.subtract(groups[1:], groups[:-1], out=out[1:])
    np.subtract(groups[0, 1:], groups[-1, :-1], out=out[0, 1:])
    np.subtract(groups[0, 0], last, out=out[0, 0])


THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
# All objects, small, medium and large ones, in px squared; both ends belong to a range.
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))


@dataclass(frozen=True)
class Number:
    """One of the twelve: average precision, or average recall of the best ``most`` boxes per
    image and class.
    """

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
    """The place of a box among those of its image and class."""
    near: Ints
    """Boxes that took a true one in some way, and what became of them."""
    state: NDArray[np.int8]
    ground_truth_sample: Ints
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
        """Return the samples of the boxes that count unless they are matched otherwise: those
        inside the range of areas.
        """
        low, high = AREAS[area]
        return self.sample[(self.area >= low) & (self.area <= high)]

    def ground_truths(self, area: int) -> Ints:
        return self.ground_truth_sample[~self.ignored[:, self.areas.index(area)]]

    def recalled(self, number: Number) -> Ints:
        """Return the samples of the matches of a recall, over all its thresholds."""
        early = self.rank[self.near] < number.most
        hits = (self.state[:, number.thresholds, self.areas.index(number.area)] == TAKEN) & early[:, None]
        return np.repeat(self.sample[self.near], hits.sum(axis=1))


def by_class(scene: Scene, names: Sequence[str] = tuple(NUMBERS)) -> list[OneClass]:
    """Match the boxes of a scene once for some of the twelve numbers, and return them by class, for
    the classes with objects.
    """
    found, objects = best(scene.found), scene.objects
    areas = sorted({NUMBERS[name].area for name in names})
    ranges = [AREAS[area] for area in areas]
    ignore = np.stack(
        [objects.crowd | (objects.area < low) | (objects.area > high) for low, high in ranges], axis=1
    )
    matched = match(found, objects, THRESHOLDS.tolist(), ignore)
    rank = ranks(group_codes(found, found)[0])
    order = by_confidence(found, found.label)
    place = np.empty(len(found), np.int64)
    place[order] = np.arange(len(found))
    near = np.argsort(place[matched.which], kind="stable")
    sorted_labels, near_places = found.label[order], place[matched.which[near]]
    labels = np.unique(objects.label[~objects.crowd])
    made = []
    for label in labels:
        start, stop = np.searchsorted(sorted_labels, [label, label + 1])
        here, mine = near[slice(*np.searchsorted(near_places, [start, stop]))], order[start:stop]
        theirs = objects.label == label
        made.append(
            OneClass(
                int(label), scene.sample[found.image[mine]], found.area[mine], rank[mine], place[matched.which[here]] - start,
                matched.state[here], scene.sample[objects.image[theirs]], ignore[theirs], areas,
            )
        )  # fmt: skip
    return made


def value(one: OneClass, number: Number) -> float:
    """Return a number of one class, NaN where it has no ground-truth box in the range of areas."""
    ground_truths = len(one.ground_truths(number.area))
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    if not ground_truths:
        return float("nan")
    if number.recall:
        return len(one.recalled(number)) / ground_truths / len(thresholds)
    return float(np.mean([average_precision(one.events(k, number.area), ground_truths) for k in thresholds]))


def values(classes: Sequence[OneClass], name: str) -> Floats:
    """Return one of the twelve numbers for each class."""
    return np.array([value(one, NUMBERS[name]) for one in classes], np.float64)


def resampled_values(
    classes: Sequence[OneClass], name: str, counts: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Return a number of each class for each resample (classes x resamples)."""
    found = np.full((len(classes), counts.shape[1]), np.nan, np.float32)
    if found.size:
        (_recalls if NUMBERS[name].recall else _precisions)(classes, NUMBERS[name], counts, found)
    return found


def _precisions(
    classes: Sequence[OneClass], number: Number, counts: NDArray[np.uint8], found: NDArray[np.float32]
) -> None:
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    curves = [
        Curves(
            one.listed(number.area),
            [one.events(k, number.area) for k in thresholds],
            one.ground_truths(number.area),
        )
        for one in classes
    ]
    bench = Bench(counts)
    for k, one in enumerate(curves):
        for block in bench.blocks(one.longest):
            found[k, block] = np.mean(one.resampled(bench.weights(block), bench), axis=0)


def _recalls(
    classes: Sequence[OneClass], number: Number, counts: NDArray[np.uint8], found: NDArray[np.float32]
) -> None:
    thresholds = len(range(*number.thresholds.indices(len(THRESHOLDS))))
    both = [(one.recalled(number), one.ground_truths(number.area)) for one in classes]
    hits, ground_truths = (
        np.stack([np.bincount(one[k], minlength=len(counts)) for one in both]).astype(np.float32)
        for k in (0, 1)
    )
    bench = Bench(counts)
    for block in bench.blocks(len(classes)):
        weights = bench.weights(block)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = ground_truths @ weights
            found[:, block] = np.where(total > 0, hits @ weights / total / thresholds, np.float32(np.nan))


def over_classes(found: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the mean over the classes that have a value; NaN where none has one."""
    known = np.isfinite(found)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: NDArray[np.floating] = np.where(known, found, 0).sum(axis=0, dtype=np.float64) / known.sum(
            axis=0
        )
    return mean
