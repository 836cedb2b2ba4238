"""COCO's twelve numbers of a scene by class, and their values on random halves of the samples."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Mapping, Sequence
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
from sorites.metrics.intervals import t_quantile

# Values of each kind in memory at a time; weights may be twice as many.
VALUES_PER_BLOCK = 1 << 23

# Rows x resamples.
Singles = NDArray[np.float32]


class Bench:
    """The weights of resamples and reusable buffers for sums; allocating fresh memory would cost more than
    the sums.
    """

    def __init__(self, counts: NDArray[np.uint8]) -> None:
        self._counts = counts
        self._block: tuple[slice, Singles] | None = None
        self._buffers: dict[str, Singles] = {}

    def __call__(self, name: str, rows: int, columns: int) -> Singles:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < rows * columns:
            buffer = self._buffers[name] = np.empty(rows * columns, np.float32)
        return buffer[: rows * columns].reshape(rows, columns)

    def blocks(self, longest: int) -> list[slice]:
        """Return the resamples in slices for which ``longest`` rows fit into memory."""
        width = max(
            1, min(VALUES_PER_BLOCK // max(longest, 1), 2 * VALUES_PER_BLOCK // max(len(self._counts), 1))
        )
        return [slice(start, start + width) for start in range(0, self._counts.shape[1], width)]

    def weights(self, block: slice) -> Singles:
        """Return how often each sample counts in a block of resamples; the last block is cached."""
        if self._block is None or self._block[0] != block:
            self._block = block, self._counts[:, block].astype(np.float32)
        return self._block[1]


# Precision is read at these recalls, bit-identical to those of pycocotools.
RECALLS: Floats = np.linspace(0.0, 1.0, 101)

SEED = 0


@dataclass(frozen=True)
class Events:
    """The matches of one class by descending confidence, and boxes whose count differs from the list's.

    Attributes:
        at: The number of listed boxes up to and including each event.
        sample: The sample of each event.
        hit: Whether the event is a match.
        more: 1 where a box counts but is not listed, -1 where it is listed but does not count.
    """

    at: Ints
    sample: Ints
    hit: NDArray[np.bool_]
    more: NDArray[np.int8]


def average_precision(events: Events, ground_truths: int) -> float:
    """Return the mean over 101 recalls of the highest precision at that recall or a higher one."""
    if not ground_truths:
        return float("nan")
    hits = np.cumsum(events.hit)
    counted = events.at + np.cumsum(events.more)
    precision = np.maximum.accumulate((hits / (counted + np.spacing(1.0)))[::-1])[::-1]
    indexes = np.searchsorted(hits / ground_truths, RECALLS, side="left")
    reached = indexes < len(hits)
    return float(np.sum(precision[indexes[reached]]) / len(RECALLS))


def half_samples(sizes: Mapping[str | None, int], resamples: int) -> NDArray[np.uint8]:
    """Return which samples are in each random half (samples x resamples, 0 or 1); they are always the same.

    Two resamples in turn are the halves of one split. The samples of each source are split separately, and
    the splits depend on its name and size only, so that further sources do not change the interval of the
    first. A source with one sample is in every half.

    Args:
        sizes: The number of samples of each source, in the order of the samples.
        resamples: The number of halves.
    """
    counts = np.ones((sum(sizes.values()), resamples), np.uint8)
    start = 0
    for source, samples in sizes.items():
        rng = np.random.default_rng([SEED, zlib.crc32((source or "").encode())])
        rows = counts[start : start + samples]
        for k in range(0, resamples if samples > 1 else 0, 2):
            rows[rng.permutation(samples)[: samples // 2], k] = 0
            rows[:, k + 1 : k + 2] = 1 - rows[:, k : k + 1]
        start += samples
    return counts


def bias_rates(samples: int) -> tuple[float, float]:
    """Return the slowest and the fastest rate at which the bias of a number is taken to fall.

    The bias of n images falls like n to the power of minus a rate: 1 where it is smooth, less where precision
    is the maximum over higher recalls and classes have few objects. In simulation the rate is .34 to .47
    between 20 and 100 images; halves of few images show too little of the bias. The slowest rate is a third
    for up to 20 samples and rises to one half: with one half for all, the interval of 20 images of ten
    classes covered 89 %, with .4 for all that of 1,000 such images 99 %.
    """
    return 0.5 - 10 / 3 / max(samples, 20), 1.0


def interval(
    values: NDArray[np.floating], value: float, samples: int, level: float = 0.975
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a number from its values on random halves of the samples.

    The spread of the values around their mean is the standard error of ``value`` (delete-half jackknife,
    Shao and Wu 1989), which is multiplied by the quantile of Student's t. Average precision of few objects
    is biased high, because it takes the highest precision at each recall. The bias is extrapolated from
    that of the halves against the whole; as its rate is not known, the interval contains those for
    both ``bias_rates`` and the value itself.

    Args:
        values: The number on each half; NaN where a half has no objects.
        value: The number on all samples.
        samples: The number of samples.
        level: The probability below the upper bound.

    Returns:
        The bounds; (None, None) without a value, below two samples, or where all objects are in one sample.
    """
    finite = values[np.isfinite(values)].astype(np.float64)
    if samples < 2 or 2 * len(finite) <= len(values) + 1 or not np.isfinite(value):
        return None, None
    gap = float(finite.mean()) - value
    half = t_quantile(samples - 1, level) * float(finite.std())
    centres = [value - gap / (2.0**rate - 1) for rate in bias_rates(samples)]
    return min(min(centres) - half, value), max(max(centres) + half, value)


# Average precision of many resamples at once.

# Values summed at a time, so that they stay in the cache.
VALUES_IN_CACHE = 1 << 17

# Rows are accumulated in groups of this size: first within all groups in parallel, then across groups.
GROUP_SIZE = 8

# Replaces a count of 0 boxes in divisions; the number of matches is 0 there too.
MIN_BOXES = np.float32(0.5)


@dataclass(frozen=True)
class Curve:
    """The events of one variant, and those at which precision can be a local maximum.

    A match raises precision unless a wrong box comes between it and the previous match. Of consecutive
    matches only the last one matters: the recalls reached by the others have its precision.

    Attributes:
        events: The events.
        tops: The indexes of those events.
        places: The index of each top among the cuts of its class.
    """

    events: Events
    tops: Ints
    places: Ints


class Curves:
    """All variants of one class, which share their boxes and ground-truth boxes, prepared for resampling."""

    def __init__(self, listed: Ints, variants: Sequence[Events], ground_truths: Ints) -> None:
        self.ground_truths, tops = ground_truths, [_tops(variant) for variant in variants]
        at = [variant.at[top] for variant, top in zip(variants, tops, strict=True)]
        self.cuts = np.unique(np.concatenate([*at, np.zeros(0, np.int64)]))
        self.listed = listed[: int(self.cuts[-1]) if len(self.cuts) else 0]
        # The boundaries of the boxes between one cut and the next.
        self.rows = np.concatenate([[0], self.cuts])
        each = zip(variants, tops, at, strict=True)
        self.variants = [Curve(events, top, np.searchsorted(self.cuts, where)) for events, top, where in each]

    @property
    def longest(self) -> int:
        """The maximum number of rows in memory at a time."""
        return max(len(self.ground_truths), len(self.cuts))

    def resampled(self, weights: Singles, bench: Bench) -> list[Singles]:
        """Return the average precision of each variant and resample; NaN where a resample has no ground
        truth.
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
        return np.maximum(sums, MIN_BOXES, out=sums)


def _tops(events: Events) -> Ints:
    wrong = np.diff(events.at) + events.more[1:] - events.hit[1:]
    return np.flatnonzero(np.append(wrong != 0, True)) if len(events.at) else events.at


def _area(curve: Curve, before: Singles, total: Singles, weights: Singles, bench: Bench) -> Singles:
    """Return the sum over recalls of the highest precision at that recall or a higher one."""
    width, height = weights.shape[1], -(-len(curve.tops) // GROUP_SIZE) * GROUP_SIZE
    rows = max(GROUP_SIZE, VALUES_IN_CACHE // width // GROUP_SIZE * GROUP_SIZE)
    precision, steps = bench("precision", height, width), bench("steps", height, width)
    _fill_precision(curve, before, np.maximum(total, 1), weights, bench, rows, precision, steps)
    area, maximum = np.zeros((2, width), np.float32)
    for start in reversed(range(0, height, rows)):
        block = precision[start : start + rows]
        _accumulate(np.maximum, _groups(block)[::-1, ::-1], maximum, bench)
        maximum[:] = block[0]
        area += np.einsum("kb,kb->b", steps[start : start + rows], block)
    return area


def _fill_precision(
    curve: Curve,
    before: Singles,
    total: Singles,
    weights: Singles,
    bench: Bench,
    rows: int,
    precision: Singles,
    steps: Singles,
) -> None:
    """Fill in the precision at each top, and how many recalls are first reached there."""
    events, more = curve.events, bool(curve.events.more.any())
    hits, extra, last = np.zeros((3, weights.shape[1]), np.float32)
    last -= 1
    first = 0
    for start in range(0, len(curve.tops), rows):
        tops, places = curve.tops[start : start + rows], curve.places[start : start + rows]
        order = _interleaved(len(tops))[0]
        block, span = slice(start, start + len(order)), slice(first, int(tops[-1]) + 1)
        positions = _interleaved(span.stop - first)[1][tops[order] - first]
        counted = before.take(places[order], axis=0, out=precision[block], mode="clip")
        if more:
            np.floor(counted, out=counted)
            counted += _running_sums(weights, events.sample[span], events.more[span], extra, bench)[positions]
            np.maximum(counted, MIN_BOXES, out=counted)
        weighted_hits = _running_sums(weights, events.sample[span], events.hit[span], hits, bench)
        reached = weighted_hits.take(
            positions, axis=0, out=bench("reached", len(order), weights.shape[1]), mode="clip"
        )
        np.divide(reached, counted, out=counted)
        reached *= np.float32(len(RECALLS) - 1)
        reached /= total
        np.floor(reached, out=reached)
        _differences(_groups(reached), last, _groups(steps[block]))
        last[:] = reached[-1]
        first = span.stop


def _running_sums(
    weights: Singles, samples: Ints, factor: NDArray[np.generic], start: Singles, bench: Bench
) -> Singles:
    """Return running sums of weights in interleaved order, starting from ``start``, which is updated to
    the last sum.
    """
    order, positions = _interleaved(len(samples))
    sums = weights.take(samples[order], axis=0, out=bench("own", len(order), weights.shape[1]), mode="clip")
    if not (factor == 1).all():
        sums *= factor[order].astype(np.float32)[:, None]
    _accumulate(np.add, _groups(sums), start, bench)
    start[:] = sums[positions[-1]]
    return sums


@functools.lru_cache(1024)
def _interleaved(count: int) -> tuple[Ints, Ints]:
    """Return the rows in memory order, and the position of each: the first rows of all groups, then all
    second ones.

    The last row is repeated to fill the last group.
    """
    groups = -(-count // GROUP_SIZE)
    order = np.minimum(np.arange(groups * GROUP_SIZE), count - 1).reshape(groups, GROUP_SIZE).T.ravel()
    return order, np.arange(groups * GROUP_SIZE).reshape(GROUP_SIZE, groups).T.ravel()[:count]


def _groups(rows: Singles) -> Singles:
    """Return interleaved rows as index in the group x group x resamples."""
    return rows.reshape(GROUP_SIZE, len(rows) // GROUP_SIZE, rows.shape[1])


def _accumulate(ufunc: np.ufunc, groups: Singles, start: Singles, bench: Bench) -> None:
    """Accumulate grouped rows in place; ``ufunc.accumulate`` along the first axis is slow."""
    for k in range(1, GROUP_SIZE):
        ufunc(groups[k], groups[k - 1], out=groups[k])
    carry = bench("carry", groups.shape[1], groups.shape[2])
    carry[0] = start
    for k in range(1, len(carry)):
        ufunc(carry[k - 1], groups[-1, k - 1], out=carry[k])
    ufunc(groups, carry, out=groups)


def _differences(groups: Singles, last: Singles, out: Singles) -> None:
    """Write the difference of each row from the previous one; ``last`` precedes the first row."""
    np.subtract(groups[1:], groups[:-1], out=out[1:])
    np.subtract(groups[0, 1:], groups[-1, :-1], out=out[0, 1:])
    np.subtract(groups[0, 0], last, out=out[0, 0])


THRESHOLDS: Floats = np.linspace(0.5, 0.95, 10)
# Area ranges in px squared of all, small, medium and large objects; both bounds are included.
AREAS = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))


@dataclass(frozen=True)
class Number:
    """One of the twelve numbers: average precision, or average recall of the best ``most`` boxes per image
    and class.
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
    """Return ``name`` if it is one of the twelve numbers; otherwise raise an error."""
    if name not in NUMBERS:
        raise UnknownName("number of COCO", name, NUMBERS, f"There are {', '.join(NUMBERS)}.")
    return name


@dataclass(frozen=True)
class ClassMatches:
    """The boxes of one class by descending confidence, and its ground-truth boxes.

    Attributes:
        label: The class.
        sample: The sample of each box.
        area: The area of each box.
        rank: The index of a box among those of its image and class.
        near: The boxes that match a ground-truth box at some threshold.
        state: The outcome of these boxes (boxes x thresholds x areas).
        ground_truth_sample: The sample of each ground-truth box.
        ignored: Whether a ground-truth box is ignored (boxes x areas).
        areas: The area ranges of ``state`` and ``ignored``, as indexes into AREAS.
    """

    label: int
    sample: Ints
    area: Floats
    rank: Ints
    near: Ints
    state: NDArray[np.int8]
    ground_truth_sample: Ints
    ignored: Bools
    areas: Sequence[int]

    def events(self, threshold: int, area: int) -> Events:
        low, high = AREAS[area]
        inside = (self.area >= low) & (self.area <= high)
        state, in_range = self.state[:, threshold, self.areas.index(area)], inside[self.near]
        relevant = (state == TAKEN) | ((state == IGNORED) & in_range)
        hit, in_range, near = (state == TAKEN)[relevant], in_range[relevant], self.near[relevant]
        more = np.where(hit, ~in_range, -1).astype(np.int8)
        return Events(np.cumsum(inside)[near], self.sample[near], hit, more)

    def listed(self, area: int) -> Ints:
        """Return the samples of the boxes inside an area range, which count unless they are matched to an
        ignored box.
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


def by_class(scene: Scene, names: Sequence[str] = tuple(NUMBERS)) -> list[ClassMatches]:
    """Match the boxes of a scene once for the named numbers; return the classes with objects."""
    found, objects = best(scene.found), scene.objects
    areas = sorted({NUMBERS[name].area for name in names})
    ranges = [AREAS[area] for area in areas]
    ignore = np.stack(
        [objects.crowd | (objects.area < low) | (objects.area > high) for low, high in ranges], axis=1
    )
    matched = match(found, objects, THRESHOLDS.tolist(), ignore)
    rank = ranks(group_codes(found, found)[0])
    order = by_confidence(found, found.label)
    position = np.empty(len(found), np.int64)
    position[order] = np.arange(len(found))
    near = np.argsort(position[matched.which], kind="stable")
    sorted_labels, near_places = found.label[order], position[matched.which[near]]
    labels = np.unique(objects.label[~objects.crowd])
    classes = []
    for label in labels:
        start, stop = np.searchsorted(sorted_labels, [label, label + 1])
        near_boxes, boxes = near[slice(*np.searchsorted(near_places, [start, stop]))], order[start:stop]
        own_objects = objects.label == label
        classes.append(
            ClassMatches(
                int(label), scene.sample[found.image[boxes]], found.area[boxes], rank[boxes],
                position[matched.which[near_boxes]] - start,
                matched.state[near_boxes],
                scene.sample[objects.image[own_objects]], ignore[own_objects], areas,
            )
        )  # fmt: skip
    return classes


def value(matches: ClassMatches, number: Number) -> float:
    """Return a number of one class; NaN where it has no ground-truth box in the area range."""
    ground_truths = len(matches.ground_truths(number.area))
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    if not ground_truths:
        return float("nan")
    if number.recall:
        return len(matches.recalled(number)) / ground_truths / len(thresholds)
    return float(
        np.mean([average_precision(matches.events(k, number.area), ground_truths) for k in thresholds])
    )


def values(classes: Sequence[ClassMatches], name: str) -> Floats:
    """Return one of the twelve numbers for each class."""
    return np.array([value(matches, NUMBERS[name]) for matches in classes], np.float64)


def resampled_values(
    classes: Sequence[ClassMatches], name: str, counts: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Return a number of each class and resample (classes x resamples)."""
    results = np.full((len(classes), counts.shape[1]), np.nan, np.float32)
    if results.size:
        (_fill_recalls if NUMBERS[name].recall else _fill_precisions)(classes, NUMBERS[name], counts, results)
    return results


def _fill_precisions(
    classes: Sequence[ClassMatches], number: Number, counts: NDArray[np.uint8], results: NDArray[np.float32]
) -> None:
    thresholds = range(*number.thresholds.indices(len(THRESHOLDS)))
    curves = [
        Curves(
            matches.listed(number.area),
            [matches.events(k, number.area) for k in thresholds],
            matches.ground_truths(number.area),
        )
        for matches in classes
    ]
    bench = Bench(counts)
    for k, matches in enumerate(curves):
        for block in bench.blocks(matches.longest):
            results[k, block] = np.mean(matches.resampled(bench.weights(block), bench), axis=0)


def _fill_recalls(
    classes: Sequence[ClassMatches], number: Number, counts: NDArray[np.uint8], results: NDArray[np.float32]
) -> None:
    thresholds = len(range(*number.thresholds.indices(len(THRESHOLDS))))
    pairs = [(matches.recalled(number), matches.ground_truths(number.area)) for matches in classes]
    hits, ground_truths = (
        np.stack([np.bincount(pair[k], minlength=len(counts)) for pair in pairs]).astype(np.float32)
        for k in (0, 1)
    )
    bench = Bench(counts)
    for block in bench.blocks(len(classes)):
        weights = bench.weights(block)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = ground_truths @ weights
            results[:, block] = np.where(total > 0, hits @ weights / total / thresholds, np.float32(np.nan))


def over_classes(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the mean over the classes that have a value; NaN where none has one."""
    finite = np.isfinite(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: NDArray[np.floating] = np.where(finite, values, 0).sum(axis=0, dtype=np.float64) / finite.sum(
            axis=0
        )
    return mean


def resampled_means(draws: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the mean over classes of each resample, from the values of each class and resample.

    A class without objects in a resample is left out of its mean. Those are the classes with few objects,
    whose values are biased most; so the means are moved to where they would be with all classes.
    """
    means = over_classes(draws)
    finite = np.isfinite(draws)
    if not finite.any() or finite.all():
        return means
    missing = np.isnan(means)
    by_class = [float(row[seen].mean()) for row, seen in zip(draws, finite, strict=True) if seen.any()]
    return means + (float(np.mean(by_class)) - float(means[~missing].mean()))
