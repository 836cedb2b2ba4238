"""The verb that lets a model choose the camera's settings, and compares ways to choose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.options import Format, LabelFile, Limit
from sorites.cli.output import say
from sorites.cli.studio_options import Bind, CameraSpec, Fingerprint, LampSpec, Megapixels, Place


def control(
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="The pictures: folder:PATH, stamps ...")
    ] = "stamps",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the comparison.")] = Path("control"),
    model: Annotated[str, typer.Option("--model", metavar="SPEC", help="The model whose answers count.")] = "lite0",
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="auto, fixed, aggregate, confidence, scorer, bisect, oracle; all if none."),
    ] = None,
    scorer: Annotated[
        str, typer.Option("--scorer", metavar="NAME", help="The scorer that the policy scorer uses; one that needs no fit.")
    ] = "energy",
    setting: Annotated[
        str | None, typer.Option("--setting", metavar="ISO,SHUTTER,F", help="The setting of the policy fixed.")
    ] = None,
    captured: Annotated[
        Path | None, typer.Option("--captured", metavar="DIR", help="Take the photographs of this capture instead of shooting.")
    ] = None,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Annotated[
        str, typer.Option("--grid", metavar="small|test|val|FILE.csv", help="The settings to choose from.")
    ] = "small",
    limit: Limit = None,
    labels: LabelFile = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="PX", min=16, max=4000, help="Scale pictures to this shorter side.")
    ] = 375,
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")] = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    format: Format = "table",
) -> None:
    """Choose settings by the model's own answers, and compare policies.

    Prints accuracy with its interval, shots per picture and what is gained
    over automatic exposure; writes control.csv. The same command goes on.
    """
    from sorites.cli.printing import format_frame
    from sorites.progress import bars
    from sorites.studio.capturing import Job
    from sorites.studio.controlling import Control, replayed
    from sorites.studio.controlling import control as compare
    from sorites.studio.devices import Wanted

    wanted = Wanted(camera, lamps, False, place, bind, fingerprint, megapixels=megapixels)
    job = Job(source, out, grid, 1, limit, labels, wanted, port=port, side=size)
    with bars() as bar:
        asked = Control(job, model, policy or (), scorer, setting)
        shot = compare(asked, lambda text: say(text, err=True), bar) if captured is None else replayed(asked, captured, bar)
        table, notes = shot
    for note in notes:
        say(note, err=True)
    say(format_frame(table, format), nl=False, exact=format != "table")
