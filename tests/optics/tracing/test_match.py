from __future__ import annotations

import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.mtf import FREQUENCIES, mtf
from sorites.optics.psf import centroid
from sorites.optics.tracing.blur import (
    CYCLES_MM,
    MAX_TARGET_PX,
    centre_kernel,
    mtf20,
    mtf50,
    pitch_um,
    radial_mtf,
    resample,
    shares,
    side_for,
)


def gaussian(sigma: float, x: float = 0.0, y: float = 0.0, size: int = 256) -> np.ndarray:
    across = np.arange(size) - (size - 1) / 2
    light = np.exp(-((across - x) ** 2 + (across[:, None] - y) ** 2) / (2 * sigma**2))
    return light / light.sum()


@pytest.mark.parametrize("sigma", [2.0, 5.0, 12.0])
def test_the_mtf_of_a_gaussian_is_a_gaussian(sigma: float) -> None:
    wanted = np.exp(-2 * (np.pi * sigma * FREQUENCIES) ** 2)
    np.testing.assert_allclose(radial_mtf(gaussian(sigma)), wanted, atol=4e-3)


def test_the_fast_mtf_agrees_with_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    taps = rng.random((31, 31)) * gaussian(4.0, size=31)
    np.testing.assert_allclose(radial_mtf(taps), mtf(taps), atol=1e-2)


def test_the_pixel_puts_nyquist_at_the_mean_mtf20() -> None:
    sigma = 4.0  # um; exp(-2 (pi s f)^2) = 0.2
    at = np.sqrt(np.log(5) / 2) / (np.pi * sigma) * 1000
    curve = radial_mtf(gaussian(sigma))
    assert mtf20(curve) == pytest.approx(at, rel=0.01)
    assert pitch_um([curve, curve]) == pytest.approx(500 / at, rel=0.01)
    assert pitch_um([np.ones_like(CYCLES_MM)]) == 1.0
    assert pitch_um([radial_mtf(gaussian(60.0))]) == 20.0


def test_a_kernel_keeps_its_light_and_its_middle() -> None:
    made = centre_kernel(gaussian(6.0, 3.3, -7.8), 4.0, 21)
    assert made.sum() == pytest.approx(1)
    assert made.min() >= 0
    assert np.hypot(*centroid(made)) < 0.01


def test_downsampling_widens_a_gaussian_by_the_filters_own_width() -> None:
    """Keys' kernel has no second moment, so antialiased bicubic resampling leaves the variance as it is."""
    made = resample(gaussian(12.0), 4.0, 41, (0.0, 0.0))
    places = np.arange(41) - 20
    assert made.sum(0) @ places**2 == pytest.approx((12 / 4) ** 2, rel=0.02)
    sigma = 3.0  # px
    assert mtf50(made[None]) == pytest.approx(np.sqrt(np.log(2) / 2) / (np.pi * sigma), rel=0.02)


def test_the_square_holds_what_it_says() -> None:
    held = shares(gaussian(8.0), 2.0)
    side, kept = side_for([held])
    assert kept >= 0.995
    assert held[side // 2 - 1] < 0.995
    assert np.all(np.diff(held) >= -1e-12)


def test_a_faint_halo_is_cut_and_a_wide_blur_is_not() -> None:
    halo = np.full((256, 256), 0.02 / 256**2)
    halo[126:131, 126:131] += 0.98 / 25
    side, kept = side_for([shares(halo, 1.0)])
    assert side == MAX_TARGET_PX
    assert 0.97 < kept < 0.995
    side, kept = side_for([shares(np.ones((256, 256)), 1.0)])
    assert side > MAX_TARGET_PX
    assert kept >= 0.97


def test_a_square_without_a_middle_is_an_error() -> None:
    light = np.zeros((256, 256))
    light[128, 100] = light[128, 156] = 1
    with pytest.raises(SoritesError, match="centred in a kernel of 3"):
        centre_kernel(light + 1e-9 * gaussian(3.0, 20), 1.0, 3)
