"""The verb that checks a suite before a run, or a run folder after it."""

from __future__ import annotations

from typing import Annotated

import typer


def check(
    what: Annotated[str, typer.Argument(metavar="RUN|SUITE", help="A run folder, a built-in suite's name or a .toml file.")],
) -> None:
    """Check that a suite can run, or that a run folder is complete.

    Reads the suite and its pictures, or the run folder's files; evaluates
    and writes nothing.
    """
    from sorites.pipeline.check import check as check_either

    typer.echo(check_either(what))
