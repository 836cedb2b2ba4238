"""The confusion matrix of classifiers: which classes turn into which."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.core.table import Table
from sorites.metrics.intervals import share_intervals
from sorites.metrics.rows import SAMPLE, SAMPLE_HASH, answer_frame, judged_rows, select_rows


@add_metric
def confusion(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Share of the images of a class (``label``) that are predicted as another (``pred``), or as itself.

    ``count`` is the number of such images and ``n`` that of all images of the class. The interval is that of
    ``accuracy``, which takes the samples as units. Pairs of classes without an image are left out.
    """
    rows, keys = select_rows(table, by)
    judged = judged_rows(rows).filter(pl.col("label").is_not_null() & pl.col("pred").is_not_null())
    columns = list(dict.fromkeys([*keys, "label"]))
    pairs = list(dict.fromkeys([*columns, "pred"]))
    shares = shares_of_cells(judged.with_columns(SAMPLE_HASH.alias(SAMPLE)), columns, pairs)
    then = [name for name in pairs if name not in keys]
    return answer_frame(shares, keys, "value", "n", "low", "high", "count", then=then)


def shares_of_cells(rows: pl.LazyFrame, keys: Sequence[str], cells: Sequence[str]) -> pl.LazyFrame:
    """Return the share of the rows of a group that are in each of its cells, with its interval over samples.

    Args:
        rows: Rows with the hash of their sample (``SAMPLE``).
        keys: The group columns.
        cells: The group columns, and those that divide a group into cells; cells without rows are left out.

    Returns:
        The columns ``cells``, ``count``, and those of ``intervals.share_intervals``.
    """
    times = pl.len().cast(pl.Int64)
    in_cell, in_group = rows.group_by(*cells, SAMPLE).agg(h=times), rows.group_by(*keys, SAMPLE).agg(r=times)
    h, r = pl.col("h"), pl.col("r")
    both = in_cell.join(in_group, on=[*keys, SAMPLE], nulls_equal=True)
    hits = both.group_by(cells).agg(hits=h.sum(), hr=(h * r).sum(), hh=(h * h).sum())
    groups = in_group.group_by(keys).agg(n=r.sum(), samples=times, rr=(r * r).sum())
    sums = hits.join(groups, on=list(keys), nulls_equal=True).with_columns(count="hits")
    return share_intervals(sums, cells, "count")
