"""The sensor against the laws of photons and electronics: closed forms, and SciPy's Poisson law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sorites.optics.camera import EOS_RP, Exposure
from sorites.optics.sensor import POISSON_MAX_E, Draw, raw

SHAPE = (256, 256, 3)


def draw(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Draw:
    return Draw.of(shape, np.random.default_rng(seed))


def flat(electrons: float, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.full(shape, electrons, np.float32)


@pytest.mark.parametrize("iso", [100, 800, 6400])
@pytest.mark.parametrize("area", [1.0, 6.25])
def test_variance_against_mean_is_the_photon_transfer_line(iso: float, area: float) -> None:
    """Janesick: variance in DN^2 is gain x mean + (gain x read noise)^2; averaging divides both."""
    levels = np.geomspace(0.004, 0.5, 12) * EOS_RP.saturation_e(iso)
    shots = [
        raw(flat(level), iso, draw(i), EOS_RP, area).astype(np.float64) - EOS_RP.black_dn
        for i, level in enumerate(levels)
    ]
    means, variances = np.array([s.mean() for s in shots]), np.array([s.var() for s in shots])
    gain = EOS_RP.dn_per_e(iso)
    slope, _ = np.polyfit(means, variances, 1, w=1 / variances)
    assert slope == pytest.approx(gain / area, rel=0.03)


@pytest.mark.parametrize("iso", [100, 800, 6400])
@pytest.mark.parametrize("area", [1.0, 6.25])
def test_no_light_is_black_with_read_noise(iso: float, area: float) -> None:
    dark = raw(flat(0), iso, draw(), EOS_RP, area).astype(np.float64)
    read = np.hypot(EOS_RP.read_e, EOS_RP.late_e * 100 / iso) * EOS_RP.dn_per_e(iso)
    rounding = 1 / 12
    assert dark.mean() == pytest.approx(EOS_RP.black_dn, abs=4 * dark.std() / 443 + 0.01)
    assert dark.var() == pytest.approx((read**2 + rounding) / area, rel=0.03)


@pytest.mark.parametrize("rate", [0.05, 0.8, 3.0, 11.0, 29.0])
def test_few_electrons_follow_poisson(rate: float) -> None:
    """Without read noise and with one DN an electron the counts themselves are seen."""
    counting = replace(EOS_RP, full_well_e=2**14 - 1 - EOS_RP.black_dn, read_e=0, late_e=0)
    counts = raw(flat(rate, (512, 512, 3)), 100, draw(1, (512, 512, 3)), counting) - EOS_RP.black_dn
    law = stats.poisson(rate)
    seen = np.bincount(counts.astype(int).ravel(), minlength=60) / counts.size
    assert np.abs(seen - law.pmf(np.arange(len(seen)))).max() < 0.012
    assert counts.var() == pytest.approx(rate, rel=0.03)


def test_many_electrons_are_normal_of_the_same_mean_and_variance() -> None:
    counting = replace(EOS_RP, full_well_e=2**14 - 1 - EOS_RP.black_dn, read_e=0, late_e=0)
    counts = raw(flat(POISSON_MAX_E + 20), 100, draw(), counting) - EOS_RP.black_dn
    assert counts.mean() == pytest.approx(50, rel=0.002)
    assert counts.var() == pytest.approx(50 + 1 / 12, rel=0.02)


def test_one_stop_is_a_factor_of_two_before_clipping() -> None:
    base = Exposure(400, 1 / 60, 8.0)
    collected = EOS_RP.electrons(base)
    for other in (replace(base, shutter=1 / 30), replace(base, aperture=8 / 2**0.5)):
        assert EOS_RP.electrons(other) == pytest.approx(2 * collected)
    means = [raw(flat(collected * 40), iso, draw(), EOS_RP).mean() - EOS_RP.black_dn for iso in (400, 800)]
    assert means[1] / means[0] == pytest.approx(2, rel=0.005)


def test_doubling_iso_and_halving_shutter_keeps_the_mean() -> None:
    one, two = Exposure(400, 1 / 30, 5.6), Exposure(800, 1 / 60, 5.6)
    assert one.index == pytest.approx(two.index)
    means = [
        raw(flat(60 * EOS_RP.electrons(e)), e.iso, draw(), EOS_RP).mean() - EOS_RP.black_dn
        for e in (one, two)
    ]
    assert means[0] == pytest.approx(means[1], rel=0.005)


@pytest.mark.parametrize("area", [1.0, 9.0])
def test_saturation_and_whole_numbers_are_exact(area: float) -> None:
    full = raw(flat(3 * EOS_RP.saturation_e(200)), 200, draw(), EOS_RP, area)
    assert (full == EOS_RP.white_dn).all()
    dim = raw(flat(0.5), 25600, draw(), replace(EOS_RP, black_dn=0), area)
    assert dim.min() >= 0
    assert np.array_equal(dim, np.rint(dim)) == (area == 1)


def test_response_is_linear_within_a_percent() -> None:
    shares = np.linspace(0.05, 0.9, 12)
    means = (
        np.array([raw(flat(s * EOS_RP.saturation_e(100)), 100, draw(), EOS_RP).mean() for s in shares])
        - EOS_RP.black_dn
    )
    wanted = shares * (EOS_RP.white_dn - EOS_RP.black_dn)
    assert np.abs(means / wanted - 1).max() < 0.01


def test_more_iso_is_quieter_than_pushing_later() -> None:
    light = flat(40)
    noise = [raw(light, iso, draw(), EOS_RP).std() / EOS_RP.dn_per_e(iso) for iso in (100, 3200)]
    assert noise[1] < noise[0] / 3


def test_a_draw_is_luck_and_not_the_setting() -> None:
    quiet, loud = (raw(flat(400), iso, draw(), EOS_RP) for iso in (200, 400))
    assert np.corrcoef(quiet.ravel(), loud.ravel())[0, 1] > 0.98
    other = raw(flat(400), 200, draw().again(1), EOS_RP)
    assert abs(np.corrcoef(quiet.ravel(), other.ravel())[0, 1]) < 0.02
