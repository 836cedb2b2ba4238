"""Calibration: photograph markers on the screen, derive the homography from screen to frame, and track its
drift.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image as Pillow

from sorites.apps.studio.cameras import (
    Camera,
    CameraError,
    FixedSettings,
    NeedsHand,
    Params,
    Photo,
    Unsettled,
    own_aperture,
)
from sorites.apps.studio.devices import DeviceOptions, open_devices
from sorites.apps.studio.markers import Found, Matrix, board, drift, locate, placement
from sorites.apps.studio.screen.server import Screen, Shown
from sorites.apps.studio.virtual.studio import VirtualStudio, build
from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.sources.captures import Calibrated

# Exposures that are tried until the markers are found; each may be too bright or too dark.
LADDER = (
    {"mode": "manual", "iso": 400, "shutter": 1 / 60, "aperture": 8.0},
    {"mode": "manual", "iso": 400, "shutter": 1 / 15, "aperture": 8.0},
    {"mode": "manual", "iso": 400, "shutter": 1 / 250, "aperture": 8.0},
    {"mode": "manual", "iso": 3200, "shutter": 1 / 15, "aperture": 8.0},
    {"mode": "auto", "shot": 1},
)
# Drift above this many pixels of the frame is reported.
DRIFTED_PX = 1.0


@dataclass(frozen=True)
class Calibration:
    """A homography, the photograph it was found in, what the screen showed, and the drift since the
    previous one.
    """

    found: Found
    photo: Photo
    shown: Shown
    drift_px: float | None = None

    @property
    def matrix(self) -> Matrix:
        """The homography from pixels of the screen to pixels of the frame."""
        return self.found.matrix

    def entry(self) -> Calibrated:
        """Return its entry in the log."""
        return Calibrated(
            camera_file=self.photo.name,
            matrix=np.round(self.found.matrix, 9).tolist(),
            markers=self.found.markers,
            off_px=round(self.found.off_px, 3),
            frame=list(self.found.frame),
            drift_px=None if self.drift_px is None else round(self.drift_px, 3),
            warnings=list(self.found.warnings),
        )


def decode_photo(photo: Photo) -> ImageU8:
    """Return the pixels of a photograph in sensor orientation; the EXIF orientation is not applied."""
    try:
        with Pillow.open(io.BytesIO(photo.data), formats=("JPEG",)) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow can raise anything for a damaged file
        raise CameraError(f"{photo.name} cannot be read as a JPEG: {error}") from error


def calibrate(
    camera: Camera, screen: Screen, stage: tuple[int, int], before: Matrix | None = None, first: int = 0
) -> Calibration:
    """Show markers over the stage, photograph them and return the homography.

    If the mode dial is not at M and must be turned by hand, automatic exposure is tried, which often
    over-exposes the markers.

    Args:
        camera: The camera.
        screen: The screen.
        stage: Width and height of the area for images, in pixels of the screen.
        before: The previous homography, to measure drift.
        first: Index of the first exposure to try.

    Raises:
        NeedsHand: The operator must turn the mode dial, for example.
        CameraError: The markers are not found.
    """
    shown_board = board(*stage)
    shown = screen.show("calibration", shown_board.png)
    placed = placement(shown, stage)
    reason, hand = "", None
    for params in (*LADDER[first:], *LADDER[:first]):
        try:
            camera.set(possible(camera, params))
            photo = camera.shoot()
            location = locate(decode_photo(photo), shown_board, placed)
            if screen.confirm() != shown:
                raise CameraError("the screen changed during the calibration")
        except Unsettled as error:
            camera.settle()
            reason = str(error)
        except NeedsHand as error:
            hand = error
        except CameraError as error:
            reason = str(error)
        else:
            if hand is not None and location.off_px > DRIFTED_PX:
                break
            area = (shown.left, shown.top, shown.width, shown.height)
            return Calibration(
                location, photo, shown, None if before is None else drift(before, location.matrix, area)
            )
    if hand is not None:
        raise hand
    raise CameraError(f"calibration failed: {reason}")


def possible(camera: Camera, params: Params) -> Params:
    """Return a setting of the same exposure at an aperture that the camera has."""
    if params["mode"] == "auto":
        return params
    aperture = own_aperture(camera, float(params["aperture"]))
    shutter = float(params["shutter"]) * (aperture / float(params["aperture"])) ** 2
    return {**params, "aperture": aperture, "shutter": shutter}


# Calibrating once


_STAGE = re.compile(r"(\d{2,5})[x×](\d{2,5})")
STAGE = (500, 375)
PATIENCE_S = 300.0


@contextlib.contextmanager
def virtual_studio(options: DeviceOptions) -> Iterator[VirtualStudio | None]:
    """Run the virtual studio within the context if a virtual device is used."""
    if "virtual" not in (options.camera, options.lamps):
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
    """Parse width and height ``WxH``."""
    match = _STAGE.fullmatch(text)
    if not match or min(int(match[1]), int(match[2])) < 80 or max(int(match[1]), int(match[2])) > 8192:
        raise SoritesError(
            f"stage: expected WxH in screen pixels, each from 80 to 8192, such as 500x375, got {text!r}"
        )
    return int(match[1]), int(match[2])


def calibrate_once(options: DeviceOptions, stage: str, port: int, say: Callable[[str], None]) -> Calibration:
    """Open the devices, calibrate once and close them."""
    size = stage_size(stage)
    devices = open_devices(options, size, port=port)
    try:
        if devices.virtual is None or devices.virtual.tv is None:
            say(f"open this link full screen on the screen: {devices.screen.url}")
            devices.screen.show("start", None, wait=PATIENCE_S)
        devices.camera.prepare(FixedSettings())
        return calibrate(devices.camera, devices.screen, size)
    finally:
        devices.close()
