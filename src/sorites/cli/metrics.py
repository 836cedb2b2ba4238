"""The verb that asks a question of a run's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def metrics(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    metric: Annotated[str, typer.Argument(metavar="METRIC", help='See "sorites list metrics".')],
    by: Annotated[str | None, typer.Option("--by", metavar="COL,COL", help="Columns to group by.")] = None,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="MODEL", help="The model that errors are relative to.")
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--framework", metavar="NAME", help="Who is strange: semantic, model-specific, combined or graded."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the metric; may be repeated.")
    ] = None,
    format: Annotated[str, typer.Option("--format", metavar="table|csv|json", help="How to print.")] = "table",
) -> None:
    """Ask one question of a run's table."""
    from sorites.cli.printing import ask, empty, options, printed

    asked = options([*(option or ()), *([f"framework={framework}"] if framework else ())])
    columns = [name.strip() for name in by.split(",")] if by else None
    answer = ask(run, metric, columns, reference, asked)
    typer.echo(printed(answer, format), nl=False)
    if why := empty(answer, metric, asked):
        typer.echo(why, err=True)
