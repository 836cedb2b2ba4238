"""The verb that writes the report of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import MaxPixels, Partial, RunFolder
from sorites.cli.output import say
from sorites.io.stores import place


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", parser=place, help='Run folders, made by "sorites run".')
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
    partial: Partial = False,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="paper",
            help="Print the OpticsBench paper's tables of detectors instead of a page.",
        ),
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
    from sorites.evaluation.unfinished import unfinished
    from sorites.reports.report import report as write_report

    for gap in filter(None, map(unfinished, runs)):
        say("\n".join(f"note: {said}" for said in gap.sentences(partial)), err=True)
    path = write_report(list(runs), out, partial)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")


def _print_tables(runs: list[Path], which: str, partial: bool) -> None:
    from sorites.cli.printing import format_frame
    from sorites.core.errors import UnknownName
    from sorites.evaluation.combine import open_folders, together
    from sorites.reports.paper_tables import paper_tables

    if which != "paper":
        raise UnknownName("set of tables", which, ["paper"], "There is one: paper.")
    given = together(open_folders(runs), partial)
    for note in given.notes:
        say(f"note: {note}")
    for title, frame in paper_tables(given.table).items():
        say(f"{title}\n{format_frame(frame, 'table')}")


# The verb that draws one image of a run at several settings, as each model judges it.


def sheet(
    run: RunFolder,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="ID",
            help="The sample to draw; the default is the one on which models differ most.",
        ),
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(
            "--shift", metavar="NAME", help="The shift; the default is the one where they differ most."
        ),
    ] = None,
    light: Annotated[
        str, typer.Option("--light", metavar="on|off", help="Of a camera: the light of the room.")
    ] = "on",
    settings: Annotated[
        int,
        typer.Option(
            "--settings", metavar="N", min=2, help="The most settings to draw; of more, an even spread."
        ),
    ] = 12,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The sheet to write: .png, .jpg or .webp.")
    ] = Path("sheet.png"),
    max_pixels: MaxPixels = None,
) -> None:
    """Draw one image at every setting, as each model judges it.

    Reads a run folder and makes the images again; writes one image:
    settings across, models down, green and ticked where the model is right,
    red and crossed where it is wrong.
    """
    from sorites.reports.figures.run_sheet import run_sheet
    from sorites.reports.figures.strips import save

    save(run_sheet(run, sample, shift, light, settings), out)
    say(f"wrote {out}")
