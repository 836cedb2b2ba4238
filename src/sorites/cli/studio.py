"""``sorites studio``: photograph images on a screen with a real or virtual camera."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sorites.cli.options import Format, LabelFile, Limit
from sorites.cli.output import say

if TYPE_CHECKING:
    from sorites.apps.studio.session import Summary

CameraSpec = Annotated[
    str,
    typer.Option(
        "--camera",
        metavar="ccapi:URL|ptp|uvc:PLACE|libcamera:N|virtual",
        help="Camera: Canon over HTTP, USB, webcam or stream, camera module, or virtual.",
    ),
]
LampSpec = Annotated[
    str,
    typer.Option(
        "--lamps",
        metavar="hue:IP[/LAMP,LAMP]|hue1:IP|virtual|none",
        help="Lamps: a Hue bridge (API v2 or v1) or some of its lamps by id or name, virtual, or none.",
    ),
]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The capture folder.")]
CaptureFolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help='A capture folder, made by "sorites studio capture".')
]
Bind = Annotated[
    str,
    typer.Option(
        "--bind",
        metavar="IP",
        help="Address to serve pages on; 0.0.0.0 allows other devices to open them.",
    ),
]
Fingerprint = Annotated[
    str | None,
    typer.Option("--fingerprint", metavar="SHA256", help="Fingerprint of a self-signed device certificate."),
]
Megapixels = Annotated[
    float,
    typer.Option(
        "--megapixels",
        metavar="X",
        min=0.05,
        max=26,
        help="Resolution of the virtual camera, in megapixels.",
    ),
]
Place = Annotated[
    str, typer.Option("--place", metavar="centre|left-top", help="Position of the images on the screen.")
]
AutoShots = Annotated[
    int | None,
    typer.Option("--auto", metavar="N", min=0, max=99, help="Automatic shots per light; default: five."),
]
Port = Annotated[
    int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port of the pages; 0: any free one.")
]
OwnBrowser = Annotated[
    bool,
    typer.Option("--browser", help="Open the screen page in your own browser, even with the virtual camera."),
]
ImageSource = Annotated[
    str,
    typer.Option("--source", metavar="NAME[:PATH]", help="Source of the images: folder:PATH, stamps ..."),
]
ModelSpec = Annotated[str, typer.Option("--model", metavar="SPEC", help="Model to evaluate.")]
Grid = Annotated[
    str,
    typer.Option(
        "--grid",
        metavar="small|test|val|auto|FILE.csv",
        help="Grid of camera settings; auto has automatic shots only.",
    ),
]
FollowLinks = Annotated[
    bool,
    typer.Option("--follow-links", help="Follow symbolic links that leave the folder of the source."),
]
ShorterSide = Annotated[
    int | None,
    typer.Option(
        "--size", metavar="PX", min=16, max=4000, help="Scale the shorter side of images to this first."
    ),
]


def control(
    source: ImageSource = "stamps",
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")] = Path("control"),
    model: ModelSpec = "lite0",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="auto, fixed, aggregate, confidence, scorer, bisect, oracle; default: all.",
        ),
    ] = None,
    scorer: Annotated[
        str,
        typer.Option(
            "--scorer", metavar="NAME", help="Scorer for the policy scorer; it must not need fitting."
        ),
    ] = "energy",
    setting: Annotated[
        str | None,
        typer.Option("--setting", metavar="ISO,SHUTTER,F", help="Setting for the policy fixed."),
    ] = None,
    captured: Annotated[
        Path | None,
        typer.Option(
            "--captured",
            metavar="DIR",
            help="Use the photographs of this capture instead of taking new ones.",
        ),
    ] = None,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Grid = "small",
    limit: Limit = None,
    labels: LabelFile = None,
    size: ShorterSide = 375,
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    follow_links: FollowLinks = False,
    format: Format = "table",
) -> None:
    """Compare policies that choose camera settings from model outputs.

    Prints accuracy with its interval, shots per image and the gain over
    automatic exposure; writes control.csv. Run the same command again to
    continue after a stop.
    """
    from sorites.apps.studio.control import ControlOptions, replay
    from sorites.apps.studio.control import control as compare
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.apps.studio.session import Job
    from sorites.cli.printing import print_frame
    from sorites.core.progress import bars

    devices = DeviceOptions(camera, lamps, False, place, bind, fingerprint, megapixels=megapixels)
    job = Job(source, out, grid, 1, limit, labels, devices, port=port, side=size, follow_links=follow_links)
    with bars() as bar:
        experiment = ControlOptions(job, model, policy or (), scorer, setting)
        table, notes = (
            compare(experiment, lambda text: say(text, err=True), bar)
            if captured is None
            else replay(experiment, captured, bar)
        )
    for note in notes:
        say(note, err=True)
    print_frame(table, format)


# Shorter side of the demo's images in pixels, close to the resolution of the virtual camera.
SIDE = 375


def run_demo(
    out: Path, source: str, limit: int, grid: str, auto: int, megapixels: float, model: str, browser: bool
) -> None:
    """Capture images with virtual devices, evaluate a model on the photographs and write the report."""
    from sorites.apps.studio.capture import Options
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.apps.studio.session import Job, capture_all
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
        DeviceOptions(browser=browser, megapixels=megapixels),
        Options(originals="drop"),
        side=SIDE,
    )
    say(
        "virtual studio: simulated CCAPI camera, Hue bridge and television; no real device is used",
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


MULTICAST = (
    "Guest networks often isolate devices; give the addresses: --camera ccapi:http://IP:8080 --lamps hue:IP"
)


def check(
    camera: Annotated[
        str | None,
        typer.Option(
            "--camera", metavar="ccapi:URL|ptp|uvc:PLACE|libcamera:N|virtual", help="Camera to check."
        ),
    ] = None,
    lamps: Annotated[
        str | None,
        typer.Option("--lamps", metavar="hue:IP[/LAMP,LAMP]|hue1:IP|virtual|none", help="Lamps to check."),
    ] = None,
    grid: Annotated[
        str, typer.Option("--grid", metavar="test|val|FILE.csv", help="Grid of camera settings to check.")
    ] = "test",
    pair: Annotated[
        bool, typer.Option("--pair", help="Pair with the bridge: press its link button within 30 s.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, max=60, help="How long to search for devices, in seconds.")
    ] = 3.0,
    fingerprint: Fingerprint = None,
) -> None:
    """Find devices and check which settings of the grid they support.

    Without --camera and --lamps, searches the network and USB. With them,
    queries the devices and switches the lamps on and off.
    """
    from sorites.apps.studio.calibration import virtual_studio
    from sorites.apps.studio.devices import DeviceOptions, check_specs, find_devices, pair_bridge
    from sorites.apps.studio.devices import check as lines
    from sorites.apps.studio.references import grid as named_grid

    if camera is None and lamps is None and not pair:
        devices = list(find_devices(seconds))
        say(
            "\n".join(devices)
            if devices
            else "no device found. Are they switched on and in the same network? " + MULTICAST
        )
        return
    requested = DeviceOptions(camera or "none", lamps or "none", fingerprint=fingerprint)
    check_specs(requested)
    if pair:
        certificate = pair_bridge(requested.lamps, lambda text: say(text, err=True))
        say(
            "paired; the key is stored in the cache" + (f"\ncertificate {certificate}" if certificate else "")
        )
    with virtual_studio(requested) as virtual:
        for line in lines(requested, named_grid(grid), virtual):
            say(line)


def calibrate(
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "none",
    stage: Annotated[
        str,
        typer.Option("--stage", metavar="WxH", help="Size of the image area on the screen, in pixels."),
    ] = "500x500",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The photograph to write.")] = Path(
        "calibration.jpg"
    ),
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    fingerprint: Fingerprint = None,
    browser: OwnBrowser = False,
) -> None:
    """Photograph markers to check the position of the camera.

    Prints the homography and warnings (tilted, out of focus, cut off). A
    capture calibrates itself; use this verb to set up the camera.
    """
    from sorites.apps.studio.calibration import calibrate_once
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.io.files import write_bytes

    devices = DeviceOptions(camera, lamps, browser, place, bind, fingerprint)
    calibration = calibrate_once(devices, stage, port, lambda text: say(text, err=True))
    write_bytes(calibration.photo.data, out)
    detected = calibration.found
    width, height = detected.frame
    say(
        f"{detected.markers} markers, corners {detected.off_px:.2f} px off a plane, frame of {width} x"
        f" {height} px"
    )
    for row in calibration.matrix:
        say("  " + "  ".join(f"{value:12.6g}" for value in row))
    for warning in detected.warnings:
        say(f"warning: {warning}")
    if not detected.warnings:
        say("camera ok: straight, in focus, and the whole image area is visible")
    say(f"wrote {out}", err=True)


def characterize(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="RAW files: DIR/flat (pairs, ordered by name) and DIR/dark.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The suite to write.")] = Path(
        "camera.toml"
    ),
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Name of the camera.")] = "measured",
    iso: Annotated[
        list[float] | None,
        typer.Option(
            "--iso", metavar="N", min=1, help="ISO to photograph, repeatable; or ISO of files without it."
        ),
    ] = None,
    camera: Annotated[
        str | None,
        typer.Option(
            "--camera",
            metavar="ccapi:URL|ptp|uvc:PLACE|libcamera:N|virtual",
            help="Take the frames with this camera, of a white and of a black screen.",
        ),
    ] = None,
    stage: Annotated[
        str, typer.Option("--stage", metavar="WxH", help="Size of the white area on the screen, in pixels.")
    ] = "500x500",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    format: Format = "table",
) -> None:
    """Measure gain, read noise and full well of a camera by photon transfer.

    Writes a suite whose simulated camera has this sensor. With --camera, 20
    RAW files per ISO are taken first and kept in DIR.
    """
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.apps.studio.measuring.sessions import characterize_camera
    from sorites.cli.printing import print_frame

    devices = (
        None
        if camera is None
        else DeviceOptions(camera, "none", False, "centre", bind, fingerprint, megapixels=megapixels)
    )
    table, notes = characterize_camera(
        folder, out, name, iso or (), devices, stage, port, lambda text: say(text, err=True)
    )
    print_frame(table, format)
    for note in notes:
        say(f"note: {note}", err=True)
    say(f"wrote {out}\nnext: sorites run {out} --source folder:PHOTOS", err=True)


def screen(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The suite to write.")] = Path(
        "screen.toml"
    ),
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "none",
    stage: Annotated[
        str, typer.Option("--stage", metavar="WxH", help="Size of the grey area on the screen, in pixels.")
    ] = "500x500",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    format: Format = "table",
) -> None:
    """Measure gamma, veil and flicker of the screen for the simulated camera.

    Photographs a grey ramp and repeated whites as RAW files, under each light
    of the lamps, and writes a suite whose simulated screen has these values.
    """
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.apps.studio.measuring.sessions import measure_screen_light
    from sorites.cli.printing import print_frame

    devices = DeviceOptions(camera, lamps, False, "centre", bind, fingerprint, megapixels=megapixels)
    print_frame(measure_screen_light(devices, out, stage, port, lambda text: say(text, err=True)), format)
    say(f"wrote {out}\nnext: sorites run {out} --source folder:PHOTOS", err=True)


def sheets(folder: CaptureFolderArgument) -> None:
    """Write one contact sheet per image: all settings under both lights.

    Writes DIR/sheets/CLASS/NAME.jpg.
    """
    from sorites.apps.studio.folder import open_folder
    from sorites.apps.studio.sheets import images_of, write_sheets
    from sorites.core.progress import bars

    opened = open_folder(folder)
    with bars() as bar:
        written = write_sheets(opened, bar("sheets", len(images_of(opened))))
    say(f"wrote {len(written)} sheets to {folder / 'sheets'}")
    say(f"next: sorites studio review {folder}", err=True)


def review(
    folder: CaptureFolderArgument,
    reviewers: Annotated[
        str,
        typer.Option("--reviewers", metavar="NAME,NAME", help="Names of the reviewers; each gets a link."),
    ] = "first,second,third",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="Stop after this many seconds.", hidden=True)
    ] = None,
) -> None:
    """Serve the contact sheets to reviewers, who flag errors.

    Flags: crop error, missed image, label mismatch, note. "sorites studio
    capture --reshoot" takes every flagged photograph again.
    """
    from sorites.apps.studio.folder import open_folder
    from sorites.apps.studio.review.server import serve

    serve(open_folder(folder), reviewers, bind, port, seconds, say)


def rectify(
    folder: CaptureFolderArgument,
    calibration: Annotated[
        str,
        typer.Option(
            "--calibration",
            metavar="own|next|best",
            help="Calibration before the photograph, after it, or the one that fits its image better.",
        ),
    ] = "own",
    quality: Annotated[
        int, typer.Option("--quality", metavar="N", min=1, max=100, help="JPEG quality.")
    ] = 95,
) -> None:
    """Rectify the photographs of a capture again, from the camera's files.

    Needs a capture with --originals keep or jpeg. Restores damaged and
    deleted photographs too. A crop error that was flagged no longer counts;
    other flags do until the photograph is taken again.
    """
    from sorites.apps.studio.folder import open_folder
    from sorites.apps.studio.review.rectify import rectify_again
    from sorites.core.progress import bars

    opened = open_folder(folder)
    with bars() as bar:
        done = rectify_again(opened, calibration, quality, bar)
    count = len(done.changed) + done.same + len(done.left_out)
    say(f"of {count} photographs, {len(done.changed)} changed and {done.same} are as before")
    if done.left_out:
        path, reason = next(iter(done.left_out.items()))
        say(f"{len(done.left_out)} could not be rectified, for example {path}: {reason}", err=True)


app = typer.Typer(
    help="Photograph images on a screen, as in ImageNet-ES, with real or virtual devices.",
    no_args_is_help=True,
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")] = Path("studio"),
    source: ImageSource = "stamps",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Number of images.")] = 10,
    grid: Grid = "small",
    auto: Annotated[int, typer.Option("--auto", metavar="N", min=0, help="Automatic shots per light.")] = 1,
    megapixels: Megapixels = 0.5,
    model: ModelSpec = "lite0",
    browser: OwnBrowser = False,
) -> None:
    """Run the whole capture pipeline with virtual devices.

    Writes a folder in the layout of ImageNet-ES, a run folder and
    report.html. Camera, lamps and screen are simulated on this machine.
    """
    run_demo(out, source, limit, grid, auto, megapixels, model, browser)


@app.command()
def capture(
    source: ImageSource,
    out: OutFolder,
    camera: CameraSpec = "virtual",
    lamps: LampSpec = "virtual",
    grid: Grid = "test",
    auto: AutoShots = None,
    limit: Limit = None,
    labels: LabelFile = None,
    size: ShorterSide = None,
    place: Place = "centre",
    originals: Annotated[
        str,
        typer.Option(
            "--originals",
            metavar="keep|jpeg|drop",
            help="Keep the camera's files, compress them, or delete them.",
        ),
    ] = "keep",
    card: Annotated[
        str,
        typer.Option(
            "--card", metavar="keep|clear", help="Delete each shot from the camera's card after the download."
        ),
    ] = "keep",
    calibrate_every: Annotated[
        int, typer.Option("--calibrate-every", metavar="N", min=1, help="Calibrate after every N images.")
    ] = 20,
    reshoot: Annotated[
        bool, typer.Option("--reshoot", help="Take the photographs flagged by reviewers again.")
    ] = False,
    brightness: Annotated[
        float, typer.Option("--brightness", min=1, max=100, help="Brightness of the lamps, in percent.")
    ] = 100.0,
    kelvin: Annotated[
        float, typer.Option("--kelvin", min=2000, max=6500, help="Colour temperature of the lamps.")
    ] = 4000.0,
    settle: Annotated[
        float,
        typer.Option(
            "--settle", metavar="S", min=0, max=600, help="Seconds to wait after switching the lamps."
        ),
    ] = 2.0,
    patience: Annotated[
        float,
        typer.Option("--patience", metavar="S", min=0, help="Seconds to wait for user action or the screen."),
    ] = 600.0,
    white_balance: Annotated[
        str,
        typer.Option(
            "--white-balance", metavar="NAME", help="White balance of the camera; '' leaves the camera's own."
        ),
    ] = "daylight",
    picture_style: Annotated[
        str,
        typer.Option(
            "--picture-style", metavar="NAME", help="Picture style of the camera; '' leaves the camera's own."
        ),
    ] = "standard",
    bind: Bind = "127.0.0.1",
    port: Port = 0,
    fingerprint: Fingerprint = None,
    megapixels: Megapixels = 0.5,
    browser: OwnBrowser = False,
    follow_links: FollowLinks = False,
) -> None:
    """Photograph every image under every light at every setting.

    Writes a folder in the layout of ImageNet-ES and a log of all shots. Run
    the same command again to continue after a stop.
    """
    from sorites.apps.studio.cameras import FixedSettings
    from sorites.apps.studio.capture import Options
    from sorites.apps.studio.devices import DeviceOptions
    from sorites.apps.studio.folder import check_originals
    from sorites.apps.studio.lamps import Look
    from sorites.apps.studio.session import Job, capture_all
    from sorites.core.errors import SoritesError
    from sorites.core.progress import bars

    if card not in ("keep", "clear"):
        raise SoritesError(f"--card must be keep or clear, got {card!r}")
    devices = DeviceOptions(
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
    options = Options(
        check_originals(originals),
        card == "clear",
        calibrate_every,
        patience_s=patience,
        fixed=FixedSettings(white_balance, picture_style),
    )
    job = Job(source, out, grid, auto, limit, labels, devices, options, reshoot, port, size, follow_links)
    with bars() as bar:
        done = capture_all(job, lambda text: say(text, err=True), bar)
    tell(done, labels)


def tell(done: Summary, labels: str | None) -> None:
    """Print the summary of a capture and the next commands."""
    say("\n".join(done.lines()))
    from sorites.suites.suite import load

    # The suite asks about the paper's 200 classes; images of other ones need the labels of the capture.
    own = labels or ("imagenet" if done.classes - set(load("imagenet_es").labels) else None)
    named = f" --labels {own}" if own else ""
    say(
        f"next: sorites run imagenet_es --source imagenet_es:{done.root}{named}\n      sorites studio sheets"
        f" {done.root}",
        err=True,
    )


app.command()(check)
app.command()(calibrate)
app.command()(characterize)
app.command()(screen)
app.command()(sheets)
app.command()(review)
app.command()(rectify)
app.command()(control)
