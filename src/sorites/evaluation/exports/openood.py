"""Write OOD results as OpenOOD's evaluator does: a table per scorer, of each OOD dataset and the averages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.core.errors import SoritesError
from sorites.core.table import read
from sorites.evaluation.exports.coco import Exporting
from sorites.evaluation.storage.shards import slug
from sorites.io.files import write_bytes
from sorites.metrics.accuracy import accuracy
from sorites.metrics.near_far import GROUP, METRIC
from sorites.metrics.ood import NUMBERS, ood_numbers
from sorites.metrics.rows import SET
from sorites.metrics.separation import FULL_SPECTRUM, UNTOUCHED

# The columns of OpenOOD's table and our names. Areas under precision-recall curves are trapezoids there, and
# the FPR is the share of in-distribution images that are flagged where 95 % of OOD images are.
OPENOOD_COLUMNS = {
    "FPR@95": "fpr95_ood_pos",
    "AUROC": "auroc",
    "AUPR_IN": "aupr_in_trapz",
    "AUPR_OUT": "aupr_out_trapz",
}
# The folder of OpenOOD's script for each framework.
TASKS = {"ood": "semantic", "fsood": FULL_SPECTRUM}
GROUPS = {"near": "nearood", "far": "farood"}


def openood_table(table: pl.LazyFrame, framework: str) -> pl.DataFrame:
    """Return the results of each model and scorer like OpenOOD's evaluator, in percent.

    Args:
        table: The table of a run.
        framework: ``semantic`` (in-distribution images are clean) or ``full_spectrum``.

    Returns:
        The columns ``model``, ``scorer`` and ``dataset`` (each OOD dataset, then nearood and farood, their
        means), ``FPR@95``, ``AUROC``, ``AUPR_IN``, ``AUPR_OUT`` and ``ACC``.

    Raises:
        SoritesError: If no OOD image has the group near or far.
    """
    keys = ["model", "scorer", GROUP, SET]
    numbers = ood_numbers(table, keys, framework, "clean", tuple(OPENOOD_COLUMNS.values()))
    numbers = numbers.filter(pl.col(GROUP).is_in(list(GROUPS)) & pl.col("value").is_not_null())
    if numbers.is_empty():
        raise SoritesError("expected OOD images with scores and the group near or far, got none")
    assert set(OPENOOD_COLUMNS.values()) <= set(NUMBERS)
    wide = numbers.pivot(METRIC, index=keys, values="value").rename(
        {ours: theirs for theirs, ours in OPENOOD_COLUMNS.items()}
    )
    judged = table if framework == FULL_SPECTRUM else table.filter(UNTOUCHED)
    known = accuracy(judged, by=("model",)).select("model", ACC="value")
    means = wide.group_by("model", "scorer", GROUP).agg(pl.col(*OPENOOD_COLUMNS).mean())
    means = means.with_columns(dataset=pl.col(GROUP).replace_strict(GROUPS), place=pl.lit(1))
    rows = wide.rename({SET: "dataset"}).with_columns(place=pl.lit(0))
    columns = ["model", "scorer", GROUP, "place", "dataset", *OPENOOD_COLUMNS]
    every = pl.concat([rows.select(columns), means.select(columns)]).join(known, on="model", how="left")
    ordered = every.sort("model", "scorer", pl.col(GROUP) == "far", "place", "dataset")
    return ordered.select("model", "scorer", "dataset", pl.col(*OPENOOD_COLUMNS, "ACC") * 100)


def write_openood(task: Exporting) -> None:
    """Write MODEL/ood/SCORER.csv and, if there are shifted images, MODEL/fsood/SCORER.csv."""
    table = read(task.folder).lazy()
    if task.models:
        table = table.filter(pl.col("model").is_in(list(task.models)))
    shifted = table.filter(~UNTOUCHED).limit(1).collect().height > 0
    for name, framework in TASKS.items():
        if name == "fsood" and not shifted:
            continue
        for path, rows in _tables(openood_table(table, framework), task.out, name):
            path.parent.mkdir(parents=True, exist_ok=True)
            content = rows.rename({"dataset": ""}).write_csv()
            write_bytes(content.encode(), path)


def _tables(every: pl.DataFrame, out: Path, task: str) -> Iterator[tuple[Path, pl.DataFrame]]:
    parts: Mapping[tuple[object, ...], pl.DataFrame] = every.partition_by("model", "scorer", as_dict=True)
    keys: Sequence[tuple[object, ...]] = sorted(parts, key=str)
    for key in keys:
        model, scorer = map(str, key)
        yield out / slug(model) / task / f"{slug(scorer)}.csv", parts[key].drop("model", "scorer")
