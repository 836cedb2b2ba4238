"""``sorites lens tolerance``: one lens with an element out of place, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def tolerance(
    lens: Annotated[str, typer.Argument(metavar="LENS", help="A Zemax .zmx file, or the name of one of optiland's objectives.")],
    of: Annotated[str, typer.Option("--of", metavar="decentre|tilt|spacing", help="What is out of place.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the traced file.")],
    element: Annotated[
        int | None, typer.Option("--element", metavar="K", min=1, help="Which glass element; default the one that hurts most.")
    ] = None,
    stops: Annotated[
        str, typer.Option("--stops", metavar="X,Y,...", help="By how much: um, or arc minutes for tilt.")
    ] = "1,5,10,20,50,100",
    field: Annotated[float, typer.Option("--field", metavar="F", help="Part of the half field of view, beside the axis.")] = 0.7,
    refocus: Annotated[bool, typer.Option("--refocus", help="Move the sensor to the best focus at every stop.")] = False,
    glass: Annotated[
        list[str] | None, typer.Option("--glass", metavar="NAME=ND,VD", help="A glass no catalogue here has; may be repeated.")
    ] = None,
    format: Annotated[str, typer.Option("--format", metavar="table|csv|json", help="How to print.")] = "table",
) -> None:
    """Trace a lens with one element off the axis, tilted, or too far from the next, by steps."""
    from sorites.cli.printing import printed
    from sorites.errors import SoritesError
    from sorites.lenses.tolerances import table, traced
    from sorites.lenses.trace import read_glasses
    from sorites.progress import bars

    try:
        steps = [float(one) for one in stops.split(",")]
    except ValueError:
        raise SoritesError(f"--stops wants numbers such as 1,5,10, got {stops!r}") from None
    with bars() as bar:
        more = {"element": element, "refocus": refocus, "glasses": read_glasses(glass or ())}
        made, path = traced(lens, of, steps, field, out, bar, **more)
    told = made.about
    why = ", which hurts most" if told["chosen"] else ""
    typer.echo(printed(table(made), format), nl=False)
    typer.echo(f"element {told['element']} of {told['elements']}{why}; pixel {told['pitch_um']:.2f} um; wrote {path}", err=True)
    typer.echo(f"next: sorites run tolerances --shift {of} --option tolerances={path}", err=True)
