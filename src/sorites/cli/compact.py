"""The verb that merges the small files of a finished run."""

from __future__ import annotations

from typing import Annotated

import typer

from sorites.cli.options import RunFolder
from sorites.cli.output import say


def compact(
    run: RunFolder,
    rows: Annotated[int, typer.Option("--rows", metavar="N", min=1, help="About how many rows a merged file holds.")] = 1_000_000,
) -> None:
    """Merge the small files of a finished run's table into few.

    Reads and writes RUN/predictions; the table stays the same, row for row.
    A verb that adds to the run brings the small files back first.
    """
    from sorites.pipeline.compact import compact as merge
    from sorites.progress import bars

    with bars() as bar:
        before, now = merge(run, rows, bar)
    say(f"{run}: its table was in {before} files and is in {now} now" if now < before else f"{run}: nothing to merge")
