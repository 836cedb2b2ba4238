"""Measure how well detectors find things: COCO's numbers of each group, and their mean over a shift's settings.

Boxes are matched to true ones once; a resample of the samples only changes how often each picture counts. ``class`` may stand in
``by``: the answer then has a row for each class that has things, by its number among the suite's labels. Sizes go by the area
that the truth brings, or by that of its box.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.metrics._box_lines import RESAMPLES, Line, answer, averaged, counts_of, numbers
from sorites.metrics._coco import NUMBERS, number_named
from sorites.metrics._rows import REAL_SAMPLES, with_clean
from sorites.metrics._scenes import COUNTS, Album, box_rows
from sorites.metrics._stops import STOP, with_stops
from sorites.table import Table

BY = ("model", "shift", "severity")


@add_metric
def map(table: Table, by: Sequence[str] = BY, number: str = "map", resamples: int = RESAMPLES) -> pl.DataFrame:
    """Mean average precision of detectors (COCO's mAP, or another of its twelve numbers); bootstrap interval over samples.

    ``number`` is map, map50, map75, map_small, map_medium, map_large, ar1, ar10, ar100, ar_small, ar_medium or ar_large. ``n``
    counts pictures and ``things`` the true boxes that are no crowds. ``missing`` counts rows that have an error, ``unknown``
    those whose true boxes are not known, ``left_out`` true boxes without finite numbers or without a size.
    """
    lines, album, keys = _all_lines(table, by, [number_named(number)], resamples)
    return answer(lines, album, keys, "things", *COUNTS)


@add_metric
def map_numbers(table: Table, by: Sequence[str] = BY, resamples: int = RESAMPLES) -> pl.DataFrame:
    """COCO's twelve numbers of detectors, a row each, in their usual order; bootstrap interval over samples.

    A number without things of its size is null; ``things`` counts those of its size.
    """
    lines, album, keys = _all_lines(table, by, list(NUMBERS), resamples)
    return answer(lines, album, keys, "things", *COUNTS, then="number")


@add_metric
def mean_map(table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES) -> pl.DataFrame:
    """Mean of mAP over the settings of each shift, then over shifts, without clean pictures; bootstrap interval over samples.

    ``n`` counts samples. The mean over all settings of a benchmark is what its papers print.
    """
    rows, keys, classed = box_rows(with_stops(table), by)
    album = Album(rows.filter(pl.col("shift") != CLEAN))
    counts = counts_of(album, resamples)
    cells = [*dict.fromkeys([*keys, *STOP])]
    lines = [line for scene in album.scenes(cells) for line in numbers(scene, [number_named(number)], counts, classed)]
    wanted = asked(by, keys, classed)
    return answer(averaged(lines, wanted), album, wanted)


@add_metric
def dial_map(table: Table, by: Sequence[str] = ("model",), number: str = "map", resamples: int = RESAMPLES) -> pl.DataFrame:
    """Mean of mAP over all severities of a shift, 0 included, then over shifts like ``mean_map``."""
    return mean_map(with_clean(table).filter(REAL_SAMPLES), by, number, resamples)


def _all_lines(table: Table, by: Sequence[str], names: list[str], resamples: int) -> tuple[list[Line], Album, list[str]]:
    rows, keys, classed = box_rows(table, by)
    album = Album(rows)
    counts = counts_of(album, resamples)
    lines = [line for scene in album.scenes(keys) for line in numbers(scene, names, counts, classed)]
    return lines, album, asked(by, keys, classed)


def asked(by: Sequence[str], keys: Sequence[str], classed: bool) -> list[str]:
    """Return the columns of an answer in the order in which they were asked for."""
    wanted = [by] if isinstance(by, str) else [*dict.fromkeys(by)]
    return wanted if set(keys) <= set(wanted) else [*keys, *wanted]
