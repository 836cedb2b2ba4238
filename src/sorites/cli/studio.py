"""The verbs of the studio: try it out, look at the devices, capture, calibrate, look through the pictures, control."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import LabelFile, Limit
from sorites.cli.output import say
from sorites.cli.studio_control import control
from sorites.cli.studio_devices import calibrate, check
from sorites.cli.studio_options import AutoShots, Bind, CameraSpec, Fingerprint, LampSpec, Megapixels, OutFolder, Place
from sorites.cli.studio_review import review, sheets

if TYPE_CHECKING:
    from sorites.studio.capturing import Summary

app = typer.Typer(
    help="Photograph pictures on a screen under lamps, as ImageNet-ES was made; virtual devices stand in.", no_args_is_help=True
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder that everything goes to.")] = Path("studio"),
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="The pictures: stamps, folder:PATH ...")
    ] = "stamps",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The number of pictures.")] = 10,
    grid: Annotated[str, typer.Option("--grid", metavar="small|test|val|FILE", help="The settings.")] = "small",
    auto: Annotated[int, typer.Option("--auto", metavar="N", min=0, help="Automatic shots per light.")] = 1,
    megapixels: Megapixels = 0.5,
    model: Annotated[str, typer.Option("--model", metavar="SPEC", help="The model that judges the photographs.")] = "lite0",
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself; the virtual camera sees it.")
    ] = False,
) -> None:
    """Do the whole path in the virtual studio: show, light, shoot, straighten, judge.

    Writes a folder as ImageNet-ES is published, a run and report.html. A
    camera, lamps and a television are servers on this machine.
    """
    from sorites.cli.studio_demo import run_demo

    run_demo(out, source, limit, grid, auto, megapixels, model, browser)


@app.command()
def capture(
    source: Annotated[str, typer.Option("--source", metavar="NAME[:PATH]", help="The pictures: folder:PATH, stamps ...")],
    out: OutFolder,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Annotated[
        str, typer.Option("--grid", metavar="test|val|small|FILE.csv", help="The settings of every picture.")
    ] = "test",
    auto: AutoShots = None,
    limit: Limit = None,
    labels: LabelFile = None,
    size: Annotated[
        int | None, typer.Option("--size", metavar="PX", min=16, max=4000, help="Scale pictures to this shorter side first.")
    ] = None,
    place: Place = "centre",
    originals: Annotated[
        str,
        typer.Option("--originals", metavar="keep|jpeg|drop", help="Keep the camera's files, make them smaller, or drop them."),
    ] = "keep",
    card: Annotated[
        str, typer.Option("--card", metavar="keep|clear", help="Delete each shot from the card once it is safe here.")
    ] = "keep",
    calibrate_every: Annotated[
        int, typer.Option("--calibrate-every", metavar="N", min=1, help="Pictures between two calibrations.")
    ] = 20,
    reshoot: Annotated[bool, typer.Option("--reshoot", help="Shoot again the pictures that reviewers flagged.")] = False,
    brightness: Annotated[float, typer.Option("--brightness", min=1, max=100, help="Of the lamps when on, in percent.")] = 100.0,
    kelvin: Annotated[float, typer.Option("--kelvin", min=2000, max=6500, help="The colour temperature of the lamps.")] = 4000.0,
    settle: Annotated[float, typer.Option("--settle", metavar="S", min=0, max=600, help="Seconds until lamps are steady.")] = 2.0,
    patience: Annotated[float, typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for a person.")] = 600.0,
    bind: Bind = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")] = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself, even with the virtual camera.")
    ] = False,
) -> None:
    """Photograph every picture under every light at every setting.

    Reads any source; writes a folder in the layout of ImageNet-ES and one log
    of all shots. Stop it at any time: the same command goes on.
    """
    from sorites.errors import SoritesError
    from sorites.progress import bars
    from sorites.studio.capture import Options
    from sorites.studio.capturing import Job, capture_all
    from sorites.studio.devices import Wanted
    from sorites.studio.lamps import Look
    from sorites.studio.originals import checked_choice

    if card not in ("keep", "clear"):
        raise SoritesError(f"--card wants keep or clear, got {card!r}")
    wanted = Wanted(camera, lamps, browser, place, bind, fingerprint, Look(brightness, kelvin), settle, megapixels=megapixels)
    options = Options(checked_choice(originals), card == "clear", calibrate_every, patience_s=patience)
    job = Job(source, out, grid, auto, limit, labels, wanted, options, reshoot, port, size)
    with bars() as bar:
        done = capture_all(job, lambda text: say(text, err=True), bar)
    tell(done, labels)


def tell(done: Summary, labels: str | None) -> None:
    """Print what a capture did and what to type next."""
    say("\n".join(done.lines()))
    named = f" --labels {labels}" if labels else ""
    say(
        f"next: sorites run imagenet_es --source imagenet_es:{done.root}{named}\n      sorites studio sheets {done.root}",
        err=True,
    )


app.command()(check)
app.command()(calibrate)
app.command()(sheets)
app.command()(review)
app.command()(control)
