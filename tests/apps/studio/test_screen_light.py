"""The screen's light, measured by the virtual camera in front of a screen whose values are known."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sorites.apps.studio.devices import DeviceOptions, open_devices
from sorites.apps.studio.measuring.screen import Measured, measure_screen, studio_values, write_screen_suite
from sorites.core.camera_grid import manual
from sorites.core.errors import SoritesError
from sorites.optics.display import Flicker, Ramp
from sorites.shifts.camera import ES_STUDIO, options

pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")
pytest.importorskip("httpx", reason="needs: pip install 'sorites[studio]'")


@pytest.mark.slow
def test_the_virtual_camera_finds_gamma_veil_and_flicker() -> None:
    devices = open_devices(DeviceOptions("virtual", "none", megapixels=0.1), (500, 500))
    try:
        assert devices.virtual is not None
        photographer = devices.virtual.camera.photographer
        veil = {"on": (3.0, 2.5, 2.0), "off": (0.9, 0.8, 0.7)}
        studio = replace(ES_STUDIO, gamma=2.1, veil=veil, flicker=0.2, flicker_hz=120.0)
        photographer.room = replace(photographer.room, studio=studio)
        found = measure_screen(devices.camera, devices.screen, (500, 500), lambda text: None)
    finally:
        devices.close()
    assert found.ramp.gamma == pytest.approx(2.1, abs=0.03)
    assert found.ramp.white == pytest.approx((330,) * 3, rel=0.03)
    assert found.ramp.veil == pytest.approx(veil["off"], rel=0.1)
    assert found.flicker.depth == pytest.approx(0.2, rel=0.25)
    assert found.flicker.hz == pytest.approx(120, rel=0.25)


MEASURED = Measured(Ramp(2.2, (310.0, 320.0, 330.0), (0.4, 0.3, 0.2), 0.01), Flicker(0.1, 240.0))


def test_the_simulated_camera_takes_the_description(tmp_path: Path) -> None:
    write_screen_suite({"off": MEASURED}, tmp_path / "s.toml")
    text = (tmp_path / "s.toml").read_text()
    given = tomllib.loads(text)["shifts"][0]["options"]
    assert "Not measured: the lamp on" in text
    assert given["studio"] == studio_values({"off": MEASURED})
    assert given["studio"]["white"] == {"on": ES_STUDIO.white["on"], "off": 320.0}
    image = np.full((24, 24, 3), 0.5, np.float32)
    setting = manual("test", "off")[13]
    plain, changed = (
        shift(image, setting, np.random.default_rng(0)) for shift in (options(), options(**given))
    )
    assert np.abs(plain - changed).mean() > 0.005


def test_flicker_shows_at_short_exposures_and_is_repeated_by_the_sample() -> None:
    """Long exposures average it: 60 whole periods in half a second, a part of one in a millisecond."""
    flickering, steady = (
        options(studio={"flicker": 0.5, "flicker_hz": 120.0, "wander": 0.0}),
        options(studio={"wander": 0.0}),
    )
    image = np.full((64, 64, 3), 0.7, np.float32)

    def spread(shutter: float, iso: int) -> float:
        setting = {"iso": iso, "shutter": shutter, "aperture": 9.0, "light": "off", "mode": "manual"}
        levels = [
            float(flickering(image, setting, np.random.default_rng(i)).mean())
            - float(steady(image, setting, np.random.default_rng(i)).mean())
            for i in range(8)
        ]
        again = flickering(image, setting, np.random.default_rng(3)).mean()
        assert float(again) - float(steady(image, setting, np.random.default_rng(3)).mean()) == levels[3]
        return float(np.std(levels))

    assert spread(1 / 1000, 2000) > 10 * spread(0.5, 100)


def test_an_unknown_value_of_the_studio_is_refused() -> None:
    with pytest.raises(SoritesError, match="flicker"):
        options(studio={"flickr": 0.1})
