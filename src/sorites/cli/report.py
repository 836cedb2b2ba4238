"""The verb that writes the report of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import MaxPixels
from sorites.cli.output import say


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help='Run folders, made by "sorites run".')],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    max_pixels: MaxPixels = None,
) -> None:
    """Write one self-contained page about one or more runs.

    Reads the tables of the run folders; writes an HTML file.
    """
    from sorites.reports.report import report as write_report

    path = write_report(list(runs), out)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")
