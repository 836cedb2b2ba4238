"""Precision, recall, F1 and the confusion matrix of detectors at a confidence, by image, class and setting.

Boxes from a confidence on are matched to objects at IoU .5 by COCO's rules: in each image and class by
falling confidence. A box that finds an object is a true positive, another is a false positive, and an object
that no box finds is a false negative; boxes on crowds count as neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.confusion import shares_of_cells
from sorites.metrics.detection.matching import TAKEN, best, match
from sorites.metrics.detection.mean_ap import answer_columns
from sorites.metrics.detection.operating import MATCH_IOU, Judged, area_of, checked_conf, judged_at
from sorites.metrics.detection.scenes import CLASS, Album, Boxes, Ints, Scene, box_rows
from sorites.metrics.intervals import cluster_sums, share_intervals
from sorites.metrics.rows import SAMPLE, SAMPLE_HASH, answer_frame

BY = ("model", "shift", "severity")
CONFIDENCE = 0.25
# A box or an object without a partner.
BACKGROUND = -1
OUTCOMES = ("tp", "fp", "fn")
# Levels of confidence at which a curve is computed.
LEVELS = 101


@add_metric
def box_precision(
    table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE, size: str | None = None
) -> pl.DataFrame:
    """Share of the boxes from a confidence on that find an object (IoU .5); null without boxes.

    ``n`` counts true and false positives, ``tp``, ``fp`` and ``fn`` the outcomes; intervals are over samples.
    ``by`` may contain ``class`` and ``image_id``. ``size`` is small, medium or large: objects and wrong
    boxes of other sizes are ignored, as in COCO's numbers.
    """
    return _shares(table, by, conf, size, pl.col("tp"), pl.col("tp") + pl.col("fp"))


@add_metric
def box_recall(
    table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE, size: str | None = None
) -> pl.DataFrame:
    """Share of the objects that a box from a confidence on finds (IoU .5); null without objects.

    ``n`` counts objects; see ``box_precision``.
    """
    return _shares(table, by, conf, size, pl.col("tp"), pl.col("tp") + pl.col("fn"))


@add_metric
def box_f1(
    table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE, size: str | None = None
) -> pl.DataFrame:
    """Harmonic mean of precision and recall from a confidence on: 2 tp / (2 tp + fp + fn).

    ``n`` is the denominator, which counts each true positive twice; see ``box_precision``.
    """
    return _shares(table, by, conf, size, 2 * pl.col("tp"), 2 * pl.col("tp") + pl.col("fp") + pl.col("fn"))


def _shares(
    table: Table, by: Sequence[str], conf: float, size: str | None, hits: pl.Expr, rows: pl.Expr
) -> pl.DataFrame:
    counts, keys = box_counts(table, by, conf, size)
    parts = counts.lazy().with_columns(hits=hits, rows=rows)
    per_sample = parts.group_by(*keys, SAMPLE).agg(pl.col("hits", "rows", *OUTCOMES).sum())
    shares = share_intervals(cluster_sums(per_sample, keys, "hits", "rows", *OUTCOMES), keys, *OUTCOMES)
    return answer_frame(shares.filter(pl.col("n") > 0), keys, "value", "n", "low", "high", *OUTCOMES)


def box_counts(
    table: Table, by: Sequence[str], conf: float, size: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Return true positives, false positives and false negatives of each image (and class), and the keys.

    Args:
        table: The table.
        by: The columns to group by; with ``class``, an image has a row per class.
        conf: The confidence from which boxes count.
        size: The size of objects: small, medium, large, or None for all.

    Returns:
        Rows with the columns of ``by``, the hash of the sample, and the outcomes ``tp``, ``fp`` and ``fn``.
    """
    checked_conf(conf)
    area_of(size)
    return _per_image(table, by, lambda scene: _count(judged_at(scene, conf, size)), OUTCOMES)


Columns = dict[str, Ints]


def _per_image(
    table: Table, by: Sequence[str], count: Callable[[Scene], Columns], columns: Sequence[str]
) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of ``count`` with the columns of their image, one model and shift at a time.

    ``count`` returns columns of equal length: ``image``, the index of the image in the scene, and further
    ones.
    """
    rows, keys, classed = box_rows(table, by)
    order = answer_columns(by, keys, classed)
    parts = [*_parts(rows, keys, count)]
    kinds = dict.fromkeys((CLASS, *columns), pl.Int64)
    schema = rows.select(*keys, SAMPLE_HASH.alias(SAMPLE)).collect_schema()
    found = pl.concat(parts) if parts else pl.DataFrame(schema={**schema, **kinds})
    typed = found.with_columns(pl.col(CLASS).cast(pl.Int32))
    return (typed if classed else typed.drop(CLASS)), order


def _parts(
    rows: pl.LazyFrame, keys: Sequence[str], count: Callable[[Scene], Columns]
) -> Iterator[pl.DataFrame]:
    for scene, loaded in Album(rows).scenes_with_rows(["model", "shift"], keys):
        counted = pl.DataFrame(count(scene))
        images = loaded.select(*keys, SAMPLE_HASH.alias(SAMPLE)).with_row_index("image")
        yield images.with_columns(pl.col("image").cast(pl.Int64)).join(counted, on="image").drop("image")


def _count(judged: Judged) -> Columns:
    """Count the outcomes by image and class."""
    image = np.concatenate([judged.found.image, judged.objects.image[~judged.hit]])
    label = np.concatenate([judged.found.label, judged.objects.label[~judged.hit]])
    boxes, missed = len(judged.found), int((~judged.hit).sum())
    outcome = np.concatenate([np.where(judged.right, 0, 1), np.full(missed, 2)]) if boxes or missed else image
    pairs, row = np.unique(np.stack([image, label], axis=1), axis=0, return_inverse=True)
    counts = np.zeros((len(pairs), 3), np.int64)
    np.add.at(counts, (row.ravel(), outcome.astype(np.int64)), 1)
    tp, fp, fn = counts.T
    return {"image": pairs[:, 0], CLASS: pairs[:, 1], "tp": tp, "fp": fp, "fn": fn}


@add_metric
def box_confusion(table: Table, by: Sequence[str] = BY, conf: float = CONFIDENCE) -> pl.DataFrame:
    """Confusion matrix of a detector: how many objects of a class are found as which class.

    Boxes that find an object of their class are paired first, as for ``box_recall``; the other boxes are then
    paired by falling confidence with the remaining objects of any class (IoU .5). ``label`` is the class of
    the object and ``pred`` that of the box; null is the background: a missed object, or a box on none.
    ``count`` is the number of pairs, ``value`` its share of the ``n`` objects of the class (or of the ``n``
    boxes on background). The interval is that of ``box_recall``, which takes the samples as
    units. Cells without a pair are left out.
    """
    checked_conf(conf)
    pairs, keys = _per_image(table, by, lambda scene: _confused(scene, conf), ("label", "pred"))
    null = [
        pl.when(pl.col(name) != BACKGROUND).then(name).cast(pl.Int32).alias(name)
        for name in ("label", "pred")
    ]
    shares = shares_of_cells(pairs.lazy(), [*keys, "label"], [*keys, "label", "pred"])
    return answer_frame(
        shares.with_columns(*null), keys, "value", "n", "low", "high", "count", then=("label", "pred")
    )


def _confused(scene: Scene, conf: float) -> Columns:
    """Return each pair of an object and a box, and each object and box without a partner."""
    judged = judged_at(scene, conf)
    boxes, objects = judged.found[~judged.right], judged.objects[~judged.hit]
    ordered = best(_of_one_class(boxes), len(boxes) or 1)
    number = np.lexsort((-boxes.conf, boxes.image))
    free = _of_one_class(objects)
    matched = match(ordered, free, [MATCH_IOU], np.zeros((len(objects), 1), bool))
    partner = np.full(len(boxes), BACKGROUND, np.int64)
    taken = matched.state[:, 0, 0] == TAKEN
    partner[number[matched.which[taken]]] = matched.obj[taken, 0, 0]
    found = np.zeros(len(objects), bool)
    found[partner[partner >= 0]] = True
    right = judged.found[judged.right]
    label = np.where(partner >= 0, objects.label[partner] if len(objects) else BACKGROUND, BACKGROUND)
    missed = objects[~found]
    return {
        "image": np.concatenate([right.image, boxes.image, missed.image]),
        CLASS: np.concatenate([right.label, boxes.label, missed.label]),
        "label": np.concatenate([right.label, label, missed.label]),
        "pred": np.concatenate([right.label, boxes.label, np.full(len(missed), BACKGROUND)]),
    }


def _of_one_class(boxes: Boxes) -> Boxes:
    return replace(boxes, label=np.zeros(len(boxes), np.int64))


@add_metric
def box_curve(table: Table, by: Sequence[str] = ("model", "shift"), size: str | None = None) -> pl.DataFrame:
    """Precision, recall and F1 (``value``) at each confidence from 0 to 1 in steps of 0.01.

    ``n`` counts objects. Matching does not depend on the confidence, because boxes are matched by falling
    confidence; so all levels are counted from one matching. The level of the greatest F1 is the usual
    operating point.
    """
    area_of(size)
    counts, keys = _per_image(
        table, by, lambda scene: _levels(judged_at(scene, 0.0, size)), ("level", "tp", "fp", "objects")
    )
    sums = counts.group_by(*keys, "level").agg(pl.col("tp", "fp", "objects").sum())
    grid = pl.DataFrame({"level": range(LEVELS)}, schema={"level": pl.Int64})
    groups = sums.group_by(keys).agg(n=pl.col("objects").sum())
    curve = groups.join(grid, how="cross").join(
        sums.drop("objects"), on=[*keys, "level"], how="left", nulls_equal=True
    )
    # A box counts at its own level and at all lower ones.
    ordered = curve.sort("level", descending=True).with_columns(
        (
            pl.col(name).fill_null(0).cum_sum().over(keys) if keys else pl.col(name).fill_null(0).cum_sum()
        ).alias(name)
        for name in ("tp", "fp")
    )
    tp, fp, n = pl.col("tp"), pl.col("fp"), pl.col("n")
    values = ordered.filter(n > 0).with_columns(
        conf=pl.col("level") / (LEVELS - 1),
        value=2 * tp / (tp + fp + n),
        precision=pl.when(tp + fp > 0).then(tp / (tp + fp)),
        recall=tp / n,
    )
    return answer_frame(values, keys, "value", "n", "precision", "recall", then=("conf",))


def _levels(judged: Judged) -> Columns:
    """Count boxes by the highest level of confidence that they reach, and objects."""
    found, objects = judged.found, judged.objects
    level = np.floor(np.clip(found.conf, 0, 1) * (LEVELS - 1) + 1e-9).astype(np.int64)
    none, every = np.zeros(len(objects), np.int64), np.ones(len(objects), np.int64)
    return {
        "image": np.concatenate([found.image, objects.image]),
        CLASS: np.concatenate([found.label, objects.label]),
        "level": np.concatenate([level, none]),
        "tp": np.concatenate([judged.right.astype(np.int64), none]),
        "fp": np.concatenate([(~judged.right).astype(np.int64), none]),
        "objects": np.concatenate([np.zeros(len(found), np.int64), every]),
    }
