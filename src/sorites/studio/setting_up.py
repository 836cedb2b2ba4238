"""Set up: one calibration with the named devices, and a virtual studio for as long as one is needed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator

from sorites.errors import SoritesError
from sorites.studio.calibration import Calibration, calibrate
from sorites.studio.devices import Wanted, open_devices
from sorites.studio.screen.server import Screen
from sorites.studio.virtual.studio import VirtualStudio, build

_STAGE = re.compile(r"(\d{2,5})[x×](\d{2,5})")
STAGE = (500, 375)
PATIENCE_S = 300.0


@contextlib.contextmanager
def virtual_for(wanted: Wanted) -> Iterator[VirtualStudio | None]:
    """Run the virtual studio for as long as a virtual device is needed."""
    if "virtual" not in (wanted.camera, wanted.lamps):
        yield None
        return
    screen = Screen()
    studio = build(screen, STAGE)
    try:
        yield studio
    finally:
        studio.stop()
        screen.stop()


def stage_size(text: str) -> tuple[int, int]:
    """Return width and height that were typed as WxH."""
    found = _STAGE.fullmatch(text)
    if not found or min(int(found[1]), int(found[2])) < 80 or max(int(found[1]), int(found[2])) > 8192:
        raise SoritesError(f"--stage wants WxH in pixels of the screen, each from 80 to 8192, such as 500x375; got {text!r}")
    return int(found[1]), int(found[2])


def calibrated(wanted: Wanted, stage: str, port: int, say: Callable[[str], None]) -> Calibration:
    """Calibrate once."""
    size = stage_size(stage)
    devices = open_devices(wanted, size, port=port)
    try:
        if devices.virtual is None or devices.virtual.tv is None:
            say(f"open this link on the screen, full screen: {devices.screen.url}")
            devices.screen.show("start", None, wait=PATIENCE_S)
        devices.camera.prepare()
        return calibrate(devices.camera, devices.screen, size)
    finally:
        devices.close()
