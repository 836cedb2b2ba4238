import numpy as np
import pytest
from prysm.otf import mtf_from_psf
from scipy import special

from sorites.core.errors import SoritesError
from sorites.optics.mtf import FREQUENCIES, SLICES, area, crossing, encircled, mtf, sharpness, slices, strehl
from sorites.optics.psf import Imager, compute_psf


def fine_disk(radius, size=25, steps=40):
    fine = (np.arange(size * steps) + 0.5) / steps - size / 2
    inside = np.hypot(fine[:, None], fine[None, :]) <= radius
    return inside.reshape(size, steps, size, steps).mean((1, 3))


@pytest.mark.parametrize("radius", [6.0, 10.0, 18.0])
def test_the_disk_has_its_closed_form(radius):
    """2 J1(2 pi f r) / (2 pi f r), times the pixel's sinc along each slice (the taps are pixel averages)."""
    v = 2 * np.pi * radius * FREQUENCIES[1:]
    airy = np.abs(2 * special.j1(v) / v)
    for angle, curve in zip(SLICES, slices(fine_disk(radius, 41)).T, strict=True):
        along = np.deg2rad(angle)
        pixel = np.sinc(FREQUENCIES[1:] * np.cos(along)) * np.sinc(FREQUENCIES[1:] * np.sin(along))
        low = FREQUENCIES[1:] < 0.25
        assert np.abs(curve[1:] - airy * pixel)[low].max() < 3e-3


def test_mtf50_of_the_disk_and_the_gaussian():
    """2 J1(v) / v is one half at v = 2.2151; a Gaussian falls to one half at sqrt(2 ln 2) / (2 pi sigma)."""
    assert sharpness(fine_disk(8.0)).mtf50 == pytest.approx(2.2151 / (2 * np.pi * 8), rel=3e-3)
    x = np.arange(25) - 12
    gaussian = np.exp(-(x[:, None] ** 2 + x**2) / (2 * 2.0**2))
    read = sharpness(gaussian)
    for got, contrast in ((read.mtf50, 0.5), (read.mtf20, 0.2), (read.mtf10, 0.1)):
        assert got == pytest.approx(np.sqrt(-2 * np.log(contrast)) / (2 * np.pi * 2.0), rel=1e-3)


def test_slices_equal_prysm():
    taps = compute_psf({5: 1.2, 7: 0.5}, wavelength_um=0.55, f_number=4.0, pixel_um=3.0, size=64).taps
    theirs = mtf_from_psf(taps, 1e3).data  # dx in um, so frequencies in cycles per 1000 mm
    ours = slices(taps, (0.0, 90.0))
    bins = np.arange(32) / 64
    assert np.interp(bins, FREQUENCIES, ours[:, 0]) == pytest.approx(theirs[32, 32:], abs=1e-6)
    assert np.interp(bins, FREQUENCIES, ours[:, 1]) == pytest.approx(theirs[32:, 32], abs=1e-6)


def test_no_blur_has_no_crossing_and_full_area():
    point = np.zeros((5, 5))
    point[2, 2] = 3.0
    read = sharpness(point)
    assert np.isnan(read.mtf50)
    assert read.area == pytest.approx(1)
    assert area(mtf(np.ones((1, 2)), 0.0)) == pytest.approx(2 / np.pi, rel=1e-4)


def test_crossing_at_once():
    assert 0 < crossing(np.linspace(1, 0, len(FREQUENCIES)) ** 500, 0.5) < FREQUENCIES[1]


def test_encircled_light():
    taps = fine_disk(8.0)
    assert encircled(taps, 4.0) == pytest.approx(0.25, abs=0.02)
    assert encircled(taps, 40.0) == pytest.approx(1)


def test_strehl_of_a_kernel_against_that_of_the_wavefront():
    plain = Imager(residual=({}, {}, {}), f_number=15.0, size=41)
    perfect, blurred = plain.kernel({})[1], plain.kernel({5: 0.1})[1]
    assert strehl(blurred, perfect) == pytest.approx(np.exp(-((2 * np.pi * 0.1) ** 2) / 6), abs=0.01)


@pytest.mark.parametrize("taps", [np.zeros((3, 3)), np.full((3, 3), np.nan), np.ones(3)])
def test_a_kernel_without_light_is_a_clear_error(taps):
    with pytest.raises(SoritesError, match="positive sum"):
        mtf(taps)
