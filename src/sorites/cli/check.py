"""The verb that checks a suite before a run, or a run folder after it."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli.output import say


def check(
    what: Annotated[str, typer.Argument(metavar="RUN|SUITE", help="A run folder, a built-in suite's name or a .toml file.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Move the damaged files of a run folder to RUN/damaged, so that they are made again.")
    ] = False,
) -> None:
    """Check that a suite can run, or that a run folder is complete.

    Reads the suite and its pictures, or all of the run folder's files;
    evaluates nothing, and without --repair writes nothing.
    """
    from sorites.pipeline.check import check as check_either

    say(check_either(what, repair))
