"""The verb that adds a scorer to a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made with --keep-features.")],
    scorer: Annotated[list[str], typer.Option("--scorer", metavar="NAME", help="The scorer to add; may be repeated.")],
) -> None:
    """Add a scorer's rows to a finished run from its kept features; no model looks again."""
    from sorites.pipeline.rescore import score as add

    for name, rows in add(run, scorer).items():
        typer.echo(f"{name}: added {rows} rows to {run / 'predictions'}" if rows else f"{name}: all its rows are there already")
