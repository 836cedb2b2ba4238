"""Mean degrees: how far pictures moved by one measure, averaged over the images of a sample and then over samples."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.errors import UnknownName
from sorites.metrics._intervals import normal_interval
from sorites.metrics._rows import ON_GRID, SAMPLE_KEY, answer_frame, select_rows
from sorites.metrics.lenses import with_lenses
from sorites.table import Table


@add_metric
def mean_degree(table: Table, by: Sequence[str] = ("shift", "severity"), measure: str = "ssim") -> pl.DataFrame:
    """Mean degree of images by one ``measure``; ``n`` counts samples, and the interval is over them.

    An image counts once however many models saw it; one that was not measured, or was too small for the measure, is missing.
    Where a degree is infinite, such as the PSNR of a picture that did not change, the mean is infinite too and has no interval.
    """
    _refuse_unmeasured(table, measure)
    return _mean(table, by, measure)


def _mean(table: Table, by: Sequence[str], measure: str) -> pl.DataFrame:
    rows, keys = select_rows(table, by, refuse=("degrees",))
    of_image, of_sample = (list(dict.fromkeys([*keys, *SAMPLE_KEY, *more])) for more in (("image_id",), ()))
    images = rows.filter(ON_GRID & pl.col("error").is_null()).select(*of_image, "degrees").unique(of_image)
    entry = pl.col("degrees").struct
    measured = images.explode("degrees").filter((entry.field("measure") == measure) & entry.field("value").is_not_null())
    each = measured.group_by(of_sample).agg(value=entry.field("value").mean())
    value, n = pl.col("value"), pl.len()
    means = each.group_by(keys).agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    bounds = {name: pl.when(value.is_finite()).then(bound) for name, bound in normal_interval(value, pl.col("variance")).items()}
    return answer_frame(means.with_columns(**bounds), keys, "value", "n", "low", "high")


def _refuse_unmeasured(table: Table, measure: str) -> None:
    """Refuse a measure by which nothing here was measured, where something was by others."""
    entries = table.lazy().select(pl.col("degrees").explode().struct.field("measure").drop_nulls().unique().sort())
    known = entries.collect(engine="streaming")["measure"].to_list()
    if known and measure not in known:
        typed = f"sorites similarity RUN --measure {measure}"
        advice = f"It has {', '.join(known)}: name one of these as the option measure, or type: {typed}"
        raise UnknownName("measure in this table", measure, known, advice)


@add_metric
def lens_degree(table: Table, by: Sequence[str] = ("lens_field",), measure: str = "ssim") -> pl.DataFrame:
    """Mean degree at each distance from the middle of the picture, over all lenses; ``n`` counts samples."""
    return _mean(with_lenses(table), by, measure)
