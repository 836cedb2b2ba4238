"""The verb that answers one question of a run's table."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli.options import Format, RunFolder
from sorites.cli.output import say


def metrics(
    run: RunFolder,
    metric: Annotated[str, typer.Argument(metavar="METRIC", help='The name of a metric, from "sorites list metrics".')],
    by: Annotated[str | None, typer.Option("--by", metavar="COL,COL", help="The columns to group by.")] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help="The model that errors are relative to, or a file of its errors; the default is the suite's.",
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            metavar="NAME",
            help="Which pictures count as strange: semantic, model-specific, combined or graded.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Set an option of the metric. May be repeated.")
    ] = None,
    format: Format = "table",
) -> None:
    """Answer one question of a run's table.

    Reads the table of a run folder; prints the answer and writes no file.
    """
    from sorites.cli.metric_answer import answer_metric, explain_empty, parse_options
    from sorites.cli.printing import format_frame

    options = parse_options([*(option or ()), *([f"framework={framework}"] if framework else ())])
    columns = [name.strip() for name in by.split(",")] if by else None
    answer = answer_metric(run, metric, columns, reference, options)
    say(format_frame(answer, format), nl=False, exact=format != "table")
    if reason := explain_empty(answer, metric, options, run):
        say(reason, err=True)
