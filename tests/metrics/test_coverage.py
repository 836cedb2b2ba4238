"""Intervals have 95 % coverage, or a note with their measured coverage."""

from __future__ import annotations

import inspect
import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from tests.metrics import box_coverage
from tests.metrics.coverage import covered
from tests.metrics.coverage_laws import ALIKE, LAWS, SIZES
from tests.metrics.test_contract import _world, options  # noqa: F401 (a fixture)

from sorites import metrics
from sorites.core import METRICS
from sorites.metrics import interval_note
from sorites.metrics.intervals import NOTED, clustered_share_bounds

DRAWS = {20: 500, 100: 250}
"""Enough for three standard errors of 3 and 4 points; the full figures are in docs/metrics.md."""

POOLED = {"failure_severity": "failure_severity, shifts pooled"}
"""Laws that a note is about, where it is not the metric's plain one."""


@pytest.mark.slow
def test_every_metric_with_an_interval_has_a_law(world: pl.DataFrame) -> None:
    laws, alike = {**LAWS, **box_coverage.LAWS}, {**ALIKE, **box_coverage.ALIKE}
    named = {law.split(",")[0] for law in laws} | set(alike)
    with_interval = {
        name
        for name in METRICS.names()
        if "low" in METRICS.get(name)(world, **options(METRICS.get(name))).columns
    }
    assert with_interval == named
    assert set(alike.values()) <= set(laws)
    assert set(NOTED) <= named


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAWS if name != "half_accuracy_severity"])
def test_interval_coverage_is_95_percent_or_noted(name: str) -> None:
    metric = name.split(",")[0]
    noted = NOTED.get(metric) if POOLED.get(metric, metric) == name else None
    for place, (n, draws) in enumerate(DRAWS.items()):
        said = noted.shares[place] / 100 if noted is not None else None
        least, most = (0.93, 0.97) if said is None or 0.93 <= said <= 0.97 else (said, said)
        error = 3 * (least * (1 - least) / draws) ** 0.5
        share = covered(LAWS[name], n, draws)
        assert math.isnan(share) or least - error <= share <= most + error, (name, n)


@pytest.mark.parametrize("name", ["accuracy, settings pooled", "partition_accuracy", "auroc"])
def test_intervals_of_clusters_hold_the_truth(name: str) -> None:
    """Rows of one sample are correlated; intervals that ignore it covered 60 to 85 %."""
    assert 0.90 <= covered(LAWS[name], 60, 100) <= 1


def test_runs_of_few_samples_and_many_images_are_covered() -> None:
    """122 samples under 24 shifts at 5 severities, where rows outnumber samples by 120."""
    rng, hits = np.random.default_rng(6), []
    for _ in range(400):
        easy = norm.sf((0.5 - np.sqrt(0.7) * rng.normal(size=122)) / np.sqrt(0.3))
        low, high = clustered_share_bounds(rng.binomial(120, easy).astype(float), np.full(122, 120.0))
        assert low is not None
        assert high is not None
        hits.append(low <= norm.sf(0.5) <= high)
    assert 0.92 <= np.mean(hits) <= 0.98


def test_a_note_is_for_the_sizes_that_need_it() -> None:
    def answer(n: int, **more: object) -> pl.DataFrame:
        return pl.DataFrame({"model": ["m"], "value": [0.1], "n": [n], "low": [0.0], "high": [0.2], **more})

    assert "in 98, 96 and 94 % of simulated runs" in interval_note("paired_difference", answer(40))
    assert "of 20, 100 and 1000 samples" in interval_note("paired_difference", answer(40))
    assert NOTED["map"].sizes == SIZES
    assert interval_note("paired_difference", answer(5000)) == ""
    assert interval_note("accuracy", answer(5)) == ""
    assert interval_note("failure_severity", answer(5000)) == ""
    assert interval_note("failure_severity", answer(50, shift=["blur"])) == ""
    assert interval_note("paired_difference", answer(5, low=[None], high=[None])) == ""
    assert "f1_at_tpr95 contain" in interval_note("numbers", answer(50, metric=["f1_at_tpr95"]))
    assert interval_note("ood", answer(50, metric=["auroc"])) == ""


def test_the_notes_are_about_metrics_that_are_there() -> None:
    for name in NOTED:
        assert "by" in inspect.signature(getattr(metrics, name)).parameters
