"""Params that a shift chose for itself do not part the pictures of one stop."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from sorites import metrics
from sorites.core import table
from sorites.metrics import STOP, with_stops


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
    verdict = {"truth": [box(0)], "boxes": [box(off, 1 - sample / 10), box(50, 0.95 - sample / 7)]}
    return {**named, **verdict, "shift": shift, "severity": severity, "params": json.dumps(params), "model": "m",
            "output": "boxes", "probe": False}  # fmt: skip


def stops(rows: list[dict[str, Any]]) -> list[str | None]:
    return with_stops(table.rows(rows)).select(STOP[-1]).collect()[STOP[-1]].to_list()


def test_a_drawn_direction_does_not_part_a_severity() -> None:
    clean = [row(i, "clean", 0.0, {}) for i in range(6)]
    moved = [row(i, "coma", 1.0, {"zernike": 7 + i % 2}, off=float(i)) for i in range(6)]
    made = table.rows([*clean, *moved])
    assert stops(moved) == [None] * 6
    whole = metrics.map(made.filter(pl.col("shift") == "coma"), by=("model",), resamples=0)["value"].item()
    assert metrics.mean_map(made, resamples=0)["value"].item() == pytest.approx(whole, abs=1e-12)
    start = metrics.map(made.filter(pl.col("shift") == "clean"), by=("model",), resamples=0)["value"].item()
    assert metrics.map_drop(made, by=("model",), resamples=0)["value"].item() == pytest.approx(
        start - whole, abs=1e-12
    )


def test_of_a_grid_the_params_count_that_tell_images_of_a_sample_apart() -> None:
    made = [
        row(i, "lens", None, {"lens": lens, "field": field, "azimuth": 120 * (i % 3), "mtf50": field / 2 + i % 3, "quality": 0.2})
        for i in range(4) for lens in "ab" for field in (0.0, 0.5)
    ]  # fmt: skip
    found = [json.loads(stop or "") for stop in stops(made)]
    assert {tuple(sorted(stop)) for stop in found} == {("field", "lens")}
    assert len({json.dumps(stop) for stop in found}) == 4


def test_an_automatic_exposure_is_one_stop() -> None:
    made = [
        row(i, "camera", None, {"mode": "auto", "iso": 100 * i, "shot": shot})
        for i in range(4)
        for shot in (1, 2)
    ]
    assert set(stops(made)) == {'{"shot": 1}', '{"shot": 2}'}


def test_params_that_are_no_json_are_a_stop_of_their_own() -> None:
    made = [{**row(i, "x", None, {}), "params": text} for i in range(2) for text in ("{", "[1]")]
    assert len(set(stops(made))) == 2
