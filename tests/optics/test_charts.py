import numpy as np
import pytest

from sorites.core.errors import SoritesError
from sorites.optics.convolve import sweep
from sorites.optics.mtf import FREQUENCIES, acutance, mtf, slanted_edge, spilled_coins, texture_mtf


def blurred(chart, taps):
    return np.asarray(next(sweep(chart[..., None].astype(np.float32), [taps], "reflect")))[..., 0].astype(
        float
    )


def gaussian(sigma):
    x = np.arange(25) - 12
    taps = np.exp(-(x[:, None] ** 2 + x**2) / (2 * sigma**2))
    return taps / taps.sum()


def test_the_edge_lies_at_its_angle():
    edge = slanted_edge(101, 5.0, 0.1, 0.9)
    where = np.array([np.interp(0.5, row, np.arange(101)) for row in edge])
    slope = np.polyfit(np.arange(101), where, 1)[0]
    assert slope == pytest.approx(np.tan(np.deg2rad(5)), rel=3e-3)
    assert (edge.min(), edge.max()) == pytest.approx((0.1, 0.9))


def test_an_edge_blurred_by_a_kernel_spreads_as_the_kernel():
    """The derivative across an upright edge is the kernel's sum along it."""
    taps = gaussian(2.0)
    spread = np.diff(blurred(slanted_edge(65, 0.0, 0.0, 1.0), taps)[32])
    assert spread[20:45] == pytest.approx((taps.sum(0) + np.roll(taps.sum(0), -1)) / 2, abs=2e-3)


@pytest.mark.slow
def test_coins_have_no_preferred_scale():
    """Dead leaves with radius density r^-3: the power spectrum falls about as f^-2."""
    chart = spilled_coins()
    spectrum = np.abs(np.fft.fft2(chart - chart.mean())) ** 2
    cycles = np.rint(np.hypot(*np.meshgrid(*[np.fft.fftfreq(224, 1 / 224)] * 2))).astype(int)
    power = np.bincount(cycles.ravel(), spectrum.ravel()) / np.bincount(cycles.ravel())
    slope = np.polyfit(np.log(np.arange(4, 50)), np.log(power[4:50]), 1)[0]
    assert -2.3 < slope < -1.7
    assert np.array_equal(chart, spilled_coins())
    assert not np.array_equal(chart, spilled_coins(seed=1))


def test_texture_mtf_of_a_blurred_chart_is_the_kernels_mtf():
    chart, taps = spilled_coins(), gaussian(1.5)
    low = FREQUENCIES < 0.2
    assert np.abs(texture_mtf(chart, blurred(chart, taps)) - mtf(taps))[low].max() < 0.02
    assert texture_mtf(chart, chart) == pytest.approx(1)


def test_known_noise_is_taken_away():
    chart, taps = spilled_coins(), gaussian(1.0)
    noisy = blurred(chart, taps) + np.random.default_rng(3).normal(0, 0.02, chart.shape)
    band = (FREQUENCIES > 0.02) & (FREQUENCIES < 0.25)
    with_it, without = (np.abs(texture_mtf(chart, noisy, n) - mtf(taps))[band].mean() for n in (0.02**2, 0.0))
    assert with_it < without
    assert with_it < 0.05


def test_acutance_is_one_without_blur_and_falls_with_it():
    values = [acutance(mtf(gaussian(s))) for s in (0.5, 1.0, 2.0)]
    assert acutance(np.ones_like(FREQUENCIES)) == pytest.approx(1)
    assert values == sorted(values, reverse=True)


def test_charts_of_two_sizes():
    with pytest.raises(SoritesError, match="one size"):
        texture_mtf(np.zeros((8, 8)), np.zeros((9, 9)))
