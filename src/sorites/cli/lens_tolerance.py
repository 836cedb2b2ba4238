"""The verb that traces one lens with an element out of place, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format, Glasses
from sorites.cli.output import say


def tolerance(
    lens: Annotated[str, typer.Argument(metavar="LENS", help="A Zemax .zmx file, or the name of one of optiland's objectives.")],
    of: Annotated[str, typer.Option("--of", metavar="decentre|tilt|spacing", help="The kind of error.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that the traced file goes to.")],
    element: Annotated[
        int | None,
        typer.Option("--element", metavar="K", min=1, help="The glass element to move; the default is the one that hurts most."),
    ] = None,
    stops: Annotated[
        str, typer.Option("--stops", metavar="X,Y,...", help="The sizes of the error, in um, or in arc minutes for tilt.")
    ] = "1,5,10,20,50,100",
    field: Annotated[
        float, typer.Option("--field", metavar="F", help="Trace the axis and this part of the half field of view.")
    ] = 0.7,
    refocus: Annotated[bool, typer.Option("--refocus", help="Move the sensor to the best focus at every stop.")] = False,
    glass: Glasses = None,
    format: Format = "table",
) -> None:
    """Trace a lens with one element off the axis, tilted, or too far from the next.

    Reads a prescription; writes the kernels at every size of the error as one
    file for the suite tolerances, and prints one row per size.
    """
    from sorites.cli.printing import format_frame
    from sorites.lenses.tolerances import table, traced
    from sorites.lenses.trace import read_glasses
    from sorites.progress import bars
    from sorites.reading.texts import numbers

    steps = list(numbers(stops, "--stops"))
    with bars() as bar:
        more = {"element": element, "refocus": refocus, "glasses": read_glasses(glass or ())}
        tolerances, path = traced(lens, of, steps, field, out, bar, **more)
    about = tolerances.about
    why = ", which hurts most" if about["chosen"] else ""
    say(format_frame(table(tolerances), format), nl=False, exact=format != "table")
    say(f"element {about['element']} of {about['elements']}{why}; pixel {about['pitch_um']:.2f} um; wrote {path}", err=True)
    say(f"next: sorites run tolerances --shift {of} --option tolerances={path}", err=True)
