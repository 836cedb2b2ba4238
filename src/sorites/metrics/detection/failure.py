"""Failure severities of objects: the severity at which a detector loses an object that it found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics import failure
from sorites.metrics.detection.coco import AREAS
from sorites.metrics.detection.operating import SIZES, checked_conf, judged_at
from sorites.metrics.detection.scenes import scene
from sorites.metrics.failure import KAPLAN_MEIER
from sorites.metrics.product_limit import Points
from sorites.metrics.rows import select_rows

VERDICTS = {"row": pl.Int64, "object": pl.Int64, "class": pl.Int32, "size": pl.String, "correct": pl.Boolean}


def found_objects(rows: pl.DataFrame, conf: float = 0.0) -> pl.DataFrame:
    """Return one row per object of each judged image: the index of its row and of the object, class, size
    and outcome.

    Args:
        rows: Rows of detectors.
        conf: The minimum confidence of boxes that count.

    Returns:
        The objects, matched by COCO's rules. Crowds are no objects, and images with an error or
            without ground truth have no outcome.
    """
    judged = (
        rows.select("image_id", "error", "ground_truth", "boxes")
        .with_row_index("row")
        .with_columns(sample=0, start=0)
    )
    judged = judged.filter(
        pl.col("error").is_null() & pl.col("boxes").is_not_null() & pl.col("ground_truth").is_not_null()
    )
    images = scene(judged, {})
    judgement = judged_at(images, conf)
    objects = judgement.objects
    size = np.searchsorted([high for _, high in AREAS[1:3]], objects.area, side="left")
    return pl.DataFrame(
        {
            "row": judged["row"].to_numpy()[objects.image],
            "object": objects.place,
            "class": objects.label,
            "size": np.array([*SIZES])[size],
            "correct": judgement.hit,
        },
        schema=VERDICTS,
    )


BY = ("model", "shift")
# Separates the id of a sample from the index of an object in the ``sample_id`` of objects.
OBJECT_SEPARATOR = "#"


def objects(table: Table, conf: float = 0.0) -> pl.DataFrame:
    """Return one row per object, image and detector, in the form of label rows: ``correct`` is whether it
    was found.

    Args:
        table: The table.
        conf: The minimum confidence of boxes that count.

    Returns:
        Rows whose ``sample_id`` is that of the sample, "#" and the index of the object in
            ``ground_truth``; the columns ``object``, ``class`` and ``size`` are new.
    """
    checked_conf(conf)
    rows, _ = select_rows(table, ["model", "shift"], output="boxes")
    groups = rows.select("model", "shift").unique().sort("model", "shift").collect(engine="streaming")
    parts = []
    for model, shift in groups.iter_rows():
        condition = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("shift").eq_missing(
            pl.lit(shift, pl.String)
        )
        loaded = rows.filter(condition).collect(engine="streaming")
        parts.append(_as_labels(loaded, found_objects(loaded, conf)))
    empty = pl.DataFrame(schema=rows.collect_schema())
    return pl.concat(parts or [_as_labels(empty, pl.DataFrame(schema=VERDICTS))])


def _as_labels(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    image_columns = (
        rows.drop("ground_truth", "boxes", "correct")
        .with_row_index("row")
        .with_columns(pl.col("row").cast(pl.Int64))
    )
    object_id = pl.format("{}" + OBJECT_SEPARATOR + "{}", "sample_id", "object")
    return (
        verdicts.join(image_columns, on="row")
        .with_columns(sample_id=object_id, output=pl.lit("label"))
        .drop("row")
    )


@add_metric
def box_failure_severity(
    table: Table,
    by: Sequence[str] = BY,
    relative: bool = False,
    conf: float = 0.0,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Median severity at which an object is lost that a detector found; null where it is not reached.

    Like ``failure_severity``, with objects in place of images: ``n`` counts objects, and samples are the
    units of the interval. ``conf`` is the minimum confidence of boxes that count.
    """
    return failure.median_failure(_points(table, by, relative, conf, estimator))


@add_metric
def box_survival(
    table: Table,
    by: Sequence[str] = BY,
    relative: bool = False,
    conf: float = 0.0,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Kaplan-Meier estimate of the share of objects that are not lost at each severity.

    Like ``survival``, with objects in place of images; samples are the units of the interval.
    """
    return failure.survival_curve(_points(table, by, relative, conf, estimator))


@add_metric
def box_failure_histogram(
    table: Table,
    by: Sequence[str] = BY,
    relative: bool = False,
    conf: float = 0.0,
    estimator: str = KAPLAN_MEIER,
) -> pl.DataFrame:
    """Share of objects that are lost between two severities.

    Like ``failure_histogram``, with objects in place of images; samples are the units of the interval.
    """
    return failure.histogram(_points(table, by, relative, conf, estimator))


def _points(table: Table, by: Sequence[str], relative: bool, conf: float, estimator: str) -> Points:
    image = pl.struct("source", pl.col("sample_id").str.replace(OBJECT_SEPARATOR + r"\d+$", ""))
    return failure.points_of(objects(table, conf), by, relative, estimator, image)
