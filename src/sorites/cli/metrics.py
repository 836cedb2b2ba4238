"""The verb that answers one question of a run's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format, Partial
from sorites.cli.output import say
from sorites.io.stores import place


def metrics(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", parser=place, help='Run folders, made by "sorites run".')
    ],
    metric: Annotated[
        str, typer.Argument(metavar="METRIC", help='The name of a metric, from "sorites list metrics".')
    ],
    by: Annotated[
        str | None, typer.Option("--by", metavar="COL,COL", help="The columns to group by.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help=(
                "Ask only of these rows: 'shift = coma and level >= 3', 'params.iso > 400', 'attrs.weather ="
                " rain'."
            ),
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help=(
                "The model that errors are relative to, or a file of its errors; the default is the suite's."
            ),
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            metavar="NAME",
            help="The images that count as OOD: semantic, model-specific, combined, graded or drift.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Set an option of the metric. May be repeated."),
    ] = None,
    partial: Partial = False,
    format: Format = "table",
) -> None:
    """Answer one question of the table of one or more runs.

    Reads the tables of run folders; prints the answer and writes no file.
    What is missing or not shared is said first, and left out unless --partial
    is given.
    """
    import polars as pl

    from sorites.analysis.where import where as rows_where
    from sorites.cli.metric_answer import (
        answer_metric,
        explain_empty,
        measure_note,
        parse_options,
        with_class_names,
    )
    from sorites.cli.printing import format_frame
    from sorites.core import METRICS
    from sorites.core.errors import SoritesError
    from sorites.evaluation.combine import open_folders, together
    from sorites.metrics import interval_note

    METRICS.get(metric)
    options = parse_options([*(option or ()), *([f"framework={framework}"] if framework else ())])
    columns = [name.strip() for name in by.split(",")] if by else None
    folders = open_folders(runs)
    given = together(folders, partial)
    for note in given.notes:
        say(f"note: {note}", err=format != "table")
    table = rows_where(given.table, where) if where else given.table
    answer = answer_metric(runs, metric, columns, reference, options, table)
    say(
        format_frame(with_class_names(answer, [folder.info for folder in folders]), format),
        nl=False,
        exact=format != "table",
    )
    if said := measure_note(metric, options):
        say(f"note: {said}", err=True)
    if said := interval_note(metric, answer):
        say(f"note: {said}", err=True)
    if reason := explain_empty(answer, metric, options, runs[0]):
        if where and not table.select(pl.len()).collect().item():
            raise SoritesError(f"no row of the table meets --where {where!r}")
        kept = (
            f' Only rows with {where} were asked; to keep the clean images too: --where "({where}) or shift'
            ' = clean"'
        )
        say(reason + (kept if where else ""), err=True)
