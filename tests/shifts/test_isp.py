"""The stages of the camera behind the lens: each against a library that defines the same thing, and their order."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contracts.test_shifts import photo

from sorites import core
from sorites.core import ImageF32
from sorites.core.errors import SoritesError
from sorites.core.rng import rng_for
from sorites.optics.develop import linear_from_srgb, to_display
from sorites.optics.sensor import demosaic, sampled
from sorites.shifts.aberration import default
from sorites.shifts.isp import DENOISE_SPACE, bilateral
from sorites.suites.suite import load

IMAGE = photo(37, 53)
STAGES = ("coma", "iso_noise", "mosaic", "denoise", "sharpen", "tone_curve", "jpeg")


def turn(name: str, image: ImageF32, severity: float, **options: object) -> ImageF32:
    return core.shift(name, **options)(image, severity, rng_for(0, "a", name))


def test_the_mosaic_is_filled_in_as_opencv_does() -> None:
    cv2 = pytest.importorskip("cv2")
    sites = np.random.default_rng(0).integers(0, 65536, (20, 24), dtype=np.uint16)
    theirs = cv2.cvtColor(sites, cv2.COLOR_BayerRGGB2RGB)[1:-1, 1:-1]
    assert np.abs(demosaic(sites.astype(np.float32))[1:-1, 1:-1] - theirs).max() <= 1


def test_at_severity_1_one_colour_per_pixel_is_left_as_it_was() -> None:
    light, made = linear_from_srgb(IMAGE), linear_from_srgb(turn("mosaic", IMAGE, 1.0))
    np.testing.assert_allclose(sampled(made[:36, :52]), sampled(light[:36, :52]), atol=1e-5)
    half = linear_from_srgb(turn("mosaic", IMAGE, 0.5))
    np.testing.assert_allclose(half, (light + made) / 2, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.4])
def test_denoising_is_opencvs_bilateral_filter_in_linear_light(sigma: float) -> None:
    cv2 = pytest.importorskip("cv2")
    light = linear_from_srgb(IMAGE)
    theirs = cv2.bilateralFilter(light, 5, sigma, DENOISE_SPACE)
    assert np.abs(bilateral(light, sigma, DENOISE_SPACE) - theirs).max() < 2e-4
    np.testing.assert_allclose(turn("denoise", IMAGE, sigma), to_display(theirs), atol=2e-3)


def test_sharpening_is_scikit_images_unsharp_mask_in_linear_light() -> None:
    filters = pytest.importorskip("skimage.filters")
    light = linear_from_srgb(IMAGE)
    theirs = np.stack([filters.unsharp_mask(light[..., c], radius=1, amount=2) for c in range(3)], -1)
    np.testing.assert_allclose(turn("sharpen", IMAGE, 2.0), to_display(theirs.astype(np.float32)), atol=1e-4)


def test_the_tone_curve_keeps_black_middle_and_white_and_rises_everywhere() -> None:
    ramp = np.repeat(np.linspace(0, 1, 1001, dtype=np.float32)[None, :, None], 3, 2)
    made = turn("tone_curve", ramp, 1.0)[0, :, 0].astype(np.float64)
    assert made[[0, 500, 1000]] == pytest.approx([0, 0.5, 1], abs=1e-6)
    assert (np.diff(made) > -1e-7).all()
    assert (made[501] - made[499]) / 0.002 == pytest.approx(2, abs=0.01)


def test_blur_in_linear_light_is_that_of_the_light() -> None:
    cv2 = pytest.importorskip("cv2")
    shift = core.shift("coma", linear=True)
    made, params = next(shift.sweep_with_chosen_params(IMAGE, [3.0], rng_for(0, "a", "coma")))
    taps, light = default().taps(params["zernike"], 3), linear_from_srgb(IMAGE)
    blurred = [
        cv2.filter2D(light[..., c], -1, taps[c].astype(np.float32), borderType=cv2.BORDER_CONSTANT)
        for c in range(3)
    ]
    np.testing.assert_allclose(made, to_display(np.stack(blurred, -1)), atol=2e-4)
    assert shift.version != core.shift("coma").version
    assert np.abs(made - turn("coma", IMAGE, 3.0)).max() > 0.01


@pytest.mark.parametrize(
    ("name", "setting"), [("lens", {"lens": "CookeTriplet", "field": 0.7}), ("decentre", 10.0)]
)
def test_lenses_blur_linear_light_too(name: str, setting: object) -> None:
    """A flat image stays flat; light spreads further into dark parts than display values do."""
    grey = np.full((40, 40, 3), 0.5, np.float32)
    linear = core.shift(name, linear=True)
    np.testing.assert_allclose(linear(grey, setting, rng_for(0, "a", name)), grey, atol=1e-4)
    edge = np.repeat((np.arange(60) < 30).astype(np.float32)[None, :, None], 60, 0).repeat(3, 2)
    bright, usual = (s(edge, setting, rng_for(0, "a", name)) for s in (linear, core.shift(name)))
    assert (bright >= usual - 1e-4).all()
    assert (bright - usual).max() > 0.01


@pytest.mark.parametrize("name", ["coma", "lens", "decentre"])
def test_linear_is_true_or_false(name: str) -> None:
    with pytest.raises(SoritesError):
        core.shift(name, linear=1)


def test_the_camera_applies_its_stages_in_order_and_starts_from_the_image() -> None:
    camera = load("isp").compose[0].shift()
    assert tuple(part.name for part in camera.parts) == STAGES

    def draw(name: str) -> np.random.Generator:
        return rng_for(0, "a", name)

    untouched, third = (made for made, _ in camera.sweep_drawn(IMAGE, [0.0, 3.0], draw))
    np.testing.assert_array_equal(untouched, IMAGE)
    by_hand = IMAGE
    for part, severity in zip(camera.parts, camera.severities_at(3.0), strict=True):
        by_hand = part(by_hand, severity, draw(part.name))
    np.testing.assert_array_equal(third, by_hand)


def test_noise_before_the_mosaic_is_noise_of_its_sites() -> None:
    """Each site keeps the noise of its own colour, so that the sensor has one noisy value per pixel."""
    noisy = turn("iso_noise", IMAGE, 8.0)
    made = turn("mosaic", noisy, 1.0)
    sites = [sampled(linear_from_srgb(image[:36, :52])) for image in (noisy, made)]
    np.testing.assert_allclose(*sites, atol=1e-5)
