"""``sorites metrics``: compute a metric of one or more runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format, Partial
from sorites.cli.output import say
from sorites.io.stores import to_path


def metrics(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", parser=to_path, help='Run folders, made by "sorites run".')
    ],
    metric: Annotated[str, typer.Argument(metavar="METRIC", help='A metric, from "sorites list metrics".')],
    by: Annotated[str | None, typer.Option("--by", metavar="COL,COL", help="Columns to group by.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help=(
                "Use only these rows: 'shift = coma and level >= 3', 'params.iso > 400', 'attrs.weather ="
                " rain'."
            ),
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help=("Reference model for relative errors, or a CSV file of its errors; default: the suite's."),
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            metavar="NAME",
            help=(
                "Which images count as OOD: semantic, full_spectrum, model-specific, combined, graded or"
                " drift."
            ),
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Set an option of the metric. May be repeated."),
    ] = None,
    partial: Partial = False,
    format: Format = "table",
) -> None:
    """Compute a metric.

    Reads the tables of one or more runs and prints the result. Uses the
    samples that all models and runs share, and lists what it leaves out;
    --partial uses all rows.
    """
    import polars as pl

    from sorites.analysis.answers import (
        answer_metric,
        explain_empty,
        measure_note,
        parse_options,
        with_class_names,
    )
    from sorites.analysis.where import where as rows_where
    from sorites.cli.printing import print_frame
    from sorites.core import METRICS
    from sorites.core.errors import SoritesError
    from sorites.core.table import repeat_if_merged
    from sorites.evaluation.combine import Combined, Folder, combine, open_folders
    from sorites.metrics import interval_note

    METRICS.get(metric)
    options = parse_options([*(option or ()), *([f"framework={framework}"] if framework else ())])
    columns = [name.strip() for name in by.split(",")] if by else None

    def ask() -> tuple[list[Folder], Combined, pl.LazyFrame, pl.DataFrame]:
        folders = open_folders(runs)
        combined = combine(folders, partial)
        table = rows_where(combined.table, where) if where else combined.table
        return folders, combined, table, answer_metric(runs, metric, columns, reference, options, table)

    folders, combined, table, answer = repeat_if_merged(ask)
    for note in combined.notes:
        say(f"note: {note}", err=format != "table")
    print_frame(with_class_names(answer, [folder.record for folder in folders]), format)
    for note in filter(None, (measure_note(metric, options), interval_note(metric, answer))):
        say(f"note: {note}", err=True)
    if reason := explain_empty(answer, metric, options, runs[0]):
        if where and not table.select(pl.len()).collect().item():
            raise SoritesError(f"no row of the table matches --where {where!r}")
        hint = f' To include the clean images: --where "({where}) or shift = clean"'
        say(reason + (hint if where else ""), err=True)
