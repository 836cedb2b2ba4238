"""Logit scores against SciPy in float64, and properties of all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from sorites import core
from sorites.core import Outputs
from sorites.core.errors import SoritesError
from sorites.scorers.logits import energy, max_logit, msp

LOGITS = np.random.default_rng(0).normal(0, 4, (64, 1000)).astype(np.float32)
SCORERS = [msp, max_logit, energy]


def test_msp_is_the_log_odds_of_scipys_softmax() -> None:
    log_p = log_softmax(LOGITS.astype(np.float64), axis=1).max(axis=1)
    np.testing.assert_allclose(msp(Outputs(LOGITS)), np.log(-np.expm1(log_p)) - log_p, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1000.0])
def test_energy_matches_scipy(temperature: float) -> None:
    expected = -temperature * logsumexp(LOGITS.astype(np.float64) / temperature, axis=1)
    np.testing.assert_allclose(energy(Outputs(LOGITS), temperature=temperature), expected, rtol=1e-6)


def test_two_even_classes_have_even_odds() -> None:
    outputs = Outputs(np.zeros((1, 2), np.float32))
    assert msp(outputs)[0] == 0
    assert energy(outputs)[0] == pytest.approx(-np.log(2))
    assert max_logit(outputs)[0] == 0


def test_msp_tells_sure_from_surer_where_float32_softmax_cannot() -> None:
    sure = np.array([[20, 0, 0], [30, 0, 0], [60, 0, 0]], np.float32)
    softmax = np.exp(log_softmax(sure, axis=1)).max(axis=1)
    assert softmax[1] == softmax[2] == 1
    assert np.all(np.diff(msp(Outputs(sure))) < 0)


def test_a_constant_on_all_logits_moves_energy_and_max_logit_but_not_msp() -> None:
    moved = Outputs((LOGITS.astype(np.float64) + 8).astype(np.float32))
    np.testing.assert_allclose(msp(moved), msp(Outputs(LOGITS)), atol=1e-5)
    np.testing.assert_allclose(energy(moved), energy(Outputs(LOGITS)) - 8, atol=1e-5)
    np.testing.assert_allclose(max_logit(moved), max_logit(Outputs(LOGITS)) - 8, atol=1e-5)


@pytest.mark.parametrize("scorer", SCORERS)
def test_score_of_an_image_does_not_depend_on_others(scorer: Callable[..., np.ndarray]) -> None:
    together = scorer(Outputs(LOGITS))
    apart = np.concatenate([scorer(Outputs(LOGITS[i : i + 3])) for i in range(0, 64, 3)])
    assert together.shape == (64,)
    assert together.dtype == np.float32
    assert np.array_equal(together, apart)
    assert scorer(Outputs(LOGITS[:0])).shape == (0,)


def test_scorers_are_found_by_name_with_their_parameters() -> None:
    assert np.array_equal(
        core.scorer("energy", temperature=2.0)(Outputs(LOGITS)), energy(Outputs(LOGITS), 2.0)
    )
    assert {"msp", "max_logit", "energy"} <= set(core.SCORERS.names())


@pytest.mark.parametrize("outputs", [Outputs(), Outputs(LOGITS[:, :1]), Outputs(LOGITS[0])])
def test_without_logits_of_two_classes_there_is_nothing_to_score(outputs: Outputs) -> None:
    with pytest.raises(SoritesError, match="two or more classes"):
        msp(outputs)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(SoritesError, match="above 0"):
        energy(Outputs(LOGITS), temperature=temperature)
