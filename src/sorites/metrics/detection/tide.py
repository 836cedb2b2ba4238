"""TIDE's errors (Bolya et al., ECCV 2020): why boxes are wrong, and what average precision at IoU
.5 each reason costs.

Each wrong box has one reason, the first that holds: **Loc** overlaps an object of its class by .1 to
.5; **Cls** overlaps one of another class by .5; **Dupe** one of its class that another box took;
**Bkg** overlaps nothing by more than .1; **Both** is the rest. **Miss** is an object that no box took
and that no Loc or Cls error would have found. The cost of a reason is the average precision with it
mended minus that without: of the Loc and Cls errors of a free object the one of the highest
confidence becomes a match and the others go; boxes of the other kinds go; missed objects leave the
count of objects. **FP** puts all wrong boxes last, **FN** takes all objects that no box took out of
the count. The mean is over classes with objects.
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
from sorites.metrics.detection.mean_ap import BY, RESAMPLES, Line, answer, asked, by_label, counts_of
from sorites.metrics.detection.scenes import COUNTS, Album, Boxes, Floats, Ints, Scene, box_rows

# A box finds an object from the first overlap on, and has nothing to do with it up to the second.
NEAR, FAR = 0.5, 0.1

KINDS = ("Cls", "Loc", "Both", "Dupe", "Bkg", "Miss")
ERRORS = (*KINDS, "FP", "FN")
NONE = -1


@dataclass(frozen=True)
class Way:
    """One way to count: boxes with their class, confidence and verdict, and the objects that count."""

    found: Ints
    label: Ints
    conf: Floats
    hit: Bools
    counted: Bools


@dataclass(frozen=True)
class Typed:
    """The best hundred boxes of each image, each with its verdict and its error."""

    found: Boxes
    objects: Boxes
    hit: Bools
    left_out: Bools
    """Wrong boxes inside a crowd of their class: they do not count as wrong."""
    kind: Ints
    """The place of a wrong box's error in KINDS, NONE for a match."""
    mended: Ints
    """The object that mending the box would find, NONE where it would find none."""
    used: Bools
    usable: Bools

    def ways(self) -> dict[str, Way]:
        """Return how the boxes count as they are (under "") and with each error mended."""
        counts = ~self.left_out
        here, every = np.arange(len(self.found)), np.ones(len(self.objects), bool)

        def way(
            keep: Bools, counted: Bools = every, mend: Bools | None = None, conf: Floats = self.found.conf
        ) -> Way:
            label, hit = self.found.label, self.hit
            if mend is not None:
                keep, hit = keep | mend, hit | mend
                label = np.where(mend, self.objects.label[self.mended] if len(self.objects) else label, label)
            return Way(here[keep], label[keep], conf[keep], hit[keep], counted)

        made = {"": way(counts)}
        for place, name in enumerate(KINDS):
            of_kind = self.kind == place
            mend = of_kind & (self.mended >= 0) if name in ("Cls", "Loc") else None
            made[name] = (
                way(counts & ~of_kind, mend=mend) if name != "Miss" else way(counts, self.used | self.usable)
            )
        made["FP"] = way(counts, conf=self.hit.astype(np.float64))
        made["FN"] = way(counts, self.used)
        return made


def typed(scene: Scene) -> Typed:
    """Match the boxes of a scene, and say of each wrong one why it is wrong."""
    found = best(scene.found, per_class=False)
    order = by_confidence(found, found.image, found.label)
    objects, crowds = scene.objects[~scene.objects.crowd], scene.objects[scene.objects.crowd]
    matched = match(found[order], objects, [NEAR], np.zeros((len(objects), 1), bool))
    hit, used = np.zeros(len(found), bool), np.zeros(len(objects), bool)
    taken = matched.state[:, 0, 0] == TAKEN
    hit[order[matched.which[taken]]] = True
    used[matched.obj[taken, 0, 0]] = True
    left_out = np.zeros(len(found), bool)
    for pairs in overlaps(found, crowds):
        left_out[pairs.found[pairs.iou > NEAR]] = True
    kind, target = _kinds(found, objects, used)
    kind[hit] = target[hit] = NONE
    target[(target >= 0) & used[target] if len(objects) else target >= 0] = NONE
    usable = np.zeros(len(objects), bool)
    usable[target[target >= 0]] = True
    wanting = np.flatnonzero(target >= 0)
    first = np.unique(target[wanting], return_index=True)[1]
    mended = np.full(len(found), NONE)
    mended[wanting[first]] = target[wanting[first]]
    return Typed(found, objects, hit, left_out & ~hit, kind, mended, used, usable)


def _kinds(found: Boxes, objects: Boxes, used: Bools) -> tuple[Ints, Ints]:
    """Return the error that each box would have if it were wrong, and the object that a Loc or Cls
    error is about.
    """
    own, other, taken = (np.zeros(len(found)) for _ in range(3))
    own_at, other_at = (np.full(len(found), NONE) for _ in range(2))
    for pairs in overlaps(found, objects, per_class=False):
        same = found.label[pairs.found] == objects.label[pairs.obj]
        _greatest(pairs, same, own, own_at)
        _greatest(pairs, ~same, other, other_at)
        _greatest(pairs, same & used[pairs.obj], taken, None)
    loc, cls = (own >= FAR) & (own <= NEAR), other >= NEAR
    tests = {"Loc": loc, "Cls": cls, "Dupe": taken >= NEAR, "Bkg": np.maximum(own, other) <= FAR}
    kind = np.select(list(tests.values()), [KINDS.index(name) for name in tests], KINDS.index("Both"))
    return kind, np.select([loc, cls], [own_at, other_at], NONE)


def _greatest(pairs: Pairs, some: Bools, value: Floats, at: Ints | None) -> None:
    """Keep each box's greatest overlap among some pairs, and the first object that has it."""
    who, overlap, obj = pairs.found[some], pairs.iou[some], pairs.obj[some]
    np.maximum.at(value, who, overlap)
    if at is not None:
        top = overlap == value[who]
        boxes, first = np.unique(who[top], return_index=True)
        at[boxes] = obj[top][first]


def cost(name: str, mended: float, base: float) -> float:
    """Return what an error costs; mending one of the six kinds never costs anything."""
    return max(mended - base, 0.0) if name in KINDS else mended - base


def errors(
    scene: Scene, counts: NDArray[np.uint8] | None
) -> tuple[Ints, dict[str, Floats], dict[str, NDArray[np.float32]]]:
    """Return the classes with objects, the average precision of each way by class, and the same for
    each resample.

    A class all of whose objects leave the count has 0, and one without objects in a resample NaN.
    """
    seen = typed(scene)
    labels = np.unique(seen.objects.label)
    ways = seen.ways()
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
            listed = scene.sample[seen.found.image[way.found[mine]]]
            hits = np.flatnonzero(way.hit[mine])
            events = Events(hits + 1, listed[hits], np.ones(len(hits), bool), np.zeros(len(hits), np.int8))
            ground_truths = scene.sample[seen.objects.image[(seen.objects.label == label) & way.counted]]
            values[name][k] = average_precision(events, len(ground_truths))
            one = Curves(listed, [events], ground_truths)
            for block in bench.blocks(one.longest):
                drawn[name][k, block] = one.resampled(bench.weights(block), bench)[0]
    for found in (values, drawn):
        for name in ERRORS:
            found[name][np.isnan(found[name]) & np.isfinite(found[""])] = 0
    return labels, values, drawn


# Measure what the errors of detectors cost, by TIDE's kinds.


@add_metric
def tide(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """Average precision at IoU .5 that each kind of error costs a detector (TIDE); bootstrap
    interval over samples.

    There is a row for each ``error``: Cls, Loc, Both, Dupe, Bkg, Miss, FP and FN, and AP50 for the
    average precision itself, on the best 100 boxes of each image. Costs do not add up: each error
    is mended alone. ``class`` may stand in ``by``.
    """
    rows, keys, classed = box_rows(table, by)
    album = Album(rows)
    counts = counts_of(album, resamples)
    lines: list[Line] = []
    for scene in album.scenes(keys):
        labels, values, drawn = errors(scene, counts if counts.size else None)
        base = by_label(scene, labels.tolist(), values[""], drawn[""], classed, {"error": "AP50"})
        lines += base
        for name in ERRORS:
            mended = by_label(scene, labels.tolist(), values[name], drawn[name], classed, {"error": name})
            lines += [_cost(name, one, start) for one, start in zip(mended, base, strict=True)]
    found = answer(lines, album, asked(by, keys, classed), "objects", *COUNTS, then="error", least=-1.0)
    never_negative = pl.col("error").is_in(list(KINDS))
    return found.with_columns(
        low=pl.when(never_negative).then(pl.col("low").clip(lower_bound=0.0)).otherwise("low")
    )


def _cost(name: str, mended: Line, base: Line) -> Line:
    draws = mended.draws - base.draws
    value = cost(name, mended.value, base.value)
    return Line(
        mended.keys, value, np.maximum(draws, 0) if name in KINDS else draws, mended.samples, mended.more
    )
