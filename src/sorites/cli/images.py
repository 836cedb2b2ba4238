"""``sorites show``, ``build`` and ``context``: make shifted images and composites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sorites.analysis.options import ShowOptions
from sorites.cli import options
from sorites.cli.derived import derived
from sorites.cli.output import say
from sorites.evaluation.options import BuildOptions

DatasetFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder to write.")]


@derived(ShowOptions)
def show(options: ShowOptions) -> None:
    """Draw one image at several severities of a shift.

    Writes the shifted versions side by side as one image. With --source,
    ground-truth boxes are drawn too, and a shift that the sample defines
    itself is used.
    """
    from sorites.reports.figures.strips import draw

    out = options.out or f"{Path(str(options.image)).stem}-{options.shift}.png"
    _, own = draw(replace(options, out=out))
    suite = "demo" if own or options.source is None else "boxes_demo"
    suite += f" --source {options.source}" if options.source is not None else ""
    more = "".join(f" --option {key}={value}" for key, value in (options.options or {}).items())
    say(f"wrote {out}\nnext: sorites run {suite} --shift {options.shift}{more}")


@derived(BuildOptions)
def build(options: BuildOptions) -> None:
    """Write the shifted images of a suite as a dataset folder.

    Writes image files with their settings, which "sorites run SUITE --source
    folder:DIR" evaluates.
    """
    from sorites.core.progress import bars
    from sorites.datasets.build import write_dataset

    with bars() as bar:
        built = write_dataset(options, bar)
    for error in built.errors[:20]:
        say(f"not written: {error}", err=True)
    failed = f"; {len(built.errors)} failed" if built.errors else ""
    say(f"wrote {built.images} images to {options.out}{failed}")
    same = "".join(f" --shift {name}" for name in options.shifts)
    same += "".join(f' --grid "{text}"' for text in options.grid)
    same += f" --labels {options.labels}" if options.labels else ""
    say(f"next: sorites run {options.suite} --source folder:{options.out}{same}")


def context(
    out: DatasetFolder,
    source: Annotated[
        str,
        typer.Option("--source", metavar="NAME[:PATH]", help="Source of the cut-outs: images with a mask."),
    ] = "stamps",
    limit: options.Limit = None,
    seed: options.Seed = 0,
    drawn: Annotated[
        bool, typer.Option("--drawn", help="Draw every background instead of downloading photographs.")
    ] = False,
    objects: Annotated[
        str | None,
        typer.Option(
            "--objects",
            metavar="N|M..N",
            help="Put this many objects of COCO classes into each image, with boxes.",
        ),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="PX",
            help="Side of the images in pixels; default: 256, or 640 with --objects.",
        ),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Compose cut-outs with common and uncommon times, weathers and places.

    Writes a dataset folder for the suite context; with --objects, images of
    several objects with their boxes.
    """
    if objects is not None:
        from sorites.datasets.context import build_scattered
        from sorites.sources.composites import SIDE

        count, boxes = build_scattered(
            out, source, objects=objects, size=size or SIDE, seed=seed, limit=limit, drawn=drawn
        )
        say(f"wrote {count} images with {boxes} boxes to {out}")
        say(f"next: sorites run boxes_demo --source context:{out}")
        return
    from sorites.datasets.context import SIZE, build_context

    count, images = build_context(out, source, seed=seed, limit=limit, drawn=drawn, size=size or SIZE)
    say(f"wrote {images} images of {count} objects to {out}")
    say(f"next: sorites run context --source context:{out}")
