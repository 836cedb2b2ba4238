from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import pearsonr, spearmanr, ttest_1samp

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
    theirs = pearsonr(x, y)
    interval = theirs.confidence_interval(0.95)
    pearson = found["pearson"]
    assert (pearson["value"], pearson["low"], pearson["high"]) == pytest.approx(
        (theirs.statistic, interval.low, interval.high)
    )
    assert found["spearman"]["value"] == pytest.approx(spearmanr(x, y).statistic)
    assert found["spearman"]["n"] == 9
    assert found["spearman"]["low"] < found["spearman"]["value"] < found["spearman"]["high"]


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
