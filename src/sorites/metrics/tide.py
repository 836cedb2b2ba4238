"""Measure what the errors of detectors cost, by TIDE's kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.metrics._box_lines import RESAMPLES, Line, answer, by_label, counts_of
from sorites.metrics._scenes import COUNTS, Album, box_rows
from sorites.metrics._tide import ERRORS, KINDS, cost, errors
from sorites.metrics.box_map import BY, asked
from sorites.table import Table


@add_metric
def tide(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """Average precision at IoU .5 that each kind of error costs a detector (TIDE); bootstrap interval over samples.

    There is a row for each ``error``: Cls, Loc, Both, Dupe, Bkg, Miss, FP and FN, and AP50 for the average precision itself, on
    the best 100 boxes of each picture. Costs do not add up: each error is mended alone. ``class`` may stand in ``by``.
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
    found = answer(lines, album, asked(by, keys, classed), "things", *COUNTS, then="error", least=-1.0)
    never_negative = pl.col("error").is_in(list(KINDS))
    return found.with_columns(low=pl.when(never_negative).then(pl.col("low").clip(lower_bound=0.0)).otherwise("low"))


def _cost(name: str, mended: Line, base: Line) -> Line:
    draws = mended.draws - base.draws
    value = cost(name, mended.value, base.value)
    return Line(mended.keys, value, np.maximum(draws, 0) if name in KINDS else draws, mended.samples, mended.more)
