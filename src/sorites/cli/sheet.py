"""The verb that draws one picture of a run at several settings, as each model judges it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import MaxPixels, RunFolder
from sorites.cli.output import say


def sheet(
    run: RunFolder,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="ID", help="The sample to draw; the default is the one on which models differ most."),
    ] = None,
    shift: Annotated[
        str | None, typer.Option("--shift", metavar="NAME", help="The shift; the default is the one where they differ most.")
    ] = None,
    light: Annotated[str, typer.Option("--light", metavar="on|off", help="Of a camera: the light of the room.")] = "on",
    settings: Annotated[
        int, typer.Option("--settings", metavar="N", min=2, help="The most settings to draw; of more, an even spread.")
    ] = 12,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The sheet to write: .png, .jpg or .webp.")] = Path(
        "sheet.png"
    ),
    max_pixels: MaxPixels = None,
) -> None:
    """Draw one picture at every setting, as each model judges it.

    Reads a run folder and makes the pictures again; writes one picture:
    settings across, models down, green and ticked where the model is right,
    red and crossed where it is wrong.
    """
    from sorites.drawings.run_sheet import run_sheet
    from sorites.drawings.strip import save

    save(run_sheet(run, sample, shift, light, settings), out)
    say(f"wrote {out}")
