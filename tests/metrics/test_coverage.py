"""Intervals have 95 % coverage, or a note with their measured coverage."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm
from tests.metrics import box_coverage
from tests.metrics.coverage import covered
from tests.metrics.coverage_laws import LAWS, SIZES
from tests.metrics.test_contract import _world, options  # noqa: F401 (a fixture)

from sorites import metrics
from sorites.core import METRICS
from sorites.metrics import interval_note
from sorites.metrics.intervals import NOTED, clustered_share_bounds

DRAWS = {20: 500, 100: 250}
"""Enough for three standard errors of 3 and 4 points; the full figures are in docs/metrics.md."""

PROVEN = {
    *("half_accuracy_severity", "failure_contour", "on_the_line"),
    *("camera_control", "camera_control, gain", "control_policies", "control_transfer"),
}
"""Laws that take minutes; only ``make proof`` simulates them."""

BIASED = {
    "map",
    "map_numbers",
    "mean_map",
    "dial_map",
    "map_drop",
    "grid_map",
    "mean_map_numbers",
    "tide",
    "mean_tide",
}
"""Metrics whose note is about ten classes, of which the rarest has few objects."""

POOLED = {"failure_severity": "failure_severity, shifts pooled"}
"""Laws that a note is about, where it is not the metric's plain one."""


@pytest.mark.slow
def test_every_metric_with_an_interval_has_a_law(world: pl.DataFrame) -> None:
    named = {law.split(",")[0] for law in {**LAWS, **box_coverage.LAWS}}
    with_interval = {
        name
        for name in METRICS.names()
        if "low" in METRICS.get(name)(world, **options(METRICS.get(name))).columns
    }
    assert with_interval == named
    assert set(NOTED) <= named


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAWS if name not in PROVEN])
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


def _published() -> dict[str, list[tuple[float, ...]]]:
    """The figures of each metric in the table of docs/metrics.md, of every row that names it."""
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    lines = text.partition("## How far the intervals can be trusted")[2].splitlines()
    found: dict[str, list[tuple[float, ...]]] = {}
    for line in (line for line in lines if line.startswith("| `")):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        shares = tuple(float(re.match(r"[\d.]*", cell).group() or "nan") for cell in cells[3:6])  # type: ignore[union-attr]
        for name in re.findall(r"`(\w+)`", cells[0]):
            found.setdefault(name, []).append(shares)
    return found


def test_the_notes_say_what_the_table_says() -> None:
    published = _published()
    assert set(METRICS.names()) == set(published)
    # The numbers of ``ood`` have rows of their own.
    laws = {law.split(",")[0] for law in {**LAWS, **box_coverage.LAWS}}
    assert laws - {"ood"} <= set(published)
    for name, rows in published.items():
        off = [shares for shares in rows if any(not 93 <= share <= 97 for share in shares if share == share)]
        noted = NOTED.get(name)
        if name in POOLED or name in BIASED:
            continue
        assert (noted is None) == (not off), name
        if noted is not None:
            assert [tuple(map(str, noted.shares))] == [tuple(map(str, shares)) for shares in off], name


def test_every_metric_with_an_interval_is_measured_with_100_and_1000_samples() -> None:
    """Between 93 and 99 % of intervals hold the truth, or there is none."""
    for name, rows in _published().items():
        for shares in rows:
            assert all(93 <= share <= 99 for share in shares[1:] if share == share), name
