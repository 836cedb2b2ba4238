"""The command line: one function a verb, each a single call into the rooms, imported when it is typed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sorites.cli.distance import decompose_app, degrees, measure
from sorites.cli.kernels import app as kernels_app
from sorites.cli.lens import app as lens_app
from sorites.cli.metrics import metrics
from sorites.cli.options import shift_options
from sorites.cli.score import score

if TYPE_CHECKING:
    from sorites.suite import Suite

app = typer.Typer(
    name="sorites",
    help="How far can the world shift before a vision model fails, and does the model know?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A built-in suite by name, or a .toml file.")]
SourceName = Annotated[
    str | None, typer.Option("--source", metavar="NAME[:PATH]", help="Pictures: stamps, folder:PATH, webdataset:PATH.")
]
Shifts = Annotated[list[str] | None, typer.Option("--shift", metavar="NAME", help="Only this shift; may be repeated.")]
Levels = Annotated[list[int] | None, typer.Option("--level", metavar="N", help="Only this published level; may be repeated.")]
Severities = Annotated[
    list[float] | None,
    typer.Option("--severity", metavar="X", help="A severity in the unit of the one --shift; may be repeated."),
]
LabelFile = Annotated[
    str | None, typer.Option("--labels", metavar="FILE", help="Class names, one a line; default ImageNet's thousand.")
]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", help="Only the first N samples of a fair order.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of every draw.")]
Kernels = Annotated[
    Path | None, typer.Option("--kernels", metavar="PATH", help="A published kernel stack for the lens aberrations.")
]
Padding = Annotated[
    str | None, typer.Option("--padding", metavar="zeros|reflect", help="What the lens aberrations see beyond the border.")
]
Lenses = Annotated[Path | None, typer.Option("--lenses", metavar="DIR", help="Traced lenses of your own for the shift lens.")]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the suite's shifts; may be repeated.")
]
Workers = Annotated[int | None, typer.Option("--workers", metavar="N", min=1, help="Units at a time; default one a core.")]


def _overridden(
    suite: str,
    shifts: list[str] | None,
    levels: list[int] | None,
    severities: list[float] | None,
    options: dict[str, Any],
    **plain: Any,
) -> Suite:
    from sorites.suite import load

    return load(suite).override(shifts=shifts or (), levels=levels or (), severities=severities or (), options=options, **plain)


@app.command()
def run(
    suite: SuiteName,
    source: SourceName = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model", metavar="NAME", help="lite0, timm:NAME[@weights], onnx:PATH, python:module:callable; may be repeated."
        ),
    ] = None,
    shift: Shifts = None,
    level: Levels = None,
    severity: Severities = None,
    kernels: Kernels = None,
    padding: Padding = None,
    lenses: Lenses = None,
    option: Options = None,
    scorer: Annotated[
        list[str] | None,
        typer.Option("--scorer", metavar="NAME", help="Also keep this strangeness: energy, knn, 'knn(k=10)'; may be repeated."),
    ] = None,
    fit: Annotated[
        str | None, typer.Option("--fit", metavar="SOURCE", help="Training pictures for scorers that remember some.")
    ] = None,
    labels: LabelFile = None,
    limit: Limit = None,
    seed: Seed = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Pictures a model sees at once.")] = 8,
    refine: Annotated[
        float | None, typer.Option("--refine", metavar="F", help="Bisect failure points to this fraction of the top level.")
    ] = None,
    keep_features: Annotated[bool, typer.Option("--keep-features", help="Keep logits and features beside the table.")] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Run folder; default runs/SUITE-ID.")] = None,
    engine: Annotated[str, typer.Option("--engine", metavar="NAME", help="Where units run.")] = "local",
    workers: Workers = None,
) -> None:
    """Evaluate models under a suite's shifts. Typed again, it goes on where it stopped."""
    from sorites.cli.printing import said
    from sorites.pipeline import plan as plans
    from sorites.pipeline import runner
    from sorites.pipeline.fit import judged_too
    from sorites.progress import bars, noted

    plain = {
        "source": source,
        "models": tuple(model or ()),
        "scorers": tuple(scorer or ()),
        "fit": None if fit is None else {"source": fit},
        "labels": labels,
        "limit": limit,
        "seed": seed,
        "refine": refine,
    }
    plan = plans.make(
        _overridden(
            suite, shift, level, severity, shift_options(option, kernels=kernels, padding=padding, lenses=lenses), **plain
        )
    )
    if keep_features:
        typer.echo(f"features will take {runner.feature_bytes(plan) / 1e6:.1f} MB", err=True)
    elif plan.fit:
        typer.echo(f"outputs of {len(plan.fit)} training pictures will take {runner.training_bytes(plan) / 1e6:.1f} MB", err=True)
    if note := judged_too(plan):
        typer.echo(note, err=True)
    done: list[str] = []
    with bars() as bar:
        folder = runner.execute(
            plan, out, batch=batch, keep_features=keep_features, engine=engine, workers=workers, bar=noted(bar, done)
        )
    said(folder, worked=bool(done))


app.command()(metrics)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
) -> None:
    """Write one self-contained page about one or more runs."""
    from sorites.reports.report import report as write_report

    path = write_report(list(runs), out)
    typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nnext: open it in a browser")


@app.command()
def show(
    shift: Annotated[str, typer.Argument(metavar="SHIFT")],
    image: Annotated[Path, typer.Argument(metavar="IMAGE")],
    severity: Annotated[
        list[float] | None, typer.Option("--severity", metavar="X", help="Instead of the levels; may be repeated.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="An option of the shift; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N")] = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="The strip; default IMAGE-SHIFT.png here.")] = None,
) -> None:
    """Draw one picture along one dial, or at some settings of a grid, as a strip."""
    from sorites import core
    from sorites.drawings.strip import save, strip
    from sorites.sources._decode import decode

    dial, path = core.shift(shift, **shift_options(option)), out or Path(f"{image.stem}-{shift}.png")
    save(strip(decode(image), dial, severity or (), seed), path)
    typer.echo(f"wrote {path}\nnext: sorites run demo --shift {shift}{''.join(f' --option {text}' for text in option or ())}")


@app.command()
def build(
    suite: SuiteName,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder.")],
    source: SourceName = None,
    shift: Shifts = None,
    level: Levels = None,
    severity: Severities = None,
    kernels: Kernels = None,
    padding: Padding = None,
    lenses: Lenses = None,
    option: Options = None,
    labels: LabelFile = None,
    limit: Limit = None,
    seed: Seed = None,
    quality: Annotated[
        int | None, typer.Option("--quality", metavar="N", help="JPEG of this quality instead of lossless PNG.")
    ] = None,
    workers: Workers = None,
) -> None:
    """Write a suite's shifted pictures as a dataset folder."""
    from sorites.datasets.build import build as write_dataset
    from sorites.progress import bars

    given = shift_options(option, kernels=kernels, padding=padding, lenses=lenses)
    recipe = _overridden(suite, shift, level, severity, given, source=source, labels=labels, limit=limit, seed=seed)
    with bars() as bar:
        written, errors = write_dataset(recipe, out, quality=quality, workers=workers or os.cpu_count() or 1, bar=bar)
    for error in errors[:20]:
        typer.echo(f"not written: {error}", err=True)
    typer.echo(f"wrote {written} pictures to {out}" + (f"; {len(errors)} could not be made" if errors else ""))
    same = "".join(f" --shift {name}" for name in shift or ()) + (f" --labels {labels}" if labels else "")
    typer.echo(f"next: sorites run {suite} --source folder:{out}{same}")


@app.command()
def context(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder.")],
    source: Annotated[str, typer.Option("--source", metavar="NAME[:PATH]", help="Cut-outs: pictures with a mask.")] = "stamps",
    limit: Limit = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of every draw.")] = 0,
    drawn: Annotated[bool, typer.Option("--drawn", help="Draw every place instead of fetching photographs.")] = False,
) -> None:
    """Stand cut-outs in common and uncommon times, weathers and places."""
    from sorites.datasets.context import build_context

    things, pictures = build_context(out, source, seed=seed, limit=limit, drawn=drawn)
    typer.echo(f"wrote {pictures} pictures of {things} things to {out}")
    typer.echo(f"next: sorites run context --source context:{out}")


@app.command(name="list")
def list_(
    kind: Annotated[
        str | None, typer.Argument(metavar="[shifts|models|sources|metrics|scorers|measures|referees|suites]")
    ] = None,
) -> None:
    """List what can be named."""
    from sorites.cli.printing import listed

    typer.echo(listed(kind), nl=False)


@app.command()
def check(
    what: Annotated[str, typer.Argument(metavar="RUN|SUITE", help="A run folder, a suite's name or a .toml file.")],
) -> None:
    """Say whether a suite can run, or whether a run folder is whole."""
    from sorites.pipeline.check import check as look_at

    typer.echo(look_at(what))


app.add_typer(kernels_app, name="kernels")
app.add_typer(lens_app, name="lens")
app.add_typer(decompose_app, name="decompose")
app.command()(degrees)
app.command()(measure)
app.command()(score)


@app.callback(invoke_without_command=True)
def _version(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from sorites import __version__

        typer.echo(__version__)
        raise typer.Exit()


def main() -> None:
    """Errors a user can act on are one plain message and exit code 2; an interrupt keeps what is done. Of Ctrl-C typer
    makes an exit code, and a closed pipe it takes in silence."""
    from sorites.engines.interrupts import CODE, announced
    from sorites.errors import SoritesError

    try:
        with announced():
            app()
    except SoritesError as error:
        typer.echo(f"sorites: {error}", err=True)
        sys.exit(2)
    except SystemExit as left:
        if left.code == CODE:
            typer.echo("stopped; type the same command to go on", err=True)
        raise
