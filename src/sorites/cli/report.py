"""Results of runs: ``sorites metrics``, ``report``, ``log`` and ``sheet``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.analysis.options import ReportOptions
from sorites.cli.options import Format, MaxPixels, Partial, RunFolder, derived
from sorites.cli.output import say
from sorites.evaluation.options import LogOptions
from sorites.io.stores import to_path

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


def metrics(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", parser=to_path, help='Run folders, made by "sorites run".')
    ],
    metric: Annotated[str, typer.Argument(metavar="METRIC", help='A metric, from "sorites list metrics".')],
    by: Annotated[str | None, typer.Option("--by", metavar="COL,COL", help="Columns to group by.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help=(
                "Use only these rows: 'shift = coma and level >= 3', 'params.iso > 400', 'attrs.weather ="
                " rain'."
            ),
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help=("Reference model for relative errors, or a CSV file of its errors; default: the suite's."),
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework",
            metavar="NAME",
            help=(
                "Which images count as OOD: semantic, full_spectrum, model-specific, combined, graded or"
                " drift."
            ),
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Set an option of the metric. May be repeated."),
    ] = None,
    partial: Partial = False,
    format: Format = "table",
) -> None:
    """Compute a metric.

    Reads the tables of one or more runs and prints the result. Uses the
    samples that all models and runs share, and lists what it leaves out;
    --partial uses all rows.
    """
    import polars as pl

    from sorites.analysis.answers import (
        answer_metric,
        explain_empty,
        measure_note,
        parse_options,
        with_class_names,
    )
    from sorites.analysis.where import where as rows_where
    from sorites.cli.printing import print_frame
    from sorites.core import METRICS
    from sorites.core.errors import SoritesError
    from sorites.core.table import repeat_if_merged
    from sorites.evaluation.combine import Combined, Folder, combine, open_folders
    from sorites.metrics import interval_note

    METRICS.get(metric)
    options = parse_options([*(option or ()), *([f"framework={framework}"] if framework else ())])
    columns = [name.strip() for name in by.split(",")] if by else None

    def ask() -> tuple[list[Folder], Combined, pl.LazyFrame, pl.DataFrame]:
        folders = open_folders(runs)
        combined = combine(folders, partial)
        table = rows_where(combined.table, where) if where else combined.table
        return folders, combined, table, answer_metric(runs, metric, columns, reference, options, table)

    folders, combined, table, answer = repeat_if_merged(ask)
    for note in combined.notes:
        say(f"note: {note}", err=format != "table")
    print_frame(with_class_names(answer, [folder.record for folder in folders]), format)
    for note in filter(None, (measure_note(metric, options), interval_note(metric, answer))):
        say(f"note: {note}", err=True)
    if reason := explain_empty(answer, metric, options, runs[0]):
        if where and not table.select(pl.len()).collect().item():
            raise SoritesError(f"no row of the table matches --where {where!r}")
        hint = f' To include the clean images: --where "({where}) or shift = clean"'
        say(reason + (hint if where else ""), err=True)
