"""OOD scores of boxes: do they separate wrong boxes from right ones, and unknown objects from known ones?

An object is *unknown* if the model does not have its class. Boxes from a confidence on are matched at IoU .5.
A box that finds an object of its class (COCO's rules) is right. The other boxes are matched by falling
confidence with the unknown objects, whatever class they have; a box that finds one is *on an unknown object*.
Rows of scorers contain the boxes of a detector with their scores, higher = more OOD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.errors import UnknownName
from sorites.core.table import Table
from sorites.metrics import separation
from sorites.metrics.detection.at_confidence import CONFIDENCE
from sorites.metrics.detection.matching import TAKEN, Bools, best, match
from sorites.metrics.detection.operating import MATCH_IOU, checked_conf, judged_at
from sorites.metrics.detection.scenes import Album, Boxes, Floats, Ints, Scene, box_rows
from sorites.metrics.intervals import Bounds, clustered_share_bounds, clustered_size, share, square_and_add
from sorites.metrics.ood import COLUMNS, NUMBERS, Estimate, key_types
from sorites.metrics.rows import ON_GRID, answer_frame, select_rows
from sorites.metrics.separation import BY_SCORER, Pair, Pool

# Which boxes count as in-distribution and as OOD.
MISTAKES, UNKNOWN = "mistakes", "unknown"
FRAMEWORKS = (MISTAKES, UNKNOWN)
_FOUND = ("value", "n", "low", "high", "found")
# Which objects are found, and the bounds of their share where that depends on a threshold.
Hits = tuple[Bools, Bounds | None]


@dataclass(frozen=True)
class ScoredBoxes:
    """The boxes of a group from a confidence on, with their scores (NaN: none).

    Attributes:
        score: The OOD scores.
        sample: The code of each box's sample.
        right: Whether a box finds an object of its class.
        unknown: Whether another box finds an unknown object.
        objects: The code of the sample of each unknown object.
        by: The box that finds each unknown object, -1 for none.
    """

    score: Floats
    sample: Ints
    right: Bools
    unknown: Bools
    objects: Ints
    by: Ints

    def pools(self, framework: str) -> tuple[Pool, Pool, int]:
        """Return the in-distribution and the OOD boxes, and how many of them have no score."""
        ood = ~self.right if framework == MISTAKES else self.unknown
        scored = np.isfinite(self.score) | np.isinf(self.score)
        pools = [
            Pool.of(self.score[chosen & scored], self.sample[chosen & scored]) for chosen in (self.right, ood)
        ]
        return pools[0], pools[1], int(((self.right | ood) & ~scored).sum())


@add_metric
def box_auroc(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = MISTAKES, conf: float = CONFIDENCE
) -> pl.DataFrame:
    """Probability that the OOD score of a wrong box is above that of a right one, with ties counted half.

    With ``framework="unknown"`` boxes on unknown objects take the place of wrong boxes. Boxes from the
    confidence ``conf`` on count; ``id`` and ``ood`` count the boxes of the two kinds. The interval is that of
    ``auroc``, with samples as units.
    """
    return _separation(table, by, framework, conf, "auroc")


@add_metric
def box_fpr95(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = UNKNOWN, conf: float = CONFIDENCE
) -> pl.DataFrame:
    """Share of boxes on unknown objects that pass where 95 % of the right boxes pass: the FPR95 of VOS.

    A box passes if its OOD score is at most the threshold, the least score that 95 % of the right boxes do
    not exceed. With ``framework="mistakes"`` wrong boxes take the place of boxes on unknown objects.
    """
    return _separation(table, by, framework, conf, "fpr95_id_pos")


@add_metric
def unknown_recall(table: Table, by: Sequence[str] = ("model",), conf: float = CONFIDENCE) -> pl.DataFrame:
    """Share of unknown objects that a box finds, whatever its class: found / (found + not found).

    ``n`` counts unknown objects and ``found`` those that a box from the confidence ``conf`` on finds, which a
    detector without OOD scores reports as objects of a known class. The interval takes samples as units.
    """
    rows, keys, _ = box_rows(table, by, ("class",))
    return _recalls(table, rows, keys, conf, lambda boxes: (boxes.by >= 0, None))


@add_metric
def unknown_flagged(table: Table, by: Sequence[str] = BY_SCORER, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Share of unknown objects that are found by a box that the scorer flags as OOD (U-Recall).

    A box is flagged if its score is above the threshold of ``box_fpr95``. ``n`` counts unknown objects,
    ``found`` those that are found and flagged; the value is null where no right box gives a threshold. The
    interval contains the uncertainty of the threshold, and is null with fewer than about 75 independent right
    boxes, whose threshold may be above them all.
    """
    rows, keys = _scored_rows(table, by)
    return _recalls(table, rows, keys, conf, _flagged)


def _scored_rows(table: Table, by: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    columns = [by] if isinstance(by, str) else list(by)
    rows, keys = select_rows(table, [*columns, *BY_SCORER], ("class",), output="ood")
    return rows.filter(ON_GRID, pl.col("boxes").is_not_null()), keys


def _separation(table: Table, by: Sequence[str], framework: str, conf: float, number: str) -> pl.DataFrame:
    if framework not in FRAMEWORKS:
        raise UnknownName("framework", framework, FRAMEWORKS, f"One of {', '.join(FRAMEWORKS)}.")
    rows, keys = _scored_rows(table, by)
    records = []
    for key, boxes in _groups(rows, keys, conf):
        known, ood, missing = boxes.pools(framework)
        estimate: Estimate | tuple[None, None, None] = (None, None, None)
        if len(known) and len(ood):
            estimate = NUMBERS[number](Pair(known, ood))
        named = dict(zip(("value", "low", "high"), estimate, strict=True))
        counts = {"n": len(known) + len(ood), "id": len(known), "ood": len(ood), "missing": missing}
        records.append({**key, **named, **counts})
    floats = dict.fromkeys(("value", "low", "high"), pl.Float64())
    schema = {**key_types(table, keys), **floats, **dict.fromkeys(COLUMNS[4:], pl.Int64()), "n": pl.Int64()}
    return answer_frame(pl.DataFrame(records, schema=schema), keys, *COLUMNS)


def _recalls(
    table: Table,
    rows: pl.LazyFrame,
    keys: list[str],
    conf: float,
    hits: Callable[[ScoredBoxes], Hits | None],
) -> pl.DataFrame:
    records = []
    for key, boxes in _groups(rows, keys, conf):
        if not len(boxes.objects):
            continue
        record = {**key, "n": len(boxes.objects), "value": None, "low": None, "high": None, "found": None}
        if (counted := hits(boxes)) is not None:
            found, moved = counted
            per_sample = [
                np.bincount(boxes.objects, weights).astype(np.float64)
                for weights in (found, np.ones(len(found)))
            ]
            seen = per_sample[1] > 0
            low, high = clustered_share_bounds(per_sample[0][seen], per_sample[1][seen])
            value = float(found.mean())
            if moved is not None:
                low, high = square_and_add(value, (low, high), moved)
            ends = {"low": None if low is None else min(low, value), "high": high}
            record |= {"value": value, **ends, "found": int(found.sum())}
        records.append(record)
    floats = dict.fromkeys(("value", "low", "high"), pl.Float64())
    schema = {**key_types(table, keys), **floats, "n": pl.Int64(), "found": pl.Int64()}
    return answer_frame(pl.DataFrame(records, schema=schema), keys, *_FOUND)


def _flagged(boxes: ScoredBoxes) -> Hits | None:
    """Return which unknown objects are found by a flagged box; None without a threshold."""
    known, _, _ = boxes.pools(UNKNOWN)
    if not len(known):
        return None
    threshold = pass_threshold(known)
    score = np.append(boxes.score, np.nan)[boxes.by]
    found = np.asarray(score > threshold)
    return found, _between_thresholds(
        known, threshold, np.where(np.isnan(score), -np.inf, score), boxes.objects
    )


def _between_thresholds(known: Pool, threshold: float, score: Floats, objects: Ints) -> Bounds:
    """Return the shares of objects that are flagged at the highest and at the lowest threshold that the right
    boxes allow.
    """
    rows = known.by_sample(np.ones(len(known)))
    above = known.by_sample(known.scores > threshold)
    exceeding = share(0.05, clustered_size(above[rows > 0], rows[rows > 0]))
    passed = Pair(Pool.of(-score, objects), Pair(known, known).flipped.ood)
    fewest, most = separation.alarms_between(passed, exceeding)
    return (None, None) if fewest is None or most is None else (1 - most, 1 - fewest)


def pass_threshold(known: Pool) -> float:
    """Return the least score that 95 % of the right boxes do not exceed."""
    _, threshold = separation.false_alarms(Pair(known, known).flipped)
    return -threshold


def _groups(
    rows: pl.LazyFrame, keys: Sequence[str], conf: float
) -> Iterator[tuple[dict[str, object], ScoredBoxes]]:
    checked_conf(conf)
    for scene, loaded in Album(rows).scenes_with_rows(keys, ()):
        yield {key: scene.keys[key] for key in keys}, scored_boxes(scene, loaded, conf)


def scored_boxes(scene: Scene, loaded: pl.DataFrame, conf: float) -> ScoredBoxes:
    """Return the boxes of a scene with their scores and what they find.

    Args:
        scene: The images of a group.
        loaded: Their rows, in the same order.
        conf: The confidence from which boxes count.
    """
    judged = judged_at(scene, conf)
    known = _field(loaded, "ground_truth", "known", judged.objects).astype(object)
    unknown = judged.objects[np.array([value is False for value in known], bool)]
    by = _any_class(judged.found, ~judged.right, unknown)
    on_unknown = np.zeros(len(judged.found), bool)
    on_unknown[by[by >= 0]] = True
    score = _field(loaded, "boxes", "score", judged.found).astype(np.float64)
    sample = scene.sample[judged.found.image]
    return ScoredBoxes(score, sample, judged.right, on_unknown, scene.sample[unknown.image], by)


def _any_class(found: Boxes, candidates: Bools, objects: Boxes) -> Ints:
    """Return the candidate that finds each object whatever its class, by falling confidence; -1 for none."""
    places = np.flatnonzero(candidates)
    alone = replace(found[places], label=np.zeros(len(places), np.int64))
    order = np.lexsort((-alone.conf, alone.image))
    ordered = best(alone, max(len(places), 1))
    flat = replace(objects, label=np.zeros(len(objects), np.int64))
    matched = match(ordered, flat, [MATCH_IOU], np.zeros((len(objects), 1), bool))
    taken = matched.state[:, 0, 0] == TAKEN
    by = np.full(len(objects), -1, np.int64)
    by[matched.obj[taken, 0, 0]] = places[order[matched.which[taken]]]
    return by


def _field(loaded: pl.DataFrame, column: str, field: str, boxes: Boxes) -> NDArray[np.generic]:
    """Return a field of boxes, found by the index of their image and their place in its list."""
    counts = loaded[column].list.len().to_numpy().astype(np.int64)
    start = np.cumsum(counts) - counts
    flat = loaded.select(column).filter(pl.col(column).list.len() > 0).explode(column)[column]
    if not len(flat):
        return np.zeros(0)
    return np.asarray(flat.struct.field(field).to_numpy()[start[boxes.image] + boxes.place])
