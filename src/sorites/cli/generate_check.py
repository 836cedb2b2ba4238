"""The verb that checks generated pictures: whether a step of the severity shows, and what the filter would cut."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format
from sorites.cli.output import say


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help='The folder of "sorites generate pictures".')],
    referee: Annotated[
        str, typer.Option("--referee", metavar="NAME", help="The image-text encoder: open_clip:NAME@WEIGHTS, toy, cifar.")
    ] = "toy",
    second: Annotated[
        str | None, typer.Option("--second", metavar="NAME", help="The encoder of pictures alone: timm:NAME, lite0, toy:all.")
    ] = None,
    thresholds: Annotated[
        str, typer.Option("--thresholds", metavar="published|FILE", help="Thresholds of the out-of-class filter.")
    ] = "published",
    rule: Annotated[
        str, typer.Option("--rule", metavar="paper|code|text", help="The rule that says how many votes keep a picture.")
    ] = "paper",
    real: Annotated[
        Path | None, typer.Option("--real", metavar="DIR", help="Real pictures: name the three nearest to each generated one.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option("--features", metavar="NAME", help="With --real: Fréchet and kernel distance on this model's features."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Print the accuracy of this model at severity 0.")
    ] = None,
    plain: Annotated[
        Path | None, typer.Option("--plain", metavar="DIR", help="Pictures of plain prompts to compare with (--words).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The file of the nearest real pictures; default DIR/nearest.parquet."),
    ] = None,
    format: Format = "table",
) -> None:
    """Check generated pictures against their words.

    Reads generated pictures; prints how often a step of the severity raises
    the likeness to the shift's words, and what the out-of-class filter would
    cut; with --real also writes the nearest real pictures. With --features
    or --model it prints how real they are instead, of any folder of pictures.
    """
    from sorites.cli.printing import format_frame
    from sorites.generation.checking import check_pictures, check_realism

    found_real = check_realism(folder, plain, real, features, model)
    if found_real is not None:
        say("pictures at severity 0 against real ones; 95 % intervals", err=format != "table")
        say(format_frame(found_real, format), nl=False, exact=format != "table")
        return
    found = check_pictures(folder, referee, second, thresholds, rule, real, out)
    say("how often a step of the severity raises the likeness to the words of the shift (paper: 0.73 of steps from above 0)")
    say(format_frame(found.rises, format), nl=False, exact=format != "table")
    say("pictures before and after the out-of-class filter")
    say(format_frame(found.cut, format), nl=False, exact=format != "table")
    if found.nearest is not None:
        say(f"wrote {found.nearest}")
    say(f"next: sorites run cns_bench --source cns_bench:{folder}", err=True)
