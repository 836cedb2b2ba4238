from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.lenses import store as lenses
from sorites.shifts.lens import AZIMUTHS, draw_azimuth, kernel_index


def test_a_image_is_convolved_with_the_kernel_of_its_place(photo: ImageF32) -> None:
    """Against SciPy, channel by channel, mirrored at the border."""
    shift, params = core.shift("lens"), {"lens": "CookeTriplet", "field": 0.7}
    rng = rng_for(0, "a", "lens")
    made = shift(photo, params, rng)
    azimuth = shift.chosen_params(photo, params, rng_for(0, "a", "lens"))["azimuth"]
    kernel = lenses.load(lenses.builtin(), "CookeTriplet").arrays["kernels"][kernel_index(0.7, azimuth)]
    wanted = np.stack([ndimage.convolve(photo[..., c], kernel[c], mode="mirror") for c in range(3)], axis=-1)
    np.testing.assert_allclose(made, wanted, atol=2e-5)


def test_every_place_has_its_kernel_once() -> None:
    places = [kernel_index(field, azimuth) for field in (0.3, 0.5, 0.7, 0.9) for azimuth in AZIMUTHS]
    assert places == list(range(1, 13))
    assert {kernel_index(0.0, azimuth) for azimuth in AZIMUTHS} == {0}


def test_the_azimuth_is_the_samples() -> None:
    found = {draw_azimuth(rng_for(0, f"s{i}", "lens")) for i in range(40)}
    assert found == set(AZIMUTHS)


def test_the_chosen_params_say_how_sharp_the_lens_is(photo: ImageF32) -> None:
    shift, about = core.shift("lens"), lenses.load(lenses.builtin(), "TessarLens").about
    chosen = shift.chosen_params(photo, {"lens": "TessarLens", "field": 0.9}, rng_for(0, "a", "lens"))
    assert chosen["mtf50"] == pytest.approx(about.mtf50[4], abs=1e-5)
    assert chosen["quality"] == pytest.approx(about.quality, abs=1e-5)


def test_a_folder_of_lenses_is_its_own_set(tmp_path: Path) -> None:
    shutil.copy(lenses.builtin() / "HeliarLens.safetensors", tmp_path / "mine.safetensors")
    shift = core.shift("lens", lenses=str(tmp_path))
    assert [dict(one)["lens"] for one in shift.settings] == ["mine"] * 5
    assert shift.version != core.shift("lens").version


def test_what_is_no_setting_is_reported(photo: ImageF32) -> None:
    with pytest.raises(SoritesError, match="15 lenses and a field"):
        core.shift("lens")(photo, {"lens": "CookeTriplet", "field": 0.4}, rng_for(0, "a", "lens"))
    with pytest.raises(SoritesError, match="zeros or reflect, got 'wrap'"):
        core.shift("lens", padding="wrap")


def test_images_may_be_saved_as_jpeg_on_the_way(photo: ImageF32) -> None:
    params = core.shift("lens").settings[3]
    plain, saved = (
        core.shift("lens", **more)(photo, params, np.random.default_rng(0)) for more in ({}, {"quality": 90})
    )
    coded = core.shift("jpeg")(plain, 10.0, np.random.default_rng(0))
    np.testing.assert_array_equal(saved, coded)
    assert 0 < np.abs(saved - plain).mean() < 0.03
    for wrong in (0, 100, 90.5, True):
        with pytest.raises(SoritesError, match="quality"):
            core.shift("lens", quality=wrong)


def test_between_traced_places_kernels_are_mixed(photo: ImageF32) -> None:
    """Between two fields at a traced azimuth, the image is the same mix of the images of both."""
    shift, rng = core.shift("lens"), rng_for(0, "a", "lens")
    at = {"lens": "CookeTriplet", "azimuth": 45}
    low, high, between = (shift(photo, {**at, "field": field}, rng) for field in (0.5, 0.7, 0.55))
    np.testing.assert_allclose(between, 0.75 * low + 0.25 * high, atol=1e-5)
    assert np.abs(low - high).max() > 0.02
    turned = shift(photo, {**at, "field": 0.5, "azimuth": 45 + 360}, rng)
    np.testing.assert_array_equal(turned, low)
    for wrong in ({"field": 0.95}, {"field": -0.1}, {"azimuth": float("nan")}, {"lens": "none"}):
        with pytest.raises(SoritesError, match="azimuth in degrees"):
            shift(photo, {**at, "field": 0.5, **wrong}, rng)
