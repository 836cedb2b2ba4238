from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sorites.core import ImageF32, shift
from sorites.core.rng import rng_for
from sorites.shifts.noise import BINS, poisson_table


def flat(value: float, side: int = 160) -> ImageF32:
    return np.full((side, side, 3), np.float32(value))


@pytest.mark.parametrize("sigma", [0.02, 0.08])
def test_gaussian_noise_is_normal_with_that_sigma(sigma: float) -> None:
    noise = shift("gaussian_noise")(flat(0.5), sigma, rng_for(0, "a", "n")) - np.float32(0.5)
    assert stats.kstest(noise.ravel() / sigma, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(noise[..., 0].ravel(), noise[..., 1].ravel())[0, 1]) < 0.03


@pytest.mark.parametrize("name", ["gaussian_noise", "shot_noise"])
def test_noise_differs_between_samples_and_keeps_its_draw_along_the_dial(name: str) -> None:
    one, more, other = (
        shift(name)(flat(0.5), severity, rng_for(0, sample, name)) - np.float32(0.5)
        for sample, severity in (("a", 0.05), ("a", 0.06), ("b", 0.05))
    )
    assert np.corrcoef(one.ravel(), more.ravel())[0, 1] > 0.98
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("photons", [3, 5, 12, 25, 60, 500])
@pytest.mark.parametrize("level", [8, 51, 102, 128])
def test_shot_noise_is_poisson(photons: float, level: int) -> None:
    """Mean, variance and chi-square against scipy's Poisson, where white does not clip."""
    rate = photons * level / 255
    counts = np.rint(
        shift("shot_noise")(flat(level / 255), photons**-0.5, rng_for(0, "a", "shot")) * photons
    ).ravel()
    law = stats.poisson(rate)
    top = photons - 1
    if law.sf(top) < 1e-6:
        assert counts.mean() == pytest.approx(rate, abs=5 * np.sqrt(rate / counts.size))
        assert counts.var() == pytest.approx(rate, rel=0.02)
    edges = np.unique(law.ppf(np.linspace(0.02, 0.98, 12)).clip(0, top))
    bins = np.concatenate([[-1], edges, [np.inf]])
    expected = np.diff(law.cdf(bins)) * counts.size
    seen = np.histogram(counts, bins + 0.5)[0]
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("photons", [3.0, 60.0, 150.0, 4000.0])
def test_the_quantile_table_is_scipys_poisson_quantile(photons: float) -> None:
    levels, slices = np.arange(0, 256, 5), np.arange(3, BINS, 7)
    table = np.rint(poisson_table(photons).reshape(256, BINS)[levels[:, None], slices] * photons)
    exact = stats.poisson.ppf((slices + 0.5) / BINS, levels[:, None] * photons / 255).clip(0, photons)
    assert np.abs(table - exact).max() <= 1
    assert (table != exact).mean() < 2e-3


def test_black_stays_black_and_no_noise_is_left_at_many_photons() -> None:
    assert shift("shot_noise")(flat(0), 0.5, rng_for(0, "a", "s")).max() == 0
    np.testing.assert_allclose(
        shift("shot_noise")(flat(100 / 255), 1e-6, rng_for(0, "a", "s")), 100 / 255, atol=1e-5
    )


@pytest.mark.parametrize("amount", [0.03, 0.27, 1.0])
def test_impulse_noise_loses_that_fraction_to_black_and_white_alike(amount: float) -> None:
    made = shift("impulse_noise")(flat(0.5), amount, rng_for(0, "a", "i"))
    spread = 5 * np.sqrt(amount / made.size)
    assert (made == 0).mean() == pytest.approx(amount / 2, abs=spread)
    assert (made == 1).mean() == pytest.approx(amount / 2, abs=spread)


def test_an_impulse_once_there_stays() -> None:
    less, more = (shift("impulse_noise")(flat(0.5), amount, rng_for(0, "a", "i")) for amount in (0.1, 0.2))
    np.testing.assert_array_equal(more[less != 0.5], less[less != 0.5])


def test_speckle_noise_is_normal_in_proportion_to_the_light() -> None:
    for value in (0.2, 0.4):
        noise = shift("speckle_noise")(flat(value), 0.2, rng_for(0, "a", "s")) - np.float32(value)
        assert stats.kstest(noise.ravel() / (0.2 * value), "norm").pvalue > 1e-3
