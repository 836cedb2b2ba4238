"""The verb that writes the report of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Partial
from sorites.cli.output import say


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help='Run folders, made by "sorites run".')],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    partial: Partial = False,
) -> None:
    """Write one self-contained page about one or more runs.

    Reads the tables of the run folders; writes an HTML file. The page compares
    what the runs share and all models have, and says what was left out.
    """
    from sorites.pipeline.unfinished import unfinished
    from sorites.reports.report import report as write_report

    for gap in filter(None, map(unfinished, runs)):
        say("\n".join(f"note: {said}" for said in gap.sentences(partial)), err=True)
    path = write_report(list(runs), out, partial)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")
