"""Webcams through OpenCV: V4L2/UVC devices and video streams over HTTP or RTSP.

Video Capture exposes ``exposure_time_absolute`` in units of 100 us and ``gain`` in units of the device. A
thread reads all frames, so that a photograph is never an old frame of the driver's queue.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from sorites.apps.studio.cameras import (
    About,
    CameraError,
    FixedSettings,
    NeedsHand,
    Params,
    Photo,
    format_value,
)
from sorites.apps.studio.markers import vision
from sorites.apps.studio.webcams.settings import encode, near, optics_of
from sorites.core import ImageU8

# Seconds per unit of V4L2's exposure time.
UNIT_S = 1e-4
# Values of V4L2's control auto_exposure.
MANUAL, APERTURE_PRIORITY = 1, 3
# Frames that are dropped after a setting and before a photograph: the sensor was exposing them already.
STALE = 3
# Seconds to wait for a frame.
FRAME_S = 10.0
OPEN_MS = 8000
# Exposure times that are offered, from 1/2000 s to 1 s.
TIMES = ("1/2000", "1/1000", "1/500", "1/250", "1/125", "1/60", "1/30", "1/15", "1/8", "1/4", "0.5", "1")
ISOS = ("100", "200", "400", "800", "1600", "3200")


class VideoCamera:
    """A webcam ``uvc:PLACE``: a number or path of a V4L2 device, or the address of a stream.

    A stream has no settings: only automatic exposure is possible.
    """

    def __init__(self, spec: str) -> None:
        self._optics = optics_of(spec, default_gain=16.0)
        self._stream = "://" in self._optics.place
        self._video = self._open()
        self._frames = _Frames(self._video)
        self._fixed: FixedSettings | None = None
        self._values: dict[str, Any] = {}
        self._numbers = itertools.count(1)

    def _open(self) -> Any:
        """Return the opened video, or raise an error."""
        cv2, place = vision(), self._optics.place
        if self._stream:
            timeouts = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, OPEN_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, OPEN_MS]
            video = cv2.VideoCapture(place, cv2.CAP_FFMPEG, timeouts)
        else:
            device = int(place) if place.isdigit() else place or 0
            video = cv2.VideoCapture(device, cv2.CAP_V4L2)
        if not video.isOpened():
            raise CameraError(
                f"no video from {place or 'the first webcam'}: expected a device such as 0 or /dev/video0, or"
                " an address of a stream. Is it connected, and closed in other programs?"
            )
        return video

    def about(self) -> About:
        """Return what is known about the device."""
        ability = {} if self._stream else {"iso": ISOS, "shutter": TIMES}
        high, wide = self._frames.next(0)[1].shape[:2]
        return About(
            f"video {self._optics.place or '0'}, {wide} x {high} px",
            lens=format_value("aperture", self._optics.aperture),
            mode="stream" if self._stream else "m",
            ability={**ability, "aperture": (f"f{self._optics.aperture:g}",)},
        )

    def prepare(self, fixed: FixedSettings) -> list[str]:
        """Switch automatic white balance and focus off; return what the device refuses."""
        cv2, deviations, self._fixed = vision(), [], fixed
        for name, key in (
            ("automatic white balance", "CAP_PROP_AUTO_WB"),
            ("autofocus", "CAP_PROP_AUTOFOCUS"),
        ):
            if self._stream or not self._video.set(getattr(cv2, key), 0):
                deviations.append(f"{name} cannot be switched off on this device")
        if fixed.picture_style:
            deviations.append("this device has no picture styles")
        return deviations

    def use_raw(self) -> None:
        """Raise an error: webcams deliver developed frames."""
        raise CameraError("webcams have no RAW files")

    def read_fixed(self) -> Mapping[str, str]:
        """Return the state of white balance as the device reports it."""
        return {} if self._stream else {"white balance": f"{self._video.get(vision().CAP_PROP_AUTO_WB):g}"}

    def check(self) -> None:
        """Open a video that ended again, or raise ``NeedsHand``."""
        if not self._frames.ended:
            return
        self.close()
        try:
            self._video = self._open()
        except CameraError as error:
            raise NeedsHand(f"the video of the camera ended. Connect it again: {error}") from error
        self._frames = _Frames(self._video)
        if self._fixed is not None:
            self.prepare(self._fixed)

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set exposure time and gain, or automatic exposure, and return what the device reads back."""
        cv2 = vision()
        if self._stream:
            if params["mode"] != "auto":
                raise CameraError("the exposure of a stream cannot be set: use automatic exposure only")
            return {}
        if params["mode"] == "auto":
            self._video.set(cv2.CAP_PROP_AUTO_EXPOSURE, APERTURE_PRIORITY)
            self._values = {}
            self._frames.next(STALE)
            return {}
        self._optics.check(params)
        self._video.set(cv2.CAP_PROP_AUTO_EXPOSURE, MANUAL)
        wanted = {
            "shutter": (cv2.CAP_PROP_EXPOSURE, float(params["shutter"]), UNIT_S),
            "iso": (cv2.CAP_PROP_GAIN, float(params["iso"]), 100 / self._optics.gain),
        }
        self._values = {"aperture": self._optics.aperture}
        for key, (control, value, unit) in wanted.items():
            self._video.set(control, round(value / unit))
            found = float(self._video.get(control)) * unit
            if not near(key, value, found):
                raise CameraError(
                    f"{key} is {format_value(key, found) if found > 0 else 'unknown'} after it was set to"
                    f" {format_value(key, value)}"
                )
            self._values[key] = found
        self._frames.next(STALE)
        return dict(self._values)

    def shoot(self) -> Photo:
        """Return a frame that was exposed after this call."""
        number, image = self._frames.next(STALE)
        return Photo(f"frame_{next(self._numbers):06d}_{number}.jpg", encode(image, self._values))

    def settle(self) -> None:
        """Wait for a fresh frame; a video that ended is opened again."""
        self.check()
        self._frames.next(STALE)

    def forget(self, photo: Photo) -> None:
        """Do nothing: frames are not stored on the device."""

    def preview(self) -> bytes:
        """Return the current frame as JPEG."""
        return encode(self._frames.next(0)[1], {})

    def close(self) -> None:
        """Stop reading and release the device."""
        self._frames.stop()
        self._video.release()


class _Frames:
    """The newest frame of a video and its number, read by a thread."""

    def __init__(self, video: Any) -> None:
        self._video, self._turn = video, threading.Condition()
        self._number, self._image, self.ended, self._stopped = 0, None, False, False
        self._thread = threading.Thread(target=self._read, daemon=True, name="webcam")
        self._thread.start()

    def _read(self) -> None:
        while not self._stopped:
            good, frame = self._video.read()
            with self._turn:
                if good:
                    self._number, self._image = self._number + 1, frame
                self.ended = not good
                self._turn.notify_all()
            if not good:
                return

    def next(self, later: int) -> tuple[int, ImageU8]:
        """Return a frame that is at least ``later`` frames newer than the current one."""
        end = time.monotonic() + FRAME_S
        with self._turn:
            target = self._number + later
            while self._image is None or self._number < max(target, 1):
                if self.ended or not self._turn.wait(max(0.0, end - time.monotonic())):
                    raise CameraError("the camera delivers no more frames")
            frame = np.asarray(self._image)
            number = self._number
        return number, np.ascontiguousarray(frame[..., ::-1])

    def stop(self) -> None:
        """End the thread; a read that is under way is awaited."""
        self._stopped = True
        self._thread.join(FRAME_S)
