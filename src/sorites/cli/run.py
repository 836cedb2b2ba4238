"""The verb that evaluates a suite's models under its shifts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli import options
from sorites.cli.options import Address, EngineName, GpusPerWorker, RunFolder, Workers, engine_of
from sorites.cli.output import say
from sorites.core.errors import SoritesError
from sorites.io.stores import place

if TYPE_CHECKING:
    from sorites.evaluation.estimate import Calibration, Costs


def run(
    suite: options.SuiteName,
    source: options.SourceNames = None,
    ood: options.Ood = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]SPEC",
            help=(
                "Evaluate this model: lite0, timm:NAME, timm:NAME@WEIGHTS, onnx:PATH, python:module:callable."
                " NAME= names it in "
                "the table: v2=onnx:PATH. May be repeated."
            ),
        ),
    ] = None,
    shift: options.Shifts = None,
    level: options.Levels = None,
    severity: options.Severities = None,
    kernels: options.Kernels = None,
    padding: options.Padding = None,
    lenses: options.Lenses = None,
    option: options.SuiteOptions = None,
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            "--scorer",
            metavar="NAME",
            help="Also score how OOD each image is: energy, knn, 'knn(k=10)'. May be repeated.",
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option("--fit", metavar="SOURCE", help="Training images for the scorers that remember some."),
    ] = None,
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    order: options.Order = None,
    batch: Annotated[
        str,
        typer.Option(
            "--batch",
            metavar="N|auto",
            help="The number of images a model sees at once; auto tries what fits.",
        ),
    ] = "8",
    device: options.Device = None,
    precision: options.Precision = None,
    refine: Annotated[
        float | None,
        typer.Option(
            "--refine",
            metavar="F",
            help="Bisect each failure severity to this fraction of the shift's top level.",
        ),
    ] = None,
    keep_features: Annotated[
        bool,
        typer.Option(
            "--keep-features", help='Keep logits and features in the run folder, for "sorites score".'
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=place,
            help="The run folder, also s3://BUCKET/RUN; the default is runs/SUITE-ID.",
        ),
    ] = None,
    engine: options.EngineName = "auto",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Evaluate a suite's models under its shifts.

    Reads a suite and its images; writes a run folder, which holds one row
    per image and model. Type the same command again to continue a run that
    was stopped.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.core.progress import bars, recording, telling
    from sorites.evaluation import plan as plans
    from sorites.evaluation import runner
    from sorites.evaluation.estimate import input_lines, note_unlabelled
    from sorites.evaluation.fit import fit_notes, note_overlap
    from sorites.evaluation.runner import choose, choose_batch

    recipe = options.load_suite(
        suite,
        shift,
        level,
        severity,
        options.shift_options(option, kernels=kernels, padding=padding, lenses=lenses),
        **options.further_sources(source, ood),
        models=tuple(model or ()),
        scorers=tuple(scorer or ()),
        fit=None if fit is None else {"source": fit},
        labels=labels,
        limit=limit,
        order=order,
        device=None if device == "auto" else device,
        precision=precision,
        seed=seed,
        refine=refine,
    )
    plan = plans.make(recipe)
    prepared = runner.prepare(plan)
    notes = list(input_lines(plan))
    if keep_features:
        say(f"features will take {prepared.feature_bytes() / 1e6:.1f} MB", err=True)
    elif plan.fit:
        count = len(plan.fit) + len(plan.validation) + len(plan.ood)
        kinds = "training and validation" if plan.validation else "training"
        say(
            f"outputs of {count} {kinds} images will take {prepared.training_bytes() / 1e6:.1f} MB",
            err=True,
        )
    if plan.left_out:
        say(
            f"note: left out without training images (add --fit SOURCE): {', '.join(plan.left_out)}",
            err=True,
        )
    if note := note_overlap(plan):
        say(note, err=True)
    if note := note_unlabelled(plan):
        say(f"note: {note}", err=True)
    start = options.engine_of(engine, address, gpus_per_worker)
    if start == "auto":
        chosen = choose(plan, workers)
        start = chosen.engine
        notes.append(f"engine: {chosen.said}")
    size = options.batch_size(batch)
    if size is None:
        size, told = choose_batch(plan, runner.BATCH)
        notes.append(f"batch: {told}")
    steps: list[str] = []
    with bars() as bar:
        folder = runner.execute(
            prepared,
            out,
            batch=size,
            keep_features=keep_features,
            engine=start,
            workers=workers,
            bar=telling(recording(bar, steps), lambda: say("\n".join(notes), err=True) if notes else None),
            say=lambda text: say(f"note: {text}", err=True),
        )
    for name, (taken, of) in plan.limited.items():
        typer.echo(
            f"note: {taken} of the {of} samples of {name} were taken (limit = {taken}); --limit N changes"
            " that",
            err=True,
        )
    for said in fit_notes(folder):
        typer.echo(f"note: {said}", err=True)
    print_run_summary(folder, worked=bool(steps))


# The verb that says what a run will take before anything runs.


CALIBRATE = "calibrate"
FILE = Path("calibration.json")


def plan(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[calibrate] SUITE",
            help="A suite; after the word calibrate, one to measure this machine on.",
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
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    order: options.Order = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration", metavar="FILE", help='Times of a machine, from "sorites plan calibrate".'
        ),
    ] = None,
    workers: options.Workers = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price", metavar="P", min=0, help="The price of an hour of the machine, in any currency."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file in which calibrate keeps its times.")
    ] = FILE,
    format_: options.Format = "table",
) -> None:
    """Say what a run will take: images, passes, bytes, time and price.

    Reads a suite and lists its images; no model is loaded and nothing runs.
    "sorites plan calibrate SUITE" measures this machine on a few images and
    writes the times that --calibration reads.
    """
    from sorites.evaluation.estimate import calibrate, costs, read_calibration

    if (
        (words[0] == CALIBRATE and len(words) == 1)
        or len(words) > 2
        or (len(words) == 2 and words[0] != CALIBRATE)
    ):
        raise SoritesError(
            f"wanted: sorites plan SUITE, or: sorites plan calibrate SUITE; got {' '.join(words)!r}"
        )
    if price is not None and calibration is None:
        raise SoritesError(
            "--price needs the time, and that --calibration FILE. Make one: sorites plan calibrate SUITE"
        )
    recipe = options.load_suite(
        words[-1], shift, level, severity, {}, **options.further_sources(source, ood), models=tuple(model or ()),
        labels=labels, limit=limit, order=order,
    )  # fmt: skip
    if words[0] == CALIBRATE and len(words) == 2:
        known = calibrate(recipe, out, workers)
        _print_calibration(known)
        say(f"wrote {out}\nnext: sorites plan {words[1]} --calibration {out}")
        return
    found = costs(recipe)
    held = read_calibration(calibration) if calibration else None
    _print(found, held, workers, price, format_)


def _print(
    found: Costs, known: Calibration | None, workers: int | None, price: float | None, format_: str
) -> None:
    from sorites.evaluation.estimate import told

    count = workers or (max(known.speedup) if known else 1)
    seconds, measured = found.seconds(known, count) if known else (None, True)
    cost = None if seconds is None or price is None else seconds / 3600 * price
    if format_ == "json":
        say(
            json.dumps(
                {
                    **told(found),
                    "workers": count,
                    "seconds": seconds,
                    "measured_workers": measured,
                    "price": cost,
                },
                indent=1,
            )
        )
        return
    per_shift = ", ".join(f"{name} {count:,}" for name, count in found.images.items())
    say(f"images   {sum(found.images.values()):,} of {found.samples:,} samples ({per_shift})")
    models = (
        f"{len(found.models)} model{'s' * (len(found.models) != 1)}"
        f" ({', '.join(found.models) or 'none named'})"
    )
    say(f"passes     {found.passes:,}: each image by {models}")
    if found.probes:
        say(f"probes     at most {found.probes:,} more images for each model, to refine failure severities")
    size = found.bytes()
    files = found.units * len(found.models)
    say(
        f"table      {found.rows:,} rows, about {_size(size)}, in {files:,} files ({found.slice} samples to a"
        " unit)"
    )
    if seconds is None:
        say(
            'time       unknown: measure this machine with "sorites plan calibrate SUITE", then add'
            " --calibration FILE"
        )
        return
    assert known is not None
    how = "" if measured else f"; extrapolated: {max(known.speedup)} workers were measured"
    say(f"time       {_time(seconds)} with {count} workers (measured {known.date} on {known.machine}{how})")
    if cost is not None:
        say(f"price      {cost:,.2f} at {price:g} per hour")


def _print_calibration(known: Calibration) -> None:
    say(f"decode     {known.decode * 1e3:.2f} ms a sample")
    for name, seconds in known.shifts.items():
        say(f"shift      {seconds * 1e3:.2f} ms an image of {name}")
    for name, seconds in known.models.items():
        say(f"model      {seconds * 1e3:.2f} ms an image by {name}")
    for count, times in known.speedup.items():
        say(f"workers    {count}: {times:.2f} times as much as one")


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


# The verb that checks a suite before a run, or a run folder after it.


def check(
    what: Annotated[
        str,
        typer.Argument(metavar="RUN|SUITE", help="A run folder, a built-in suite's name or a .toml file."),
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Move the damaged files of a run folder to RUN/damaged, so that they are made again.",
        ),
    ] = False,
) -> None:
    """Check that a suite can run, or that a run folder is complete.

    Reads the suite and its images, or all of the run folder's files;
    evaluates nothing, and without --repair writes nothing.
    """
    from sorites.evaluation.check import summary as check_either

    say(check_either(what, repair))


# The verb that merges the small files of a finished run.


def compact(
    run: RunFolder,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="About how many rows a merged file holds.")
    ] = 1_000_000,
) -> None:
    """Merge the small files of a finished run's table into few.

    Reads and writes RUN/predictions; the table stays the same, row for row.
    A verb that adds to the run brings the small files back first.
    """
    from sorites.core.progress import bars
    from sorites.evaluation.storage.compact import compact as merge

    with bars() as bar:
        before, now = merge(run, rows, bar)
    say(
        f"{run}: its table was in {before} files and is in {now} now"
        if now < before
        else f"{run}: nothing to merge"
    )


# The verb that makes a run folder of prediction files.


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Prediction files (CSV or parquet), or folders of them."),
    ],
    as_: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="csv|cns|counts",
            help=(
                "The layout: columns by their names, CNS-Bench's result files, or counts of right answers per"
                " setting."
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
        typer.Option("--model", metavar="NAME", help="The model of all rows, where the files do not say."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="The name of the images' source; no images are read."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL|FILE.csv",
            help="The model that errors are relative to, or a file of its errors.",
        ),
    ] = None,
) -> None:
    """Turn prediction files into a run folder, without images.

    Reads released or own predictions; writes a run folder, for which
    "sorites metrics", "report" and "check" work. The same command again finds
    its work done.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.evaluation.imports.write import import_predictions

    done = import_predictions(
        files,
        as_,
        out,
        labels=labels or "imagenet",
        columns=columns,
        model=model,
        source=source,
        reference=reference,
    )
    if renamed := {name: mine for name, mine in done.called.items() if name != mine}:
        say(f"read {', '.join(f'{name} from {mine}' for name, mine in renamed.items())}", err=True)
    print_run_summary(done.folder, worked=done.worked)


# The verb that adds a scorer to a finished run.


def score(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", parser=place, help="A run folder, made with --keep-features.")
    ],
    scorer: Annotated[
        list[str],
        typer.Option(
            "--scorer",
            metavar="NAME",
            help='The scorer to add, from "sorites list scorers". May be repeated.',
        ),
    ],
    engine: EngineName = "local",
    workers: Workers = None,
    address: Address = None,
    gpus_per_worker: GpusPerWorker = 0.0,
) -> None:
    """Add a scorer's OOD score to a finished run, without running a model.

    Reads the features that the run kept; writes further rows into its table.
    """
    from sorites.evaluation.rescore import score as add_scorers

    added = add_scorers(run, scorer, engine=engine_of(engine, address, gpus_per_worker), workers=workers)
    for name, rows in added.items():
        say(
            f"{name}: added {rows} rows to {run / 'predictions'}"
            if rows
            else f"{name}: all its rows are there already"
        )
