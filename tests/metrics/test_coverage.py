"""Intervals have 95 % coverage, or a note with their measured coverage."""

from __future__ import annotations

import inspect

import polars as pl
import pytest
from tests.metrics.box_coverage import SIZES
from tests.metrics.coverage import covered
from tests.metrics.coverage_laws import ALIKE, LAWS
from tests.metrics.test_contract import options

from sorites import metrics
from sorites.core import METRICS
from sorites.metrics import interval_note
from sorites.metrics.intervals import NOTED

DRAWS = {20: 500, 100: 250}
"""Enough for three standard errors of 3 and 4 points; the full figures are in docs/metrics.md."""

OF_BOXES = {"map", "map_numbers", "mean_map", "dial_map", "map_drop", "map_corruption_error", "tide"} | {
    "box_failure_severity", "box_survival", "box_failure_histogram",
}  # fmt: skip
"""Metrics of detectors: ``python -m tests.metrics.box_coverage`` simulates mAP's; docs/detection.md
has its figures.
"""
POOLED = {"failure_severity": "failure_severity, shifts pooled"}
"""Laws that a note is about, where it is not the metric's plain one."""


@pytest.mark.slow
def test_every_metric_with_an_interval_has_a_law(world: pl.DataFrame) -> None:
    named = {law.split(",")[0] for law in LAWS} | set(ALIKE)
    with_interval = {
        name
        for name in METRICS.names()
        if "low" in METRICS.get(name)(world, **options(METRICS.get(name))).columns
    }
    assert with_interval - OF_BOXES == named
    assert set(ALIKE.values()) <= set(LAWS)
    assert set(NOTED) <= named | OF_BOXES


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAWS if name != "half_accuracy_severity"])
def test_interval_coverage_is_95_percent_or_noted(name: str) -> None:
    metric = name.split(",")[0]
    noted = NOTED.get(metric) if POOLED.get(metric, metric) == name else None
    for place, (n, draws) in enumerate(DRAWS.items()):
        said = noted.shares[place] / 100 if noted is not None else None
        least, most = (0.93, 0.97) if said is None or 0.93 <= said <= 0.97 else (said, said)
        error = 3 * (least * (1 - least) / draws) ** 0.5
        assert least - error <= covered(LAWS[name], n, draws) <= most + error, (name, n)


def test_a_note_is_for_the_sizes_that_need_it() -> None:
    def answer(n: int, **more: object) -> pl.DataFrame:
        return pl.DataFrame({"model": ["m"], "value": [0.1], "n": [n], "low": [0.0], "high": [0.2], **more})

    assert "in 20, 45 and 94 % of simulated runs" in interval_note("calibration_error", answer(40))
    assert "of 20, 100 and 1000 samples" in interval_note("calibration_error", answer(40))
    assert "in 90, 94 and 95 % of simulated runs of 20, 100 and 500 samples" in interval_note(
        "map", answer(40)
    )
    assert NOTED["map"].sizes == SIZES
    assert interval_note("calibration_error", answer(5000)) == ""
    assert interval_note("accuracy", answer(5)) == ""
    assert "independent" in interval_note("failure_severity", answer(5000)), (
        "pooled over shifts it is never enough"
    )
    assert interval_note("failure_severity", answer(50, shift=["blur"])) == ""
    assert interval_note("aurc", answer(5, low=[None], high=[None])) == ""
    assert "fpr95_id_pos contain" in interval_note("ood", answer(50, metric=["fpr95_id_pos"]))
    assert interval_note("ood", answer(50, metric=["auroc"])) == ""


def test_the_notes_are_about_metrics_that_are_there() -> None:
    for name in NOTED:
        assert "by" in inspect.signature(getattr(metrics, name)).parameters
