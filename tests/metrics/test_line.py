"""Accuracy on the line against SciPy, and a published figure that does not follow from its tables."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites.core.errors import SoritesError
from sorites.metrics import accuracy, line_gain, mean_accuracy, on_the_line, partial_correlation
from sorites.metrics.line import fit, partial


@pytest.fixture(scope="module")
def models(row: Any, frame: Any) -> pl.DataFrame:
    """Nine models, two dials, a hundred samples."""
    rng = np.random.default_rng(5)
    rows = []
    for m, i in itertools.product(range(9), range(100)):
        rows.append(row(f"p{i}", "clean", 0.0, rng.random() < 0.5 + 0.05 * m, model=f"m{m}"))
        for shift, severity in itertools.product(("blur", "snow"), (1.0, 2.0)):
            rows.append(
                row(f"p{i}", shift, severity, rng.random() < 0.3 + 0.05 * m - 0.1 * severity, model=f"m{m}")
            )
    return frame(rows)


def columns(models: pl.DataFrame, shift: str, severity: float) -> tuple[np.ndarray, np.ndarray]:
    seen = accuracy(models)
    x = seen.filter(pl.col("shift") == "clean").sort("model")["value"]
    y = seen.filter(pl.col("shift") == shift, pl.col("severity") == severity).sort("model")["value"]
    return x.to_numpy(), y.to_numpy()


def outcomes(models: pl.DataFrame, shift: str, severity: float) -> np.ndarray:
    """Return the outcomes under a setting, samples x models."""
    rows = models.filter(pl.col("shift") == shift, pl.col("severity") == severity)
    wide = rows.pivot(on="model", index="sample_id", values="correct").sort("sample_id")
    return wide.select(sorted(name for name in wide.columns if name != "sample_id")).to_numpy().astype(float)


def test_the_line_is_corrected_by_the_covariance_of_the_accuracies(models: pl.DataFrame) -> None:
    """The errors of the accuracies, as NumPy estimates their covariance between models, leave both sums."""
    found = on_the_line(models)
    centre = np.eye(9) - 1 / 9
    for told in found.iter_rows(named=True):
        a, b = outcomes(models, "clean", 0.0), outcomes(models, told["shift"], told["severity"])
        x, y = a.mean(axis=0), b.mean(axis=0)
        covariance = np.cov(a, b, rowvar=False) / 100
        seen, both = x @ centre @ x, x @ centre @ y
        slope = (both - np.trace(centre @ covariance[:9, 9:])) / (
            seen - np.trace(centre @ covariance[:9, :9])
        )
        plain = stats.linregress(x, y)
        assert told["value"] == pytest.approx(slope, abs=1e-8)
        assert told["intercept"] == pytest.approx(y.mean() - slope * x.mean(), abs=1e-8)
        assert told["r"] == pytest.approx(plain.rvalue, abs=1e-8)
        assert told["value"] > plain.slope
        assert told["low"] < told["value"] < told["high"]
        assert told["high"] - told["value"] > stats.t.ppf(0.975, 7) * plain.stderr


def test_models_that_differ_by_chance_have_no_line(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(6)
    rows = [
        row(f"p{i}", shift, severity, rng.random() < 0.7, model=f"m{m}")
        for m, i in itertools.product(range(8), range(100))
        for shift, severity in (("clean", 0.0), ("blur", 1.0))
    ]
    (told,) = on_the_line(frame(rows)).iter_rows(named=True)
    assert (told["value"], told["low"], told["n"]) == (None, None, 8)


@pytest.mark.parametrize("seed", range(20))
def test_fit_and_partial_correlation_against_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 40))
    z = rng.normal(size=n)
    a, b = z * rng.normal() + rng.normal(size=n), z * rng.normal() + rng.normal(size=n)
    line, peer = fit(a, b), stats.linregress(a, b)
    assert [line[k] for k in ("value", "intercept", "r", "p")] == pytest.approx(list(peer)[:4], abs=1e-8)

    def rest(y: np.ndarray) -> np.ndarray:
        told = stats.linregress(z, y)
        return y - told.intercept - told.slope * z

    r = stats.pearsonr(rest(a), rest(b)).statistic
    found = partial(a, b, z)
    t = r * np.sqrt((n - 3) / (1 - r**2))
    assert found["value"] == pytest.approx(r, abs=1e-8)
    assert found["p"] == pytest.approx(2 * stats.t.sf(abs(t), n - 3), abs=1e-8)
    assert found["plain"] == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-8)
    assert np.arctanh(found["high"]) - np.arctanh(r) == pytest.approx(
        stats.norm.ppf(0.975) / np.sqrt(n - 4), abs=1e-8
    )


def test_too_few_or_equal_models_have_no_line() -> None:
    one = np.array([0.5])
    assert fit(one, one)["value"] is None
    assert fit(np.full(4, 0.5), np.arange(4.0))["value"] is None
    two = fit(np.array([0.0, 1.0]), np.array([1.0, 3.0]))
    assert (two["value"], two["intercept"], two["r"], two["p"]) == (2.0, 1.0, 1.0, None)
    flat = fit(np.arange(4.0), np.full(4, 0.5))
    assert (flat["value"], flat["r"], flat["p"]) == (0.0, None, 1.0)
    exact = fit(np.arange(4.0), 2 * np.arange(4.0))
    assert exact["p"] == pytest.approx(0, abs=1e-12)
    assert partial(one, one, one)["value"] is None
    assert partial(np.arange(6.0), np.arange(6.0), np.arange(6.0))["value"] is None


def test_gain_is_what_the_line_leaves(models: pl.DataFrame) -> None:
    gains, lines = line_gain(models), on_the_line(models)
    x, y = columns(models, "snow", 2.0)
    line = lines.row(by_predicate=(pl.col("shift") == "snow") & (pl.col("severity") == 2), named=True)
    own = gains.filter(pl.col("shift") == "snow", pl.col("severity") == 2).sort("model")
    np.testing.assert_allclose(own["value"], y - line["intercept"] - line["value"] * x, atol=1e-8)
    assert own["n"].to_list() == [100] * 9
    assert own["models"].to_list() == [9] * 9
    averaged = gains.group_by("model").agg(pl.col("value").mean()).sort("model")["value"]
    np.testing.assert_allclose(line_gain(models, by=("model",))["value"], averaged, atol=1e-8)


def test_the_baseline_may_be_a_fact_and_severity_0_is_then_fitted(
    models: pl.DataFrame, tmp_path: Path
) -> None:
    file = tmp_path / "models.csv"
    file.write_text("model,imagenet,family\n" + "".join(f"m{m},{0.6 + 0.01 * m**2},A\n" for m in range(9)))
    found = on_the_line(models, facts=str(file), baseline="imagenet")
    x, clean = np.array([0.6 + 0.01 * m**2 for m in range(9)]), columns(models, "blur", 1.0)[0]
    start = found.filter(pl.col("severity") == 0, pl.col("shift") == "blur").row(0, named=True)
    assert start["value"] == pytest.approx(stats.linregress(x, clean).slope, abs=1e-8)
    pooled = on_the_line(models, by=(), facts=file, baseline="imagenet").row(0, named=True)
    means = mean_accuracy(models)["value"].to_numpy()
    assert pooled["value"] == pytest.approx(stats.linregress(x, means).slope, abs=1e-8)


def test_invalid_facts_raise(models: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="facts=FILE"):
        partial_correlation(models)
    with pytest.raises(SoritesError, match="with the column model"):
        partial_correlation(models, facts=tmp_path / "nowhere.csv")
    with pytest.raises(SoritesError, match="Did you mean params"):
        partial_correlation(models, facts={"m0": {"params": 3}})
    with pytest.raises(SoritesError, match="'m0', got 'many'"):
        partial_correlation(models, facts={"m0": {"parameters": "many"}})
    with pytest.raises(SoritesError, match="such as 'm0'"):
        partial_correlation(models, facts={"x": {"parameters": 3}})
    with pytest.raises(SoritesError, match="'m0' appears twice"):
        partial_correlation(models, facts=pl.DataFrame({"model": ["m0", "m0"], "parameters": [1, 2]}))
    with pytest.raises(SoritesError, match="remove model from by"):
        on_the_line(models, by=("model",))


def test_models_without_a_fact_are_left_out(models: pl.DataFrame) -> None:
    facts = {f"m{m}": {"parameters": m if m < 6 else None} for m in range(8)}
    found = partial_correlation(models, facts=facts)
    assert set(found["n"]) == {6}


def test_the_published_partial_correlation_does_not_follow_from_the_printed_tables() -> None:
    """DeiT3, tables 5 and 7: no reading of size and accuracy gives the printed -.358."""
    millions, validation = np.array([22.0, 39, 87, 304, 632]), np.array([81.3, 82.9, 83.7, 84.6, 85.1])
    accuracies = np.array(
        [
            [0.92, 0.92, 0.91, 0.88, 0.84, 0.77],
            [0.92, 0.92, 0.91, 0.88, 0.84, 0.78],
            [0.91, 0.91, 0.90, 0.88, 0.84, 0.79],
            [0.91, 0.91, 0.90, 0.88, 0.85, 0.80],
            [0.92, 0.92, 0.91, 0.89, 0.86, 0.81],
        ]
    )
    under_shift = {
        "mean": accuracies.mean(axis=1),
        "shifted": accuracies[:, 1:].mean(axis=1),
        "top": accuracies[:, 5],
    }
    found = {
        (size, ood, start): partial(a, b, z)["value"]
        for (size, a), (ood, b), (start, z) in itertools.product(
            {"raw": millions, "log": np.log(millions)}.items(),
            under_shift.items(),
            {"validation": validation, "clean": accuracies[:, 0]}.items(),
        )
    }
    assert all(value is None or abs(value + 0.358) > 0.1 for value in found.values()), found
    assert found["raw", "mean", "validation"] > 0
