"""``sorites report``, ``log`` and ``sheet``: the HTML report, trackers, and one image at several settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.analysis.options import ReportOptions
from sorites.cli.derived import derived
from sorites.cli.options import MaxPixels, RunFolder
from sorites.cli.output import say
from sorites.evaluation.options import LogOptions

Tables = Annotated[
    str | None,
    typer.Option(
        "--tables",
        metavar="paper",
        help="Print the detector tables of the OpticsBench paper instead of writing a report.",
    ),
]


@derived(ReportOptions, tables=(Tables, None))
def report(options: ReportOptions, tables: str | None) -> None:
    """Write the HTML report of one or more runs.

    Reads the tables of the run folders and writes one self-contained HTML
    file. The report compares the samples that all models and runs share, and
    lists what it leaves out.
    """
    from sorites.reports.report import report as write_report

    if tables is not None:
        _print_tables(options.runs, tables, options.partial)  # type: ignore[arg-type]
        return
    path = write_report(**vars(options))
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")


@derived(LogOptions)
def log(options: LogOptions) -> None:
    """Log a finished run to MLflow, Weights & Biases or TensorBoard.

    Logs the curve of each model and shift with the severity as the step, and
    stores the report and the files of a passport.
    """
    from sorites.reports.log import log_run

    say(f"logged to {log_run(options)}")


def _print_tables(runs: list[Path], which: str, partial: bool) -> None:
    from sorites.cli.printing import format_frame
    from sorites.core.errors import UnknownName
    from sorites.evaluation.combine import combine, open_folders
    from sorites.reports.paper_tables import paper_tables

    if which != "paper":
        raise UnknownName("set of tables", which, ["paper"], "The only set is paper.")
    combined = combine(open_folders(runs), partial)
    for note in combined.notes:
        say(f"note: {note}")
    for title, frame in paper_tables(combined.table).items():
        say(f"{title}\n{format_frame(frame, 'table')}")


def sheet(
    run: RunFolder,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample",
            metavar="ID",
            help="Sample to draw; default: the one on which the models disagree most.",
        ),
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(
            "--shift",
            metavar="NAME",
            help="Shift to draw; default: the one on which the models disagree most.",
        ),
    ] = None,
    light: Annotated[
        str, typer.Option("--light", metavar="on|off", help="Light in the room, for camera runs.")
    ] = "on",
    settings: Annotated[
        int,
        typer.Option("--settings", metavar="N", min=2, help="Draw at most N settings, evenly spread."),
    ] = 12,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The image to write: .png, .jpg or .webp.")
    ] = Path("sheet.png"),
    max_pixels: MaxPixels = None,
) -> None:
    """Draw one sample at several settings with each model's prediction.

    Reads a run folder, recreates the images and writes one figure: settings
    across, models down; green with a tick where the prediction is correct,
    red with a cross where it is not.
    """
    from sorites.reports.figures.run_sheet import run_sheet
    from sorites.reports.figures.strips import save

    save(run_sheet(run, sample, shift, light, settings), out)
    say(f"wrote {out}")
