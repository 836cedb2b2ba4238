"""The simulated studio: settings, light, automatic exposure, options, and what it refuses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sorites import core
from sorites.core import ImageF32, camera_grid
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.shifts import camera as _camera
from sorites.suites.suite import Dial

CAMERA = core.shift("camera")


def setting(iso: float, shutter: float, aperture: float, light: str = "off") -> dict[str, Any]:
    return {"iso": iso, "shutter": shutter, "aperture": aperture, "light": light, "mode": "manual"}


def shoot(image: ImageF32, *stops: dict[str, Any], **options: Any) -> list[ImageF32]:
    shift = core.shift("camera", **options)
    return list(shift.sweep(image, stops, rng_for(0, "one", "camera")))


def test_the_default_grid_is_every_published_setting_under_both_lights() -> None:
    assert len(CAMERA.settings) == 2 * (64 + 27 + 5)
    assert len(core.shift("camera", grid="test").settings) == 2 * (27 + 5)
    assert len(Dial(name="camera", settings=({"light": "on", "mode": "auto"},)).setting_values()) == 5


def test_more_exposure_is_brighter_and_ends_white(photo: ImageF32) -> None:
    means = [
        made.mean()
        for made in shoot(photo, *(setting(250, t, 5.0) for t in (1 / 1000, 1 / 250, 1 / 60, 1 / 15, 1 / 4)))
    ]
    assert (np.diff(means) > 0).all()
    (burnt,) = shoot(photo, setting(16000, 1 / 4, 5.0, "on"))
    assert burnt.mean() > 0.97


def test_equal_exposures_are_equally_bright_and_the_dim_one_noisier(photo: ImageF32) -> None:
    bright, dim = shoot(photo, setting(200, 1 / 50, 5.0), setting(12800, 1 / 3200, 5.0))
    assert dim.mean() == pytest.approx(bright.mean(), rel=0.05)
    fine = [np.abs(np.diff(made, axis=1)).mean() for made in (bright, dim)]
    assert fine[1] > fine[0]


def test_the_lamp_lifts_the_blacks_of_a_long_exposure(photo: ImageF32) -> None:
    lit, unlit = (shoot(photo, setting(2000, 1 / 4, 5.0, light))[0] for light in ("on", "off"))
    assert lit.min() > unlit.min()
    assert lit.mean() > unlit.mean()


def test_a_closed_aperture_blurs_by_diffraction(photo: ImageF32) -> None:
    """Equal exposure, hardly any noise: less detail at f/22 than at f/5.6."""
    big = np.ascontiguousarray(np.tile(photo, (2, 2, 1)))
    wide, closed = shoot(big, setting(100, 1 / 40, 5.6), setting(100, 1 / 40 * (22 / 5.6) ** 2, 22.0))
    detail = [np.square(np.diff(made, axis=1)).mean() for made in (wide, closed)]
    assert detail[1] < 0.9 * detail[0]


def test_automatic_exposure_burns_the_image_because_the_frame_is_dark(photo: ImageF32) -> None:
    on, off = (
        CAMERA.chosen_params(photo, camera_grid.auto(light)[0], rng_for(0, "one", "camera"))
        for light in ("on", "off")
    )
    index = [t["iso"] * t["shutter"] / t["aperture"] ** 2 for t in (on, off)]
    assert 1 < index[0] < index[1]
    (made,) = shoot(photo, dict(camera_grid.auto("off")[0]))
    assert made.mean() > photo.mean() + 0.1


def test_five_shots_differ_a_little(photo: ImageF32) -> None:
    shots = shoot(photo, *(dict(params) for params in camera_grid.auto("on")))
    assert all(0 < np.abs(one - two).mean() < 0.12 for one, two in itertools.pairwise(shots))


def test_nothing_is_chosen_at_a_manual_setting(photo: ImageF32) -> None:
    assert CAMERA.chosen_params(photo, CAMERA.settings[0], rng_for(0, "one", "camera")) == {}


def test_a_sweep_builds_its_scene_once_and_says_what_each_exposure_chose(
    photo: ImageF32, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = [*camera_grid.auto("on"), setting(250, 1 / 60, 5.0)]
    alone = [CAMERA.chosen_params(photo, stop, rng_for(0, "one", "camera")) for stop in stops]
    images = list(CAMERA.sweep(photo, stops, rng_for(0, "one", "camera")))
    built: list[ImageF32] = []
    build = _camera.put_on_screen
    monkeypatch.setattr(
        _camera, "put_on_screen", lambda image, *args: (built.append(image), build(image, *args))[1]
    )
    both = list(CAMERA.sweep_with_chosen_params(photo, stops, rng_for(0, "one", "camera")))
    assert len(built) == 1
    assert [chosen for _, chosen in both] == alone
    assert all(np.array_equal(one, two) for (one, _), two in zip(both, images, strict=True))


def test_options_change_the_room_the_camera_and_the_sensor(photo: ImageF32) -> None:
    at = setting(250, 1 / 60, 5.0)
    plain, dimmer, flat, bayer = (
        shoot(photo, at, **options)[0]
        for options in (
            {},
            {"studio": {"white": {"on": 50.0, "off": 50.0}}},
            {"camera": {"contrast": 0.0}},
            {"mosaic": True},
        )
    )
    assert dimmer.mean() < plain.mean() - 0.1
    assert not np.array_equal(flat, plain)
    assert 0 < np.abs(bayer - plain).mean() < 0.1


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (setting(50, 1 / 60, 5.0), "iso goes from 100 to 40000"),
        (setting(250, 1 / 8000, 5.0), "shutter goes from"),
        (setting(250, 1 / 60, 1.8), "aperture goes from 4 to 22"),
        (setting(250, 1 / 60, 5.0, "dusk"), "no light named 'dusk'"),
        ({"light": "on", "mode": "manual", "iso": 250}, "lacks shutter, aperture"),
        (
            {"light": "on", "mode": "sport", "iso": 250, "shutter": 0.1, "aperture": 5.0},
            "no camera mode named 'sport'",
        ),
        ({"light": "on", "mode": "auto", "shot": 6}, "numbered 1 to 5"),
    ],
)
def test_a_wrong_setting_is_refused_in_words(photo: ImageF32, stop: dict[str, Any], message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        shoot(photo, stop)


def test_a_tiny_image_is_refused() -> None:
    with pytest.raises(SoritesError, match="15x40 px is too"):
        shoot(np.zeros((40, 15, 3), np.float32), setting(250, 1 / 60, 5.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": "tset"}, "'tset'. Did you"),
        ({"body": "eos_r"}, "Did you mean eos_rp"),
        ({"camera": {"full_wel_e": 1}}, "Did you mean full_well_e"),
        ({"studio": {"gama": 1}}, "Did you mean gamma"),
    ],
)
def test_a_wrong_option_is_reported(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        core.shift("camera", **options)


def test_light_levels_scale_everything_and_meter_a_grey_wall() -> None:
    """Three stops more light are three stops less exposure; a level that is no number is refused."""
    from sorites.optics.camera import EOS_RP
    from sorites.shifts.camera import ES_STUDIO, lit, options, put_on_screen

    studio = lit(ES_STUDIO, {"dim": 0.1, "bright": 0.8})
    assert studio.white["bright"] == 8 * studio.white["dim"] == 0.8 * ES_STUDIO.white["on"]
    assert studio.veil["bright"] == pytest.approx([0.8 * value for value in ES_STUDIO.veil["on"]])
    scene = put_on_screen(np.full((32, 32, 3), 0.5, np.float32), np.random.default_rng(0), studio, EOS_RP)
    dim, bright = (scene.metered(light, 1).index for light in ("dim", "bright"))
    assert dim / bright == pytest.approx(8, rel=0.15)  # thirds of a stop
    given = lit(replace(ES_STUDIO, surround={"dim": 0.6}), {"dim": 0.1})
    assert given.surround == {"dim": 0.6}
    assert {params["light"] for params in options(lights={"a": 1, "b": 2}).settings} == {"a", "b"}
    for wrong in ({}, {"dim": 0}, {"dim": "dark"}):
        with pytest.raises(SoritesError, match="levels above 0"):
            options(lights=wrong)  # type: ignore[arg-type]
