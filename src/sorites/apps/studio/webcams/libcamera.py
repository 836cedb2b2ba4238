"""Camera modules of libcamera (Raspberry Pi) through picamera2."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from typing import Any

from sorites.apps.studio.cameras import (
    About,
    CameraError,
    FixedSettings,
    Params,
    Photo,
    format_value,
    whole_jpeg,
)
from sorites.apps.studio.webcams.settings import near, optics_of, with_values
from sorites.apps.studio.webcams.video import ISOS, TIMES
from sorites.core.errors import SoritesError

# Frames until a changed control must have taken effect.
FRAMES = 20


def picamera2() -> Any:
    """Return the library, which is part of Raspberry Pi OS."""
    try:
        import picamera2
    except ImportError as error:
        raise SoritesError(
            "libcamera needs picamera2, which is part of Raspberry Pi OS. Type: sudo apt install"
            " python3-picamera2,"
            " and create the virtual environment with --system-site-packages"
        ) from error
    return picamera2


class LibcameraCamera:
    """A camera module ``libcamera:NUMBER``; ISO 100 is an analogue gain of 1 unless ``gain`` says
    otherwise.
    """

    def __init__(self, spec: str) -> None:
        library = picamera2()
        self._optics = optics_of(spec, default_gain=1.0)
        number = self._optics.place or "0"
        if not number.isdigit():
            raise SoritesError(
                f"libcamera: expected the number of a camera such as libcamera:0, got {number!r}"
            )
        try:
            self._camera = library.Picamera2(int(number))
            self._camera.configure(self._camera.create_still_configuration(raw={}))
            self._camera.start()
        except (RuntimeError, IndexError) as error:
            raise CameraError(f"no camera {number} in libcamera: {error}. Check its cable") from error
        self._raw = False
        self._numbers = itertools.count(1)

    def about(self) -> About:
        """Return what libcamera reports about the module, with the exposures that its limits allow."""
        limits = self._camera.camera_controls
        return About(
            str(self._camera.camera_properties.get("Model", "libcamera")),
            lens=format_value("aperture", self._optics.aperture),
            mode="m",
            ability={
                "iso": self._allowed(ISOS, limits.get("AnalogueGain"), 100 / self._optics.gain),
                "shutter": self._allowed(TIMES, limits.get("ExposureTime"), 1e-6),
                "aperture": (f"f{self._optics.aperture:g}",),
            },
        )

    @staticmethod
    def _allowed(texts: tuple[str, ...], limits: Any, unit: float) -> tuple[str, ...]:
        from sorites.apps.studio.cameras import seconds

        if limits is None:
            return ()
        low, high = float(limits[0]) * unit, float(limits[1]) * unit
        return tuple(text for text in texts if low <= (seconds(text) or 0.0) <= high)

    def prepare(self, fixed: FixedSettings) -> list[str]:
        """Switch automatic white balance off; picture styles do not exist."""
        self._raw = False
        self._camera.set_controls({"AwbEnable": False})
        return ["this camera has no picture styles"] if fixed.picture_style else []

    def use_raw(self) -> None:
        """Return DNG files from now on."""
        self._raw = True

    def read_fixed(self) -> Mapping[str, str]:
        """Return the colour gains of the last frame."""
        gains = self._camera.capture_metadata().get("ColourGains")
        return {} if gains is None else {"white balance": " ".join(f"{gain:.2f}" for gain in gains)}

    def check(self) -> None:
        """Do nothing: there is no battery and no card."""

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set exposure time and analogue gain, or automatic exposure; wait until frames have them, and return
        them.
        """
        if params["mode"] == "auto":
            self._camera.set_controls({"AeEnable": True})
            for _ in range(FRAMES):
                if self._camera.capture_metadata().get("AeLocked", True):
                    break
            return {}
        self._optics.check(params)
        wanted = {"shutter": float(params["shutter"]), "iso": float(params["iso"])}
        self._camera.set_controls(
            {
                "AeEnable": False,
                "ExposureTime": round(wanted["shutter"] * 1e6),
                "AnalogueGain": wanted["iso"] / 100 * self._optics.gain,
            }
        )
        found: dict[str, float] = {}
        for _ in range(FRAMES):
            found = self._read(self._camera.capture_metadata())
            if all(near(key, value, found.get(key)) for key, value in wanted.items()):
                return {**found, "aperture": self._optics.aperture}
        reported = ", ".join(f"{key} {format_value(key, value)}" for key, value in found.items())
        raise CameraError(f"the camera did not follow within {FRAMES} frames; it reports {reported}")

    def _read(self, metadata: Mapping[str, Any]) -> dict[str, float]:
        return {
            "shutter": float(metadata["ExposureTime"]) / 1e6,
            "iso": 100 * float(metadata["AnalogueGain"]) / self._optics.gain,
        }

    def shoot(self) -> Photo:
        """Take a photograph with the current controls."""
        number, file = next(self._numbers), io.BytesIO()
        try:
            if self._raw:
                request = self._camera.capture_request()
                try:
                    request.save_dng(file)
                finally:
                    request.release()
                return Photo(f"frame_{number:06d}.dng", file.getvalue())
            metadata = self._camera.capture_file(file, format="jpeg")
        except RuntimeError as error:
            raise CameraError(f"the camera did not deliver the photograph: {error}") from error
        values = {**self._read(metadata), "aperture": self._optics.aperture}
        return whole_jpeg(Photo(f"frame_{number:06d}.jpg", with_values(file.getvalue(), values)))

    def settle(self) -> None:
        """Wait for a frame."""
        self._camera.capture_metadata()

    def forget(self, photo: Photo) -> None:
        """Do nothing: photographs are not stored on the camera."""

    def preview(self) -> bytes:
        """Return a photograph."""
        file = io.BytesIO()
        self._camera.capture_file(file, format="jpeg")
        return file.getvalue()

    def close(self) -> None:
        """Stop the camera."""
        self._camera.stop()
        self._camera.close()
