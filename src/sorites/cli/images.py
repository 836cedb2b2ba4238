"""``sorites show``, ``build`` and ``context``: make shifted images and composites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say

DatasetFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset folder to write.")]


def show(
    shift: Annotated[str, typer.Argument(metavar="SHIFT", help='A shift, from "sorites list shifts".')],
    image: Annotated[
        Path,
        typer.Argument(metavar="IMAGE", help="An image file, or with --source the name of an image of it."),
    ],
    severity: Annotated[
        list[float] | None,
        typer.Option(
            "--severity",
            metavar="X",
            help="Draw this severity instead of the published levels. May be repeated.",
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--setting",
            metavar="KEY=VALUE,...",
            help="Draw the settings of a grid with these parameters: iso=250. May be repeated.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="Set an option of the shift. May be repeated."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME:PATH",
            help=(
                "Take the image from this source, with its ground-truth boxes (coco:FILE, yolo:DIR) or its"
                " own shifts."
            ),
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Classes of the boxes: a file with one name per line, or coco.",
        ),
    ] = "coco",
    seed: options.Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The image to write; default: IMAGE-SHIFT.png."),
    ] = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Draw one image at several severities of a shift.

    Writes the shifted versions side by side as one image. With --source,
    ground-truth boxes are drawn too, and a shift that the sample defines
    itself is used.
    """
    from sorites import core
    from sorites.reports.figures.strips import save, source_strip, strip
    from sorites.sources.decode import decode

    shift_options, path = options.shift_options(option), out or Path(f"{image.stem}-{shift}.png")
    if source is None:
        configured = core.shift(shift, **shift_options)
        params = [options.key_values(text.split(","), "--setting") for text in setting or ()]
        sheet, run = strip(decode(image), configured, severity or (), seed, settings=params), "demo"
    else:
        sheet, own = source_strip(
            source, image.as_posix(), labels, shift, severity or (), seed, shift_options
        )
        run = f"{'demo' if own else 'boxes_demo'} --source {source}"
    save(sheet, path)
    say(
        f"wrote {path}\nnext: sorites run {run} --shift"
        f" {shift}{''.join(f' --option {text}' for text in option or ())}"
    )


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
        int | None,
        typer.Option("--quality", metavar="N", help="Write JPEG files of this quality instead of PNG."),
    ] = None,
    engine: options.EngineName = "local",
    workers: options.Workers = None,
    address: options.Address = None,
    gpus_per_worker: options.GpusPerWorker = 0.0,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Write the shifted images of a suite as a dataset folder.

    Writes image files with their settings, which "sorites run SUITE --source
    folder:DIR" evaluates.
    """
    from sorites.core.progress import bars
    from sorites.datasets.build import build as write_dataset

    shift_options = options.shift_options(option, kernels=kernels, padding=padding, lenses=lenses)
    recipe = options.load_suite(
        suite, shift, level, severity, shift_options, source=source, labels=labels, limit=limit, seed=seed
    )
    with bars() as bar:
        start = options.engine_of(engine, address, gpus_per_worker)
        written, errors = write_dataset(recipe, out, quality=quality, engine=start, workers=workers, bar=bar)
    if recipe.limit is not None:
        say(
            f"note: used at most {recipe.limit} samples of {recipe.source}; change this with --limit N",
            err=True,
        )
    for error in errors[:20]:
        say(f"not written: {error}", err=True)
    say(f"wrote {written} images to {out}" + (f"; {len(errors)} failed" if errors else ""))
    same = "".join(f" --shift {name}" for name in shift or ()) + (f" --labels {labels}" if labels else "")
    say(f"next: sorites run {suite} --source folder:{out}{same}")


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
