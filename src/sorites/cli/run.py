"""The verb that evaluates a suite's models under its shifts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say
from sorites.stores import place


def run(
    suite: options.SuiteName,
    source: options.SourceNames = None,
    strange: options.Strange = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="[NAME=]SPEC",
            help="Evaluate this model: lite0, timm:NAME, timm:NAME@WEIGHTS, onnx:PATH, python:module:callable. NAME= names it in "
            "the table: v2=onnx:PATH. May be repeated.",
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
            "--scorer", metavar="NAME", help="Also score how strange each picture is: energy, knn, 'knn(k=10)'. May be repeated."
        ),
    ] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", metavar="SOURCE", help="Training pictures for the scorers that remember some.")
    ] = None,
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    order: options.Order = None,
    batch: Annotated[
        str, typer.Option("--batch", metavar="N|auto", help="The number of pictures a model sees at once; auto tries what fits.")
    ] = "8",
    device: options.Device = None,
    precision: options.Precision = None,
    refine: Annotated[
        float | None,
        typer.Option("--refine", metavar="F", help="Bisect each failure point to this fraction of the shift's top level."),
    ] = None,
    keep_features: Annotated[
        bool, typer.Option("--keep-features", help='Keep logits and features in the run folder, for "sorites score".')
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", parser=place, help="The run folder, also s3://BUCKET/RUN; the default is runs/SUITE-ID."
        ),
    ] = None,
    engine: options.EngineName = "auto",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Evaluate a suite's models under its shifts.

    Reads a suite and its pictures; writes a run folder, which holds one row
    per picture and model. Type the same command again to continue a run that
    was stopped.
    """
    from sorites.cli.printing import print_run_summary
    from sorites.pipeline import plan as plans
    from sorites.pipeline import runner
    from sorites.pipeline.choosing import choose, choose_batch
    from sorites.pipeline.fit import note_overlap
    from sorites.pipeline.fitted import fit_notes
    from sorites.pipeline.inputs import input_lines, note_unlabelled
    from sorites.progress import bars, recording, telling

    recipe = options.load_suite(
        suite,
        shift,
        level,
        severity,
        options.shift_options(option, kernels=kernels, padding=padding, lenses=lenses),
        **options.further_sources(source, strange),
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
        count = len(plan.fit) + len(plan.validation) + len(plan.strange)
        kinds = "training and validation" if plan.validation else "training"
        say(f"outputs of {count} {kinds} pictures will take {prepared.training_bytes() / 1e6:.1f} MB", err=True)
    if plan.left_out:
        say(f"note: left out without training pictures (add --fit SOURCE): {', '.join(plan.left_out)}", err=True)
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
        typer.echo(f"note: {taken} of the {of} samples of {name} were taken (limit = {taken}); --limit N changes that", err=True)
    for said in fit_notes(folder):
        typer.echo(f"note: {said}", err=True)
    print_run_summary(folder, worked=bool(steps))
