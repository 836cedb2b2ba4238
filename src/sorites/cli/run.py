"""``sorites run``, ``plan``, ``check``, ``compact``, ``import`` and ``score``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli import options
from sorites.cli.options import RunFolder, derived
from sorites.cli.output import say
from sorites.core.errors import SoritesError
from sorites.evaluation.options import CheckOptions, ExportOptions, RunOptions, ScoreOptions

if TYPE_CHECKING:
    from sorites.evaluation.estimate import Calibration, Costs


@derived(RunOptions)
def run(options: RunOptions) -> None:
    """Evaluate the models of a suite under its shifts.

    Writes a run folder with one row per image and model. Run the same
    command again to continue a run that was stopped.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.core.errors import TooManyErrors
    from sorites.core.progress import bars, recording
    from sorites.evaluation.run import evaluate

    steps: list[str] = []
    try:
        with bars() as bar:
            folder = evaluate(options, recording(bar, steps)).folder
    except TooManyErrors as error:
        if error.fields["rows"]:
            print_run_summary(Path(str(error.fields["folder"])), worked=bool(steps))
        raise
    print_run_summary(folder, worked=bool(steps))


CALIBRATE = "calibrate"
FILE = Path("calibration.json")


def plan(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[calibrate] SUITE",
            help="A suite to estimate; with calibrate, a suite to measure this machine on.",
        ),
    ],
    source: options.SourceNames = None,
    ood: options.Ood = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="[NAME=]SPEC", help="Count this model. May be repeated."),
    ] = None,
    shift: options.Shifts = None,
    level: options.Levels = None,
    severity: options.Severities = None,
    grid: options.Grids = None,
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    order: options.Order = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", metavar="FILE", help='Timings of a machine, from "sorites plan calibrate".'
        ),
    ] = None,
    workers: options.Workers = None,
    price: Annotated[
        float | None,
        typer.Option("--price", metavar="P", min=0, help="Price per hour of the machine, in any currency."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file that calibrate writes its timings to.")
    ] = FILE,
    format_: options.Format = "table",
) -> None:
    """Estimate the cost of a run: images, forward passes, bytes, time, price.

    Lists the images of a suite without loading a model. "sorites plan
    calibrate SUITE" measures this machine on a few images and writes the
    timings for --calibration.
    """
    from sorites.evaluation.estimate import calibrate, costs, read_calibration
    from sorites.evaluation.run import recipe as suite_with

    if (
        (words[0] == CALIBRATE and len(words) == 1)
        or len(words) > 2
        or (len(words) == 2 and words[0] != CALIBRATE)
    ):
        raise SoritesError(
            f"expected sorites plan SUITE or sorites plan calibrate SUITE, got {' '.join(words)!r}"
        )
    if price is not None and calibration is None:
        raise SoritesError(
            "--price needs --calibration FILE to estimate the time. Make one: sorites plan calibrate SUITE"
        )
    given: dict[str, object] = {
        "source": source,
        "ood": ood,
        "models": model,
        "shifts": shift,
        "levels": level,
    }
    given |= {"severities": severity, "grid": grid, "labels": labels, "limit": limit, "order": order}
    recipe = suite_with(RunOptions.from_shell({"suite": words[-1], **given}))
    if words[0] == CALIBRATE and len(words) == 2:
        measured = calibrate(recipe, out, workers)
        _print_calibration(measured)
        say(f"wrote {out}\nnext: sorites plan {words[1]} --calibration {out}")
        return
    timings = read_calibration(calibration) if calibration else None
    _print_estimate(costs(recipe), timings, workers, price, format_)


def _print_estimate(
    estimate: Costs, timings: Calibration | None, workers: int | None, price: float | None, format_: str
) -> None:
    from sorites.evaluation.estimate import as_json

    count = workers or (max(timings.speedup) if timings else 1)
    seconds, measured = estimate.seconds(timings, count) if timings else (None, True)
    cost = None if seconds is None or price is None else seconds / 3600 * price
    if format_ == "json":
        say(
            json.dumps(
                {
                    **as_json(estimate),
                    "workers": count,
                    "seconds": seconds,
                    "measured_workers": measured,
                    "price": cost,
                },
                indent=1,
            )
        )
        return
    per_shift = ", ".join(f"{name} {number:,}" for name, number in estimate.images.items())
    say(f"images     {sum(estimate.images.values()):,} from {estimate.samples:,} samples ({per_shift})")
    models = (
        f"{len(estimate.models)} model{'s' * (len(estimate.models) != 1)}"
        f" ({', '.join(estimate.models) or 'none named'})"
    )
    say(f"passes     {estimate.passes:,}: each image by {models}")
    if estimate.probes:
        say(f"probes     up to {estimate.probes:,} more images per model, to refine failure severities")
    files = estimate.units * len(estimate.models)
    say(
        f"table      {estimate.rows:,} rows, about {_size(estimate.bytes())}, in {files:,} files"
        f" ({estimate.slice} samples per unit)"
    )
    if seconds is None:
        say(
            'time       unknown: measure this machine with "sorites plan calibrate SUITE", then add'
            " --calibration FILE"
        )
        return
    assert timings is not None
    how = f"measured {timings.date} on {timings.machine}"
    how += "" if measured else f"; extrapolated from {max(timings.speedup)} workers"
    say(f"time       {_time(seconds)} with {count} workers ({how})")
    if cost is not None:
        say(f"price      {cost:,.2f} at {price:g} per hour")


def _print_calibration(timings: Calibration) -> None:
    say(f"decode     {timings.decode * 1e3:.2f} ms per sample")
    for name, seconds in timings.shifts.items():
        say(f"shift      {seconds * 1e3:.2f} ms per image: {name}")
    for name, seconds in timings.models.items():
        say(f"model      {seconds * 1e3:.2f} ms per image: {name}")
    for count, speedup in timings.speedup.items():
        say(f"workers    {count}: {speedup:.2f} times the speed of one")
    for line in timings.pipeline.lines() if timings.pipeline else ():
        say(f"pipeline   {line}")


def _size(size: int) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} seconds"


@derived(CheckOptions)
def check(options: CheckOptions) -> None:
    """Check that a suite can run, or that a folder is complete and unchanged.

    Reads the suite and its images, or every file of a run, dataset, training,
    passport or capture. Evaluates nothing; writes nothing without --repair.
    """
    from sorites.apps.check import summary

    say(summary(options.what, options.repair))


def compact(
    run: RunFolder,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="Approximate number of rows per merged file.")
    ] = 1_000_000,
) -> None:
    """Merge the small files of a finished run into fewer, larger ones.

    Rewrites RUN/predictions; the table keeps the same rows. A verb that adds
    to the run restores the small files first.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.storage.compact import compact as merge

    with bars() as bar:
        before, now = merge(run, rows, bar)
    say(f"{run}: merged {before} files into {now}" if now < before else f"{run}: nothing to merge")


def import_(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help=(
                "Prediction files (CSV or parquet), or folders of them; with --as coco result files, each"
                " with its setting: clean=results.json fog:2=fog.json."
            ),
        ),
    ],
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="csv|cns|counts|coco",
            help=(
                "Layout: columns by name, result files of CNS-Bench, counts of correct predictions per"
                " setting, or results of detectors (COCO's JSON, and what Ultralytics writes)."
            ),
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run folder to make.")],
    columns: Annotated[
        Path | None,
        typer.Option(
            "--columns",
            metavar="FILE.toml",
            help="A TOML file that maps columns of the files to columns of the table.",
        ),
    ] = None,
    labels: options.LabelFile = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="NAME", help="Model of all rows, if the files do not name it."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Name of the images' source; no images are read."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help="Reference model for relative errors, or a CSV file of its errors.",
        ),
    ] = None,
    annotations: Annotated[
        list[str] | None,
        typer.Option(
            "--annotations",
            metavar="FILE",
            help=(
                "Ground truth of --as coco: a COCO annotation file, or the data.yaml of a YOLO dataset."
                " SHIFT:SEVERITY=FILE is that of one setting. May be repeated."
            ),
        ),
    ] = None,
    first_class: Annotated[
        int | None,
        typer.Option(
            "--first-class",
            metavar="0|1",
            min=0,
            max=1,
            help="With --as coco: results number the classes in order from this number, not by category id.",
        ),
    ] = None,
) -> None:
    """Import prediction files as a run folder, without images.

    Writes a run folder that "sorites metrics", "report" and "check" read.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.evaluation.imports.write import import_predictions

    done = import_predictions(
        files,
        as_,
        out,
        labels=labels,
        columns=columns,
        model=model,
        source=source,
        reference=reference,
        annotations=annotations or (),
        first_class=first_class,
    )
    if renamed := {name: column for name, column in done.called.items() if name != column}:
        say(f"read {', '.join(f'{name} from {column}' for name, column in renamed.items())}", err=True)
    print_run_summary(done.folder, worked=done.worked)


@derived(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write the results of a run in the format of other tools.

    Reads a run folder and writes a folder of files, which "sorites import"
    reads again.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.exports.write import export_run

    with bars() as bar:
        out = export_run(options, bar)
    say(f"wrote {out}")


@derived(ScoreOptions)
def score(options: ScoreOptions) -> None:
    """Add OOD scores to a finished run without running a model.

    Reads the kept features and adds rows to the table.
    """
    from sorites.core.table import run_folder
    from sorites.evaluation.rescore import add_scores

    table = run_folder(options.run) / "predictions"
    for name, rows in add_scores(options).items():
        say(f"{name}: added {rows} rows to {table}" if rows else f"{name}: nothing to add")
