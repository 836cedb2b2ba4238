"""TIDE error types (Bolya et al., ECCV 2020): why boxes are wrong, and how much AP at IoU .5 each type
costs.

Each wrong box has one type, the first that applies: **Loc** overlaps an object of its class by .1 to
.5; **Cls** overlaps an object of another class by .5; **Dupe** overlaps an object of its class that
another box matched; **Bkg** overlaps nothing by more than .1; **Both** is the rest. **Miss** is an
object that no box matched and that no Loc or Cls error would have found.

The cost of a type is the average precision with its errors fixed minus that without. Of the Loc and Cls
errors of an unmatched object, the one with the highest confidence becomes a match and the others are
removed; boxes of the other types are removed; missed objects are not counted. **FP** ranks all wrong
boxes last; **FN** does not count unmatched objects. The mean is over classes with objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.detection.coco import Bench, Curves, Events, average_precision
from sorites.metrics.detection.matching import TAKEN, Bools, Pairs, best, by_confidence, match, overlaps
from sorites.metrics.detection.mean_ap import (
    BY,
    RESAMPLES,
    Estimate,
    answer,
    answer_columns,
    by_label,
    counts_of,
    mean_over_settings,
)
from sorites.metrics.detection.scenes import COUNTS, Album, Boxes, Floats, Ints, Scene, box_rows

# IoU from which a box matches an object, and up to which it counts as background.
MATCH_IOU, BACKGROUND_IOU = 0.5, 0.1

KINDS = ("Cls", "Loc", "Both", "Dupe", "Bkg", "Miss")
ERRORS = (*KINDS, "FP", "FN")
NONE = -1


@dataclass(frozen=True)
class Counting:
    """One way to count: boxes with their class, confidence and outcome, and the objects that count."""

    found: Ints
    label: Ints
    conf: Floats
    hit: Bools
    counted: Bools


@dataclass(frozen=True)
class TypedBoxes:
    """The best 100 boxes of each image, each with its outcome and error type.

    Attributes:
        found: The boxes.
        objects: The ground-truth boxes without crowds.
        hit: Whether a box is a match.
        left_out: Wrong boxes inside a crowd of their class, which do not count as wrong.
        kind: The index in KINDS of a wrong box's error, NONE for a match.
        mended: The object that a box would match once fixed, else NONE.
        used: Whether an object is matched.
        usable: Whether a Loc or Cls error would match an object once fixed.
    """

    found: Boxes
    objects: Boxes
    hit: Bools
    left_out: Bools
    kind: Ints
    mended: Ints
    used: Bools
    usable: Bools

    def ways(self) -> dict[str, Counting]:
        """Return how boxes are counted as they are (key "") and with each error type fixed."""
        counts = ~self.left_out
        indexes, all_objects = np.arange(len(self.found)), np.ones(len(self.objects), bool)

        def way(
            keep: Bools,
            counted: Bools = all_objects,
            mend: Bools | None = None,
            conf: Floats = self.found.conf,
        ) -> Counting:
            label, hit = self.found.label, self.hit
            if mend is not None:
                keep, hit = keep | mend, hit | mend
                label = np.where(mend, self.objects.label[self.mended] if len(self.objects) else label, label)
            return Counting(indexes[keep], label[keep], conf[keep], hit[keep], counted)

        countings = {"": way(counts)}
        for index, name in enumerate(KINDS):
            of_kind = self.kind == index
            mend = of_kind & (self.mended >= 0) if name in ("Cls", "Loc") else None
            countings[name] = (
                way(counts & ~of_kind, mend=mend) if name != "Miss" else way(counts, self.used | self.usable)
            )
        countings["FP"] = way(counts, conf=self.hit.astype(np.float64))
        countings["FN"] = way(counts, self.used)
        return countings


def typed(scene: Scene) -> TypedBoxes:
    """Match the boxes of a scene and return the error type of each wrong box."""
    found = best(scene.found, per_class=False)
    order = by_confidence(found, found.image, found.label)
    objects, crowds = scene.objects[~scene.objects.crowd], scene.objects[scene.objects.crowd]
    matched = match(found[order], objects, [MATCH_IOU], np.zeros((len(objects), 1), bool))
    hit, used = np.zeros(len(found), bool), np.zeros(len(objects), bool)
    taken = matched.state[:, 0, 0] == TAKEN
    hit[order[matched.which[taken]]] = True
    used[matched.obj[taken, 0, 0]] = True
    left_out = np.zeros(len(found), bool)
    for pairs in overlaps(found, crowds):
        left_out[pairs.found[pairs.iou > MATCH_IOU]] = True
    kind, target = _kinds(found, objects, used)
    kind[hit] = target[hit] = NONE
    target[(target >= 0) & used[target] if len(objects) else target >= 0] = NONE
    usable = np.zeros(len(objects), bool)
    usable[target[target >= 0]] = True
    fixable = np.flatnonzero(target >= 0)
    first = np.unique(target[fixable], return_index=True)[1]
    mended = np.full(len(found), NONE)
    mended[fixable[first]] = target[fixable[first]]
    return TypedBoxes(found, objects, hit, left_out & ~hit, kind, mended, used, usable)


def _kinds(found: Boxes, objects: Boxes, used: Bools) -> tuple[Ints, Ints]:
    """Return the error type that each box has if it is wrong, and the object of a Loc or Cls error."""
    own, other, taken = (np.zeros(len(found)) for _ in range(3))
    own_at, other_at = (np.full(len(found), NONE) for _ in range(2))
    for pairs in overlaps(found, objects, per_class=False):
        same = found.label[pairs.found] == objects.label[pairs.obj]
        _greatest(pairs, same, own, own_at)
        _greatest(pairs, ~same, other, other_at)
        _greatest(pairs, same & used[pairs.obj], taken, None)
    loc, cls = (own >= BACKGROUND_IOU) & (own <= MATCH_IOU), other >= MATCH_IOU
    tests = {
        "Loc": loc,
        "Cls": cls,
        "Dupe": taken >= MATCH_IOU,
        "Bkg": np.maximum(own, other) <= BACKGROUND_IOU,
    }
    kind = np.select(list(tests.values()), [KINDS.index(name) for name in tests], KINDS.index("Both"))
    return kind, np.select([loc, cls], [own_at, other_at], NONE)


def _greatest(pairs: Pairs, mask: Bools, value: Floats, at: Ints | None) -> None:
    """Update each box's greatest overlap among the selected pairs, and the first object that has it."""
    box, overlap, obj = pairs.found[mask], pairs.iou[mask], pairs.obj[mask]
    np.maximum.at(value, box, overlap)
    if at is not None:
        top = overlap == value[box]
        boxes, first = np.unique(box[top], return_index=True)
        at[boxes] = obj[top][first]


def cost(name: str, mended: float, base: float) -> float:
    """Return the AP that an error type costs; the cost of the six box and object types is never negative."""
    return max(mended - base, 0.0) if name in KINDS else mended - base


def errors(
    scene: Scene, counts: NDArray[np.uint8] | None
) -> tuple[Ints, dict[str, Floats], dict[str, NDArray[np.float32]]]:
    """Return the AP by class of each way to count.

    Args:
        scene: The images of a group.
        counts: How often each sample counts (samples x resamples), or None.

    Returns:
        The classes with objects, the AP by class, and the AP by class and resample. AP is 0 for a
            class without counted objects and NaN for a class without objects in a resample.
    """
    boxes = typed(scene)
    labels = np.unique(boxes.objects.label)
    ways = boxes.ways()
    values = {name: np.full(len(labels), np.nan) for name in ways}
    drawn = {
        name: np.full((len(labels), 0 if counts is None else counts.shape[1]), np.nan, np.float32)
        for name in ways
    }
    bench = Bench(np.empty((0, 0), np.uint8) if counts is None else counts)
    for name, way in ways.items():
        order = np.lexsort((way.found, -way.conf))
        for k, label in enumerate(labels):
            mine = order[way.label[order] == label]
            listed = scene.sample[boxes.found.image[way.found[mine]]]
            hits = np.flatnonzero(way.hit[mine])
            events = Events(hits + 1, listed[hits], np.ones(len(hits), bool), np.zeros(len(hits), np.int8))
            ground_truths = scene.sample[boxes.objects.image[(boxes.objects.label == label) & way.counted]]
            values[name][k] = average_precision(events, len(ground_truths))
            curves = Curves(listed, [events], ground_truths)
            for block in bench.blocks(curves.longest):
                drawn[name][k, block] = curves.resampled(bench.weights(block), bench)[0]
    for results in (values, drawn):
        for name in ERRORS:
            results[name][np.isnan(results[name]) & np.isfinite(results[""])] = 0
    return labels, values, drawn


@add_metric
def tide(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """Average precision at IoU .5 that each error type costs a detector (TIDE).

    There is a row for each ``error``: Cls, Loc, Both, Dupe, Bkg, Miss, FP and FN, and AP50 for the
    average precision itself, on the best 100 boxes of each image. Costs are not additive, because each
    error type is fixed alone. AP50 has an interval from halves of the samples, costs have none. ``by`` may
    contain ``class``.
    """
    rows, keys, classed = box_rows(table, by)
    album = Album(rows)
    counts = counts_of(album, resamples)
    estimates = [estimate for scene in album.scenes(keys) for estimate in costs(scene, counts, classed)]
    return _without_intervals_of_costs(
        answer(estimates, album, answer_columns(by, keys, classed), "objects", *COUNTS, then="error")
    )


@add_metric
def mean_tide(table: Table, by: Sequence[str] = ("model",), resamples: int = RESAMPLES) -> pl.DataFrame:
    """Mean of ``tide`` over the settings of each shift, then over shifts, without clean images; AP50 has
    an interval from halves of the samples.

    This is the mean over all settings that benchmark papers report. ``n`` counts samples.
    """
    means, album, columns = mean_over_settings(table, by, resamples, costs, "error")
    return _without_intervals_of_costs(answer(means, album, columns, then="error"))


def costs(scene: Scene, counts: NDArray[np.uint8], classed: bool) -> list[Estimate]:
    """Return AP50 and the cost of each error type of a scene, or of each class."""
    labels, values, drawn = errors(scene, counts if counts.size else None)
    base = by_label(scene, labels.tolist(), values[""], drawn[""], classed, {"error": "AP50"})
    estimates = list(base)
    for name in ERRORS:
        mended = by_label(scene, labels.tolist(), values[name], drawn[name], classed, {"error": name})
        estimates += [_cost(name, estimate, start) for estimate, start in zip(mended, base, strict=True)]
    return estimates


def _without_intervals_of_costs(result: pl.DataFrame) -> pl.DataFrame:
    """Return an answer with intervals of AP50 only.

    Costs are bounded and skewed: in simulated runs of 20 and 100 samples, intervals from halves of the
    samples contained the true cost in 83 and 92 % of 2,000 draws.
    """
    is_ap = pl.col("error") == "AP50"
    return result.with_columns(pl.when(is_ap).then(bound).alias(bound) for bound in ("low", "high"))


def _cost(name: str, mended: Estimate, base: Estimate) -> Estimate:
    draws = mended.draws - base.draws
    value = cost(name, mended.value, base.value)
    return Estimate(
        mended.keys, value, np.maximum(draws, 0) if name in KINDS else draws, mended.samples, mended.more
    )
