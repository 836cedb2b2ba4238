"""The verbs of the studio: try it out, look at the devices, capture, calibrate, look through the
images, control.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, LabelFile, Limit
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.apps.studio.capture import Summary

# Options that the verbs of the studio share.


CameraSpec = Annotated[
    str,
    typer.Option(
        "--camera",
        metavar="ccapi:URL|ptp|virtual",
        help="The camera: Canon over HTTP, USB, or the virtual one.",
    ),
]
LampSpec = Annotated[
    str,
    typer.Option(
        "--lamps",
        metavar="hue:IP|hue1:IP|virtual|none",
        help="The lamps: a Hue bridge (v2, v1), virtual, none.",
    ),
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the capture.")]
CaptureFolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help='The folder of a capture, made by "sorites studio capture".')
]
Bind = Annotated[
    str,
    typer.Option(
        "--bind",
        metavar="IP",
        help="The address that pages are served at; 0.0.0.0 lets other devices open them.",
    ),
]
Fingerprint = Annotated[
    str | None,
    typer.Option("--fingerprint", metavar="SHA256", help="The certificate of a device that signs its own."),
]
Megapixels = Annotated[
    float,
    typer.Option(
        "--megapixels",
        metavar="X",
        min=0.05,
        max=26,
        help="The size of the virtual camera's frames, in millions.",
    ),
]
Place = Annotated[
    str, typer.Option("--place", metavar="centre|left-top", help="The place on the screen for images.")
]
AutoShots = Annotated[
    int | None,
    typer.Option(
        "--auto", metavar="N", min=0, max=99, help="Automatic shots per light; the default is five."
    ),
]


# The verb that lets a model choose the camera's settings, and compares ways to choose.


def control(
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="The images: folder:PATH, stamps ...")
    ] = "stamps",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder of the comparison.")] = Path(
        "control"
    ),
    model: Annotated[
        str, typer.Option("--model", metavar="SPEC", help="The model whose answers count.")
    ] = "lite0",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="auto, fixed, aggregate, confidence, scorer, bisect, oracle; all if none.",
        ),
    ] = None,
    scorer: Annotated[
        str,
        typer.Option(
            "--scorer", metavar="NAME", help="The scorer that the policy scorer uses; one that needs no fit."
        ),
    ] = "energy",
    setting: Annotated[
        str | None,
        typer.Option("--setting", metavar="ISO,SHUTTER,F", help="The setting of the policy fixed."),
    ] = None,
    captured: Annotated[
        Path | None,
        typer.Option(
            "--captured", metavar="DIR", help="Take the photographs of this capture instead of shooting."
        ),
    ] = None,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Annotated[
        str, typer.Option("--grid", metavar="small|test|val|FILE.csv", help="The settings to choose from.")
    ] = "small",
    limit: Limit = None,
    labels: LabelFile = None,
    size: Annotated[
        int | None,
        typer.Option("--size", metavar="PX", min=16, max=4000, help="Scale images to this shorter side."),
    ] = 375,
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")
    ] = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    format: Format = "table",
) -> None:
    """Choose settings by the model's own answers, and compare policies.

    Prints accuracy with its interval, shots per image and what is gained
    over automatic exposure; writes control.csv. The same command goes on.
    """
    from sorites.apps.studio.capture import Job
    from sorites.apps.studio.control import Control, replayed
    from sorites.apps.studio.control import control as compare
    from sorites.apps.studio.devices import Wanted
    from sorites.cli.printing import format_frame
    from sorites.core.progress import bars

    wanted = Wanted(camera, lamps, False, place, bind, fingerprint, megapixels=megapixels)
    job = Job(source, out, grid, 1, limit, labels, wanted, port=port, side=size)
    with bars() as bar:
        asked = Control(job, model, policy or (), scorer, setting)
        shot = (
            compare(asked, lambda text: say(text, err=True), bar)
            if captured is None
            else replayed(asked, captured, bar)
        )
        table, notes = shot
    for note in notes:
        say(note, err=True)
    say(format_frame(table, format), nl=False, exact=format != "table")


# The whole path in the virtual studio: capture, run, report.


# The shorter side of the demo's images, px: the camera's frame then has about as many pixels as
# they.
SIDE = 375


def run_demo(
    out: Path, source: str, limit: int, grid: str, auto: int, megapixels: float, model: str, browser: bool
) -> None:
    """Capture some images virtually, judge the photographs with a model and write the report."""
    from sorites.apps.studio.capture import Job, Options, capture_all
    from sorites.apps.studio.devices import Wanted
    from sorites.core.progress import bars
    from sorites.evaluation.run import run
    from sorites.reports.report import report

    job = Job(
        source,
        out,
        grid,
        auto,
        limit,
        None,
        Wanted(browser=browser, megapixels=megapixels),
        Options(originals="drop"),
        side=SIDE,
    )
    say(
        "virtual studio: a CCAPI camera, a Hue bridge and a television on this machine; no real device is"
        " used",
        err=True,
    )
    with bars() as bar:
        done = capture_all(job, lambda text: say(text, err=True), bar)
        run(
            "imagenet_es",
            source=f"imagenet_es:{out}",
            models=[model],
            labels="imagenet",
            out=out / "run",
            bar=bar,
        )
    say("\n".join(done.lines()))
    page = report([out / "run"], out / "report.html")
    say(f"wrote {page}\nnext: open it in a browser, or: sorites studio sheets {out}", err=True)


# The verbs that look at devices: what is there, what it can do, and how the camera stands in front of the
# screen.


MULTICAST = (
    "Routers with guest networks keep devices apart; name them: --camera ccapi:http://IP:8080 --lamps hue:IP"
)


def check(
    camera: Annotated[
        str | None, typer.Option("--camera", metavar="ccapi:URL|ptp|virtual", help="The camera to ask.")
    ] = None,
    lamps: Annotated[
        str | None,
        typer.Option("--lamps", metavar="hue:IP|hue1:IP|virtual|none", help="The lamps to switch."),
    ] = None,
    grid: Annotated[
        str, typer.Option("--grid", metavar="test|val|FILE.csv", help="The settings to compare with.")
    ] = "test",
    pair: Annotated[
        bool, typer.Option("--pair", help="Pair with the bridge: press its link button within 30 s.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=60, help="The time to search for devices.")
    ] = 3.0,
    fingerprint: Fingerprint = None,
) -> None:
    """Find devices, say what they are, and how much of the grid they can take.

    Without --camera and --lamps the network and USB are searched. With them
    the devices are asked; lamps are switched on and off.
    """
    from sorites.apps.studio.calibration import virtual_for
    from sorites.apps.studio.devices import Wanted, check_specs, found_devices, paired
    from sorites.apps.studio.devices import check as lines
    from sorites.apps.studio.references import grid as named_grid

    if camera is None and lamps is None:
        found = list(found_devices(seconds))
        say(
            "\n".join(found)
            if found
            else "no device was found. Are they switched on and in the same network? " + MULTICAST
        )
        return
    wanted = Wanted(camera or "none", lamps or "none", fingerprint=fingerprint)
    if camera is not None:
        check_specs(wanted)
    if pair and lamps is not None:
        said = paired(lamps, lambda text: say(text, err=True))
        say("paired; the key is kept in the cache" + (f"\ncertificate {said}" if said else ""))
    with virtual_for(wanted) as virtual:
        for line in lines(wanted, named_grid(grid), virtual):
            say(line)


def calibrate(
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "none",
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="WxH", help="The part of the screen that images take, in its pixels."
        ),
    ] = "500x500",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The photograph of the markers.")] = Path(
        "calibration.jpg"
    ),
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")
    ] = 0,
    fingerprint: Fingerprint = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself, even with the virtual camera.")
    ] = False,
) -> None:
    """Show markers, photograph them, and say how the camera stands.

    Prints the homography and warnings: tilted, out of focus, cut off. A
    capture calibrates by itself; this verb is for setting up.
    """
    from sorites.apps.studio.calibration import calibrated
    from sorites.apps.studio.devices import Wanted
    from sorites.io.files import write_bytes

    wanted = Wanted(camera, lamps, browser, place, bind, fingerprint)
    found = calibrated(wanted, stage, port, lambda text: say(text, err=True))
    write_bytes(found.photo.data, out)
    wide, high = found.found.frame
    say(
        f"{found.found.markers} markers, corners {found.found.off_px:.2f} px off a plane, frame of {wide} x"
        f" {high} px"
    )
    for row in found.matrix:
        say("  " + "  ".join(f"{value:12.6g}" for value in row))
    for warning in found.found.warnings:
        say(f"warning: {warning}")
    if not found.found.warnings:
        say("the camera stands straight, sharp and sees the whole stage")
    say(f"wrote {out}", err=True)


# The verbs that look through a capture: sheets, and the review of them.


def sheets(folder: CaptureFolderArgument) -> None:
    """Compose one sheet per image: all settings under both lights.

    Reads the folder of a capture; writes DIR/sheets/CLASS/NAME.jpg.
    """
    from sorites.apps.studio.folder import open_folder
    from sorites.apps.studio.sheets import images_of, write_sheets
    from sorites.core.progress import bars

    opened = open_folder(folder)
    with bars() as bar:
        made = write_sheets(opened, bar("sheets", len(images_of(opened))))
    say(f"{len(made)} sheets are in {folder / 'sheets'}")
    say(f"next: sorites studio review {folder}", err=True)


def review(
    folder: CaptureFolderArgument,
    reviewers: Annotated[
        str, typer.Option("--reviewers", metavar="NAME,NAME", help="The reviewers; each gets their own link.")
    ] = "first,second,third",
    bind: Bind = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the pages.")
    ] = 0,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="Stop after this many seconds.", hidden=True)
    ] = None,
) -> None:
    """Serve the sheets to reviewers, who flag what is wrong.

    Crop error, missed image, label mismatch, note. Anyone's flag counts:
    "sorites studio capture --reshoot" repeats just those images.
    """
    from sorites.apps.studio.folder import open_folder
    from sorites.apps.studio.review.server import serve

    serve(open_folder(folder), reviewers, bind, port, seconds, say)


app = typer.Typer(
    help="Photograph images on a screen under lamps, as ImageNet-ES was made; virtual devices stand in.",
    no_args_is_help=True,
)


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="The folder that everything goes to.")
    ] = Path("studio"),
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="The images: stamps, folder:PATH ...")
    ] = "stamps",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="The number of images.")] = 10,
    grid: Annotated[
        str, typer.Option("--grid", metavar="small|test|val|FILE", help="The settings.")
    ] = "small",
    auto: Annotated[int, typer.Option("--auto", metavar="N", min=0, help="Automatic shots per light.")] = 1,
    megapixels: Megapixels = 0.5,
    model: Annotated[
        str, typer.Option("--model", metavar="SPEC", help="The model that judges the photographs.")
    ] = "lite0",
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself; the virtual camera sees it.")
    ] = False,
) -> None:
    """Do the whole path in the virtual studio: show, light, shoot, straighten, judge.

    Writes a folder as ImageNet-ES is published, a run and report.html. A
    camera, lamps and a television are servers on this machine.
    """

    run_demo(out, source, limit, grid, auto, megapixels, model, browser)


@app.command()
def capture(
    source: Annotated[
        str, typer.Option("--source", metavar="NAME[:PATH]", help="The images: folder:PATH, stamps ...")
    ],
    out: OutFolder,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Annotated[
        str, typer.Option("--grid", metavar="test|val|small|FILE.csv", help="The settings of every image.")
    ] = "test",
    auto: AutoShots = None,
    limit: Limit = None,
    labels: LabelFile = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size", metavar="PX", min=16, max=4000, help="Scale images to this shorter side first."
        ),
    ] = None,
    place: Place = "centre",
    originals: Annotated[
        str,
        typer.Option(
            "--originals",
            metavar="keep|jpeg|drop",
            help="Keep the camera's files, make them smaller, or drop them.",
        ),
    ] = "keep",
    card: Annotated[
        str,
        typer.Option(
            "--card", metavar="keep|clear", help="Delete each shot from the card once it is safe here."
        ),
    ] = "keep",
    calibrate_every: Annotated[
        int, typer.Option("--calibrate-every", metavar="N", min=1, help="Images between two calibrations.")
    ] = 20,
    reshoot: Annotated[
        bool, typer.Option("--reshoot", help="Shoot again the images that reviewers flagged.")
    ] = False,
    brightness: Annotated[
        float, typer.Option("--brightness", min=1, max=100, help="Of the lamps when on, in percent.")
    ] = 100.0,
    kelvin: Annotated[
        float, typer.Option("--kelvin", min=2000, max=6500, help="The colour temperature of the lamps.")
    ] = 4000.0,
    settle: Annotated[
        float, typer.Option("--settle", metavar="S", min=0, max=600, help="Seconds until lamps are steady.")
    ] = 2.0,
    patience: Annotated[
        float, typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for a person.")
    ] = 600.0,
    bind: Bind = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")
    ] = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself, even with the virtual camera.")
    ] = False,
) -> None:
    """Photograph every image under every light at every setting.

    Reads any source; writes a folder in the layout of ImageNet-ES and one log
    of all shots. Stop it at any time: the same command goes on.
    """
    from sorites.apps.studio.capture import Job, Options, capture_all
    from sorites.apps.studio.devices import Wanted
    from sorites.apps.studio.folder import checked_choice
    from sorites.apps.studio.lamps import Look
    from sorites.core.errors import SoritesError
    from sorites.core.progress import bars

    if card not in ("keep", "clear"):
        raise SoritesError(f"--card wants keep or clear, got {card!r}")
    wanted = Wanted(
        camera,
        lamps,
        browser,
        place,
        bind,
        fingerprint,
        Look(brightness, kelvin),
        settle,
        megapixels=megapixels,
    )
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
        f"next: sorites run imagenet_es --source imagenet_es:{done.root}{named}\n      sorites studio sheets"
        f" {done.root}",
        err=True,
    )


app.command()(check)
app.command()(calibrate)
app.command()(sheets)
app.command()(review)
app.command()(control)
