"""Params chosen at random by a shift do not split the images of one setting."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from sorites import metrics
from sorites.core import table
from sorites.metrics import SETTING_KEY, with_settings_key


def box(x: float, conf: float | None = None) -> dict[str, Any]:
    return {"x0": x, "y0": 0.0, "x1": x + 10.0, "y1": 10.0, "label": 0, "conf": conf}


def row(
    sample: int, shift: str, severity: float | None, params: dict[str, Any], off: float = 0.0
) -> dict[str, Any]:
    named = {
        "run_id": "r",
        "source": "s",
        "sample_id": f"p{sample}",
        "image_id": f"{sample}{shift}{severity}{params}",
    }
    verdict = {"ground_truth": [box(0)], "boxes": [box(off, 1 - sample / 10), box(50, 0.95 - sample / 7)]}
    return {
        **named,
        **verdict,
        "shift": shift,
        "severity": severity,
        "params": json.dumps(params),
        "model": "m",
        "output": "boxes",
        "probe": False,
    }


def settings(rows: list[dict[str, Any]]) -> list[str | None]:
    return with_settings_key(table.rows(rows)).select(SETTING_KEY[-1]).collect()[SETTING_KEY[-1]].to_list()


def test_random_params_do_not_split_a_severity() -> None:
    clean = [row(i, "clean", 0.0, {}) for i in range(6)]
    moved = [row(i, "coma", 1.0, {"zernike": 7 + i % 2}, off=float(i)) for i in range(6)]
    made = table.rows([*clean, *moved])
    assert settings(moved) == [None] * 6
    whole = metrics.map(made.filter(pl.col("shift") == "coma"), by=("model",), resamples=0)["value"].item()
    assert metrics.mean_map(made, resamples=0)["value"].item() == pytest.approx(whole, abs=1e-12)
    start = metrics.map(made.filter(pl.col("shift") == "clean"), by=("model",), resamples=0)["value"].item()
    assert metrics.map_drop(made, by=("model",), resamples=0)["value"].item() == pytest.approx(
        start - whole, abs=1e-12
    )


def test_grid_settings_use_only_distinguishing_params() -> None:
    made = [
        row(
            i,
            "lens",
            None,
            {
                "lens": lens,
                "field": field,
                "azimuth": 120 * (i % 3),
                "mtf50": field / 2 + i % 3,
                "quality": 0.2,
            },
        )
        for i in range(4)
        for lens in "ab"
        for field in (0.0, 0.5)
    ]
    found = [json.loads(setting or "") for setting in settings(made)]
    assert {tuple(sorted(setting)) for setting in found} == {("field", "lens")}
    assert len({json.dumps(setting) for setting in found}) == 4


def test_automatic_exposure_is_one_setting() -> None:
    made = [
        row(i, "camera", None, {"mode": "auto", "iso": 100 * i, "shot": shot})
        for i in range(4)
        for shot in (1, 2)
    ]
    assert set(settings(made)) == {'{"shot": 1}', '{"shot": 2}'}


def test_params_that_are_not_json_are_a_separate_setting() -> None:
    made = [{**row(i, "x", None, {}), "params": text} for i in range(2) for text in ("{", "[1]")]
    assert len(set(settings(made))) == 2
