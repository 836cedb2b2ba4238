"""Alarms of a passport, recomputed from the table, and the sentence about them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sorites.analysis.passport.document import Dial
from sorites.core.table import SCHEMA
from sorites.reports.passport.alarms import alarms_of, shown_severity

SAMPLES = 200


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(SAMPLES):
        for severity in (None, 1.0, 3.0):
            score = rng.normal((severity or 0.0) * 1.5, 1)
            rows.append(
                {
                    "run_id": "r",
                    "source": "s",
                    "sample_id": f"i{i}",
                    "image_id": f"i{i} {severity}",
                    "shift": "clean" if severity is None else "exposure_stops_down",
                    "severity": severity,
                    "params": "{}",
                    "model": "m",
                    "output": "ood",
                    "scorer": "msp",
                    "score": score,
                    "known": True,
                    "correct": bool(rng.random() > (severity or 0.2) / 4),
                }
            )
    return pl.DataFrame({name: [row.get(name) for row in rows] for name in SCHEMA}, schema=SCHEMA)


def dial(half: float | None) -> Dial:
    missing = {"value": None, "low": None, "high": None, "n": 0}
    return Dial.model_validate(
        {
            "part": "light",
            "shift": "exposure_stops_down",
            "version": "1",
            "unit": "stops",
            "top": 3.0,
            "half": {**missing, "value": half, "status": "", "clean": 0.9, "chance": 0.1}
            | {"majority": None, "assumed": False},
            "words": "",
            "failure_severity": missing,
            "drop": missing,
            "accuracy": [{**missing, "severity": severity} for severity in (1.0, 3.0)],
        }
    )


def test_alarms_are_those_of_samples_that_did_not_choose_the_threshold() -> None:
    rows = table()
    (alarm,) = alarms_of("msp", {"light": rows.lazy()}, [dial(2.6)])
    assert alarm.severity == 3.0
    assert alarm.error.n == alarm.alarm.n == alarm.clean_alarm.n == SAMPLES // 2
    clean = rows.filter(pl.col("shift") == "clean")
    shifted = rows.filter(pl.col("severity") == 3.0)
    # Half of the samples give nearly the rates of all.
    threshold = float(np.quantile(clean["score"].to_numpy(), 0.95))
    wrong = shifted.filter(~pl.col("correct"))
    assert alarm.error.value == pytest.approx(1 - shifted["correct"].mean(), abs=0.1)  # type: ignore[operator]
    assert alarm.caught.value == pytest.approx((wrong["score"] > threshold).mean(), abs=0.12)
    assert alarm.caught.n == round(alarm.error.value * alarm.error.n)  # type: ignore[operator]


def test_the_severity_is_the_tested_one_next_to_half_accuracy() -> None:
    assert shown_severity(dial(1.4)) == 1.0
    assert shown_severity(dial(None)) == 3.0


def test_a_part_without_scores_or_with_few_images_has_no_alarms() -> None:
    rows = table()
    assert alarms_of("energy", {"light": rows.lazy()}, [dial(None)]) == ()
    few = rows.filter(pl.col("sample_id").is_in(["i1", "i2", "i3"]))
    assert alarms_of("msp", {"light": few.lazy()}, [dial(None)]) == ()
