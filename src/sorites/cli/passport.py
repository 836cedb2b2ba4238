"""The verb that makes a model's passport."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli import options
from sorites.cli.output import say


def passport(
    model: Annotated[
        str, typer.Argument(metavar="[NAME=]MODEL", help="The model: lite0, timm:NAME, onnx:PATH, python:module:callable.")
    ],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME[:PATH]", help="Your own pictures: folder:PATH; the default is stamps."),
    ] = None,
    labels: options.LabelFile = None,
    battery: Annotated[
        str, typer.Option("--battery", metavar="short|standard|full|FILE", help="About 5 or 30 minutes, or hours, on two cores.")
    ] = "short",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to write; the default is passports/MODEL-BATTERY.")
    ] = None,
    limit: options.Limit = None,
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="The number of pictures a model sees at once.")] = 8,
    workers: options.Workers = None,
    max_pixels: options.MaxPixels = None,
) -> None:
    """Run a fixed battery on a model and write its passport.

    Reads a model and pictures; writes passport.html, passport.json, badge.svg,
    model_card.md and the runs behind them. Type the same command again to
    continue one that was stopped.
    """
    from sorites.passports.passport import PAGE, default_folder
    from sorites.passports.passport import passport as make
    from sorites.progress import told_bars

    folder = out or default_folder(model, battery)
    with told_bars() as bar:
        made = make(
            model, source=source, labels=labels, battery=battery, out=folder, limit=limit, batch=batch, workers=workers,
            bar=bar, say=lambda text: say(f"note: {text}", err=True),
        )  # fmt: skip
    from sorites.passports.card import share
    from sorites.passports.words import title

    say(f"clean    {share(made.clean)}\nshifted  {share(made.shifted)}")
    for dial in made.dials:
        mark = "  weak" if dial.shift in made.weakest else ""
        say(f"  {title(dial.shift):<22} half lost: {dial.words}{mark}")
    for part, why in made.left_out.items():
        say(f"note: {part} was left out: {why}", err=True)
    say(f"wrote {folder / PAGE}, passport.json, badge.svg, model_card.md\nnext: open it, or sorites compare OTHER {folder}")
