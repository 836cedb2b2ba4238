from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import pearsonr, spearmanr, ttest_1samp
from tests.metrics.coverage import scored_curve

from sorites.metrics import mean_score, score_accuracy, score_histogram


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    """A camera grid of nine settings without a line, and unknown images that have no verdict."""
    rng = np.random.default_rng(9)
    made = []
    for setting, i in np.ndindex(9, 30):
        right = bool(rng.random() < 1 - setting / 12)
        more = {
            "output": "ood",
            "scorer": "energy",
            "params": f'{{"iso": {100 * (setting + 1)}}}',
            "image_id": f"{setting}/{i}",
        }
        made.append(row(f"p{i}", "camera", None, right, score=float(rng.normal(0.3 * setting)), **more))
        made.append(
            row(
                f"u{i}",
                "camera",
                None,
                None,
                score=50.0,
                known=False,
                **more | {"image_id": f"u{setting}/{i}"},
            )
        )
    return frame(made)


def test_mean_score_and_accuracy_of_each_setting(seen: pl.DataFrame) -> None:
    found = mean_score(seen)
    assert found.height == 9
    for row in found.to_dicts():
        own = seen.filter(pl.col("params") == row["params"], pl.col("correct").is_not_null())
        assert (row["value"], row["accuracy"], row["n"]) == pytest.approx(
            (own["score"].mean(), own["correct"].mean(), 30)
        )
        theirs = ttest_1samp(own["score"].cast(pl.Float64), 0).confidence_interval(0.95)
        assert row["high"] - row["low"] == pytest.approx(theirs.high - theirs.low, rel=0.05)


def test_a_sample_counts_once_however_many_settings_are_pooled(seen: pl.DataFrame) -> None:
    pooled = mean_score(seen, by=("model", "scorer"))
    assert pooled["n"].item() == 30
    assert pooled["value"].item() == pytest.approx(seen.drop_nulls("correct")["score"].mean(), rel=1e-6)


def test_correlations_over_settings_are_scipys(seen: pl.DataFrame) -> None:
    points = mean_score(seen)
    x, y = points["value"].to_numpy(), points["accuracy"].to_numpy()
    found = {row["kind"]: row for row in score_accuracy(seen).to_dicts()}
    assert found["pearson"]["value"] == pytest.approx(pearsonr(x, y).statistic)
    assert found["spearman"]["value"] == pytest.approx(spearmanr(x, y).statistic)
    assert found["spearman"]["n"] == found["pearson"]["n"] == 9
    assert found["pearson"]["low"] < found["pearson"]["value"] < found["pearson"]["high"]
    assert found["spearman"]["low"] is found["spearman"]["high"] is None


def test_the_interval_of_a_correlation_is_that_of_leaving_samples_out() -> None:
    """The delete-one jackknife on Fisher's scale, with its correction of the bias."""
    n, made = 200, scored_curve(np.random.default_rng(3), 200, 1).sort("image_id", "sample_id")
    scores, right = (made[name].to_numpy().reshape(-1, n).astype(float) for name in ("score", "correct"))
    others = [
        np.arctanh(pearsonr(*(np.delete(v, i, 1).mean(1) for v in (scores, right)))[0]) for i in range(n)
    ]
    whole = np.arctanh(pearsonr(scores.mean(1), right.mean(1))[0])
    error = ((n - 1) * np.var(others)) ** 0.5
    centre = n * whole - (n - 1) * np.mean(others)
    found = score_accuracy(made).filter(pl.col("kind") == "pearson").row(0, named=True)
    assert np.tanh(whole) == pytest.approx(found["value"])
    low, high = (float(np.arctanh(found[end])) for end in ("low", "high"))
    assert (low + high) / 2 == pytest.approx(centre, abs=0.2 * error)
    assert (high - low) / 2 == pytest.approx(1.97 * error, rel=0.15)


def test_correlation_needs_three_varying_settings(seen: pl.DataFrame) -> None:
    few = seen.filter(pl.col("params").is_in(['{"iso": 100}', '{"iso": 200}']))
    flat = seen.with_columns(score=pl.lit(0.0, pl.Float32))
    for table, settings in ((few, 2), (flat, 9)):
        assert score_accuracy(table).select("value", "low", "n").rows() == [(None, None, settings)] * 2


@pytest.mark.parametrize(
    ("framework", "pools"), [("kind", ("C-OOD", "S-OOD")), ("model-specific", ("id", "ood"))]
)
def test_histogram_is_numpys_between_the_ends(
    seen: pl.DataFrame, framework: str, pools: tuple[str, str]
) -> None:
    known = seen.with_columns(
        score=pl.when(pl.col("correct").is_null()).then(pl.col("score") / 20).otherwise("score")
    )
    found = score_histogram(known, framework=framework, bins=8)
    right = pl.col("correct")
    parts = [right.is_not_null(), right.is_null()] if framework == "kind" else [right, ~right]
    used = known if framework == "kind" else known.drop_nulls("correct")
    low, high = (used["score"].cast(pl.Float64).quantile(q) for q in (0.005, 0.995))
    edges = np.linspace(low, high, 9)  # type: ignore[arg-type]
    for pool, where in zip(pools, parts, strict=True):
        own = known.filter(where)["score"].cast(pl.Float64).to_numpy()
        counts, _ = np.histogram(np.clip(own, low, high), edges)
        mine = dict(found.filter(pool=pool).select("bin", "value").rows())
        assert [mine.get(i, 0.0) for i in range(8)] == pytest.approx(list(counts / len(own)))
        assert found.filter(pool=pool)["left"].to_list() == pytest.approx([edges[i] for i in mine])


def test_constant_scores_fall_in_one_bin(seen: pl.DataFrame) -> None:
    flat = score_histogram(seen.with_columns(score=pl.lit(2.0, pl.Float32)))
    assert flat.select("pool", "bin", "value", "left", "right").rows() == [
        ("C-OOD", 0, 1.0, 2.0, 2.0),
        ("S-OOD", 0, 1.0, 2.0, 2.0),
    ]
