"""The verbs that look at devices: what is there, what it can do, and how the camera stands in front of the screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sorites.cli.output import say
from sorites.cli.studio_options import Bind, CameraSpec, Fingerprint, LampSpec, Place

MULTICAST = "Routers with guest networks keep devices apart; name them: --camera ccapi:http://IP:8080 --lamps hue:IP"


def check(
    camera: Annotated[str | None, typer.Option("--camera", metavar="ccapi:URL|ptp|virtual", help="The camera to ask.")] = None,
    lamps: Annotated[
        str | None, typer.Option("--lamps", metavar="hue:IP|hue1:IP|virtual|none", help="The lamps to switch.")
    ] = None,
    grid: Annotated[str, typer.Option("--grid", metavar="test|val|FILE.csv", help="The settings to compare with.")] = "test",
    pair: Annotated[bool, typer.Option("--pair", help="Pair with the bridge: press its link button within 30 s.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=60, help="The time to search for devices.")] = 3.0,
    fingerprint: Fingerprint = None,
) -> None:
    """Find devices, say what they are, and how much of the grid they can take.

    Without --camera and --lamps the network and USB are searched. With them
    the devices are asked; lamps are switched on and off.
    """
    from sorites.studio.checking import check as lines
    from sorites.studio.checking import found_devices
    from sorites.studio.devices import Wanted, check_specs, paired
    from sorites.studio.grids import grid as named_grid
    from sorites.studio.setting_up import virtual_for

    if camera is None and lamps is None:
        found = list(found_devices(seconds))
        say("\n".join(found) if found else "no device was found. Are they switched on and in the same network? " + MULTICAST)
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
        str, typer.Option("--stage", metavar="WxH", help="The part of the screen that pictures take, in its pixels.")
    ] = "500x500",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The photograph of the markers.")] = Path("calibration.jpg"),
    place: Place = "centre",
    bind: Bind = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port of the screen's page.")] = 0,
    fingerprint: Fingerprint = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Open the screen's page yourself, even with the virtual camera.")
    ] = False,
) -> None:
    """Show markers, photograph them, and say how the camera stands.

    Prints the homography and warnings: tilted, out of focus, cut off. A
    capture calibrates by itself; this verb is for setting up.
    """
    from sorites.files import write_bytes
    from sorites.studio.devices import Wanted
    from sorites.studio.setting_up import calibrated

    wanted = Wanted(camera, lamps, browser, place, bind, fingerprint)
    found = calibrated(wanted, stage, port, lambda text: say(text, err=True))
    write_bytes(found.photo.data, out)
    wide, high = found.found.frame
    say(f"{found.found.markers} markers, corners {found.found.off_px:.2f} px off a plane, frame of {wide} x {high} px")
    for row in found.matrix:
        say("  " + "  ".join(f"{value:12.6g}" for value in row))
    for warning in found.found.warnings:
        say(f"warning: {warning}")
    if not found.found.warnings:
        say("the camera stands straight, sharp and sees the whole stage")
    say(f"wrote {out}", err=True)
