"""The verbs that make pictures: one picture along a dial, a shifted dataset, cut-outs in new places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say

DatasetFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder to write.")]


def show(
    shift: Annotated[str, typer.Argument(metavar="SHIFT", help='The name of a shift, from "sorites list shifts".')],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture file.")],
    severity: Annotated[
        list[float] | None,
        typer.Option("--severity", metavar="X", help="Draw this severity instead of the levels. May be repeated."),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="Set an option of the shift. May be repeated.")
    ] = None,
    seed: options.Seed = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The strip; the default is IMAGE-SHIFT.png in this folder.")
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Draw one picture along one dial, or at some settings of a grid.

    Reads a picture; writes a strip of its shifted versions as one picture.
    """
    from sorites import core
    from sorites.drawings.strip import save, strip
    from sorites.sources._decode import decode

    dial, path = core.shift(shift, **options.shift_options(option)), out or Path(f"{image.stem}-{shift}.png")
    save(strip(decode(image), dial, severity or (), seed), path)
    say(f"wrote {path}\nnext: sorites run demo --shift {shift}{''.join(f' --option {text}' for text in option or ())}")


def build(
    suite: options.SuiteName,
    out: DatasetFolder,
    source: options.SourceName = None,
    shift: options.Shifts = None,
    level: options.Levels = None,
    severity: options.Severities = None,
    kernels: options.Kernels = None,
    padding: options.Padding = None,
    lenses: options.Lenses = None,
    option: options.SuiteOptions = None,
    labels: options.LabelFile = None,
    limit: options.Limit = None,
    seed: options.SuiteSeed = None,
    quality: Annotated[
        int | None, typer.Option("--quality", metavar="N", help="Write JPEG of this quality instead of lossless PNG.")
    ] = None,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Write a suite's shifted pictures as a dataset folder.

    Reads a suite and its pictures; writes picture files and their settings,
    which "sorites run SUITE --source folder:DIR" evaluates.
    """
    from sorites.datasets.build import build as write_dataset
    from sorites.progress import bars

    given = options.shift_options(option, kernels=kernels, padding=padding, lenses=lenses)
    recipe = options.load_suite(suite, shift, level, severity, given, source=source, labels=labels, limit=limit, seed=seed)
    with bars() as bar:
        written, errors = write_dataset(recipe, out, quality=quality, workers=workers or os.cpu_count() or 1, bar=bar)
    for error in errors[:20]:
        say(f"not written: {error}", err=True)
    say(f"wrote {written} pictures to {out}" + (f"; {len(errors)} could not be made" if errors else ""))
    same = "".join(f" --shift {name}" for name in shift or ()) + (f" --labels {labels}" if labels else "")
    say(f"next: sorites run {suite} --source folder:{out}{same}")


def context(
    out: DatasetFolder,
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="Read cut-outs from here: pictures that have a mask.")
    ] = "stamps",
    limit: options.Limit = None,
    seed: options.Seed = 0,
    drawn: Annotated[bool, typer.Option("--drawn", help="Draw every place instead of fetching photographs of some.")] = False,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Place cut-outs in common and uncommon times, weathers and places.

    Reads pictures with masks; writes a dataset folder for the suite context.
    """
    from sorites.datasets.context import build_context

    things, pictures = build_context(out, source, seed=seed, limit=limit, drawn=drawn)
    say(f"wrote {pictures} pictures of {things} things to {out}")
    say(f"next: sorites run context --source context:{out}")
