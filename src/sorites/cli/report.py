"""The verb that writes the report of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import MaxPixels, Partial
from sorites.cli.output import say
from sorites.stores import place


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", parser=place, help='Run folders, made by "sorites run".')],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    partial: Partial = False,
    tables: Annotated[
        str | None,
        typer.Option("--tables", metavar="paper", help="Print the OpticsBench paper's tables of detectors instead of a page."),
    ] = None,
    max_pixels: MaxPixels = None,
) -> None:
    """Write one self-contained page about one or more runs.

    Reads the tables of the run folders; writes an HTML file. The page compares
    what the runs share and all models have, and says what was left out.
    """
    if tables is not None:
        _print_tables(list(runs), tables, partial)
        return
    from sorites.pipeline.unfinished import unfinished
    from sorites.reports.report import report as write_report

    for gap in filter(None, map(unfinished, runs)):
        say("\n".join(f"note: {said}" for said in gap.sentences(partial)), err=True)
    path = write_report(list(runs), out, partial)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")


def _print_tables(runs: list[Path], which: str, partial: bool) -> None:
    from sorites.cli.printing import format_frame
    from sorites.errors import UnknownName
    from sorites.pipeline.together import open_folders, together
    from sorites.reports.paper_tables import paper_tables

    if which != "paper":
        raise UnknownName("set of tables", which, ["paper"], "There is one: paper.")
    given = together(open_folders(runs), partial)
    for note in given.notes:
        say(f"note: {note}")
    for title, frame in paper_tables(given.table).items():
        say(f"{title}\n{format_frame(frame, 'table')}")
