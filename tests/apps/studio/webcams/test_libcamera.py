"""The libcamera client against a module with picamera2's interface, whose controls take some frames."""

from __future__ import annotations

import io
import sys
import types
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites.apps.studio.calibration import LADDER, possible
from sorites.apps.studio.cameras import CameraError, FixedSettings, differences, exif_of
from sorites.apps.studio.devices import open_camera
from sorites.apps.studio.measuring.flats import setting, times_and_aperture
from sorites.apps.studio.webcams.libcamera import LibcameraCamera
from sorites.apps.studio.webcams.settings import with_values
from sorites.core.errors import SoritesError


class Request:
    released = 0

    def save_dng(self, file: io.BytesIO) -> None:
        file.write(b"II*\0dng")

    def release(self) -> None:
        type(self).released += 1


class Picamera2:
    """Controls take effect after ``delay`` frames, within the limits of the sensor."""

    delay = 3
    camera_controls: ClassVar[dict[str, Any]] = {
        "AnalogueGain": (1.0, 8.0, None),
        "ExposureTime": (100, 200_000, None),
    }
    camera_properties: ClassVar[dict[str, Any]] = {"Model": "imx708"}

    def __init__(self, number: int) -> None:
        if number > 0:
            raise IndexError("list index out of range")
        self.now: dict[str, Any] = {"ExposureTime": 10_000, "AnalogueGain": 1.0, "ColourGains": (2.0, 1.5)}
        self.pending: list[tuple[int, Mapping[str, Any]]] = []
        self.frame, self.running, self.auto = 0, False, True

    def create_still_configuration(self, raw: Any = None) -> Any:
        return {"raw": raw}

    def configure(self, configuration: Any) -> None:
        assert configuration["raw"] is not None

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def close(self) -> None:
        assert not self.running

    def set_controls(self, controls: Mapping[str, Any]) -> None:
        self.pending.append((self.frame + self.delay, dict(controls)))

    def capture_metadata(self) -> Mapping[str, Any]:
        self.frame += 1
        for due, controls in [entry for entry in self.pending if entry[0] <= self.frame]:
            self.pending.remove((due, controls))
            self.auto = controls.get("AeEnable", self.auto)
            for key, (low, high, _) in self.camera_controls.items():
                if key in controls:
                    self.now[key] = min(max(controls[key], low), high)
        return {**self.now, "AeLocked": self.auto}

    def capture_request(self) -> Request:
        return Request()

    def capture_file(self, file: io.BytesIO, format: str) -> Mapping[str, Any]:
        """Write the EXIF data that picamera2 writes: the ISO is the gain, and there is no aperture."""
        assert format == "jpeg"
        metadata, exif = self.capture_metadata(), Pillow.Exif()
        details = exif.get_ifd(0x8769)
        details[0x8827], details[0x829A] = int(100 * metadata["AnalogueGain"]), metadata["ExposureTime"] / 1e6
        Pillow.fromarray(np.full((8, 8, 3), 90, np.uint8)).save(file, "JPEG", exif=exif, comment=b"kept")
        return metadata


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.ModuleType("picamera2")
    fake.Picamera2 = Picamera2  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "picamera2", fake)


MANUAL = {"mode": "manual", "iso": 400, "shutter": 1 / 60, "aperture": 1.8}


@pytest.mark.usefixtures("module")
def test_controls_are_awaited_and_read_back() -> None:
    camera = open_camera("libcamera:0?aperture=1.8")
    assert isinstance(camera, LibcameraCamera)
    about = camera.about()
    assert (about.model, about.ability["iso"]) == ("imx708", ("100", "200", "400", "800"))
    assert "1/4" not in about.ability["shutter"]
    assert camera.prepare(FixedSettings()) == ["this camera has no picture styles"]
    assert camera.set(MANUAL) == pytest.approx({"iso": 400, "shutter": 1 / 60, "aperture": 1.8}, rel=1e-3)
    assert camera._camera.now["ExposureTime"] == 16_667
    assert camera.shoot().data[:2] == b"\xff\xd8"
    assert camera.read_fixed() == {"white balance": "2.00 1.50"}
    camera.use_raw()
    assert camera.shoot().name.endswith(".dng")
    assert Request.released == 1
    assert camera.set({"mode": "auto", "shot": 1}) == {}
    camera.close()


@pytest.mark.usefixtures("module")
def test_photographs_say_at_which_setting_they_were_taken() -> None:
    camera = LibcameraCamera("libcamera:0?aperture=1.8&gain=2")
    read = camera.set({**MANUAL, "iso": 200})
    photo = camera.shoot()
    said = exif_of(photo)
    assert said == pytest.approx(read, rel=1e-3)
    assert differences({**MANUAL, "iso": 200}, said) == []
    with Pillow.open(io.BytesIO(photo.data)) as opened:
        assert (opened.info["comment"], opened.size) == (b"kept", (8, 8))
        np.testing.assert_allclose(np.asarray(opened), 90, atol=1)
    with pytest.raises(CameraError, match="no JPEG"):
        with_values(b"II*", read)
    camera.close()


@pytest.mark.usefixtures("module")
def test_sensors_are_measured_at_the_aperture_that_there_is() -> None:
    camera = LibcameraCamera("libcamera:0?aperture=1.8")
    times, aperture = times_and_aperture(camera)
    assert (times[0], times[-1], aperture) == (1 / 2000, 1 / 8, 1.8)
    camera.set(setting(100, times[0], aperture))
    camera.close()


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("change", [{"iso": 3200}, {"shutter": 2.0}, {"aperture": 8.0}])
def test_what_the_sensor_cannot_do_is_an_error(change: dict[str, float]) -> None:
    camera = LibcameraCamera("libcamera:0?aperture=1.8")
    with pytest.raises(CameraError):
        camera.set({**MANUAL, **change})
    camera.close()


@pytest.mark.usefixtures("module")
def test_a_camera_that_is_missing_is_an_error() -> None:
    with pytest.raises(CameraError, match="no camera 1"):
        LibcameraCamera("libcamera:1")
    with pytest.raises(SoritesError, match="libcamera:0"):
        LibcameraCamera("libcamera:front")


def test_without_picamera2_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "picamera2", None)
    with pytest.raises(SoritesError, match="python3-picamera2"):
        LibcameraCamera("libcamera:0")


@pytest.mark.usefixtures("module")
def test_markers_are_photographed_at_the_aperture_that_there_is() -> None:
    """At f/2 the exposure of 1/60 s at f/8 takes 1/960 s."""
    camera = LibcameraCamera("libcamera:0?aperture=2")
    params = possible(camera, LADDER[0])
    assert params == {"mode": "manual", "iso": 400, "shutter": pytest.approx(1 / 960), "aperture": 2.0}
    assert camera.set(params)["shutter"] == pytest.approx(1 / 960, rel=1e-2)
    assert possible(camera, LADDER[-1]) == LADDER[-1]
    camera.close()
