from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites import metrics
from sorites.core import table as tables
from sorites.core.errors import SoritesError


@pytest.fixture(scope="module")
def seen() -> pl.DataFrame:
    """Six samples through two lenses at two fields, each image seen by two models; one image was
    not measured.
    """
    rng, rows = np.random.default_rng(4), []
    for i in range(6):
        for lens in ("a", "b"):
            for field in (0.0, 0.9):
                likeness = float(0.9 - 0.3 * field + 0.05 * rng.standard_normal())
                held = [{"measure": "ssim", "value": likeness}, {"measure": "psnr", "value": 100 * likeness}]
                measured = held if (i, lens) != (0, "a") else None
                rows += [
                    _row(model, f"p{i}", {"lens": lens, "field": field}, measured) for model in ("m", "n")
                ]
    return tables.rows(rows)


def _row(model: str, sample: str, params: dict[str, object], degrees: object) -> dict[str, object]:
    return {
        "run_id": "r",
        "source": "s",
        "sample_id": sample,
        "image_id": f"{sample}/{params}",
        "shift": "lens",
        "family": "optics",
        "params": json.dumps(params),
        "model": model,
        "output": "label",
        "correct": True,
        "probe": False,
        "degrees": degrees,
    }


def by_hand(seen: pl.DataFrame, field: float, measure: int) -> np.ndarray:
    """The mean of each sample at a field."""
    found: dict[str, list[float]] = {}
    for row in seen.filter(pl.col("model") == "m").to_dicts():
        if json.loads(row["params"])["field"] == field and row["degrees"]:
            found.setdefault(row["sample_id"], []).append(row["degrees"][measure]["value"])
    return np.array([np.mean(values) for values in found.values()])


def test_an_image_counts_once_and_a_sample_is_the_unit(seen: pl.DataFrame) -> None:
    found = metrics.lens_degree(seen)
    assert found.columns == ["lens_field", "value", "n", "low", "high"]
    for row in found.to_dicts():
        each = by_hand(seen, row["lens_field"], 0)
        assert (row["value"], row["n"]) == (pytest.approx(each.mean()), 6)
        assert_transformed(row, each)


def assert_transformed(row: dict[str, Any], values: np.ndarray) -> None:
    """Hall's transformation of both ends is the quantile of Student's t."""
    error, third = stats.sem(values), stats.skew(values) / np.sqrt(len(values))
    for end, sign in (("low", 1), ("high", -1)):
        t = (values.mean() - row[end]) / error
        transformed = t + third * t**2 / 3 + third**2 * t**3 / 27 + third / 6
        assert transformed == pytest.approx(sign * stats.t.ppf(0.975, len(values) - 1), abs=1e-4)


def test_the_interval_of_a_skewed_mean_reaches_further_on_the_side_of_the_tail() -> None:
    values = np.random.default_rng(0).exponential(size=15)
    (found,) = metrics.mean_degree(_few("ssim", *values)).to_dicts()
    assert_transformed(found, values)
    assert found["high"] - found["value"] > 1.3 * (found["value"] - found["low"])


def test_another_measure_and_other_columns(seen: pl.DataFrame) -> None:
    found = metrics.mean_degree(seen, by=("model", "shift"), measure="psnr")
    assert found["n"].to_list() == [6, 6]
    assert found["value"][0] == pytest.approx(found["value"][1])


def _few(measure: str, *values: float | None) -> pl.DataFrame:
    return tables.rows(
        [_row("m", f"p{i}", {"lens": "a"}, [{"measure": measure, "value": v}]) for i, v in enumerate(values)]
    )


def test_an_image_without_a_value_is_missing() -> None:
    """0.6 and 12.706 standard errors of 0.1 on either side, from Student's t with one degree of freedom."""
    (found,) = metrics.mean_degree(_few("ssim", 0.5, 0.7, None, None)).to_dicts()
    assert (found["value"], found["n"]) == (pytest.approx(0.6), 2)
    assert (found["low"], found["high"]) == pytest.approx((-0.6706, 1.8706), abs=1e-4)
    assert metrics.mean_degree(_few("ssim", None)).height == 0


def test_an_infinite_degree_makes_the_mean_infinite_and_leaves_no_interval() -> None:
    (found,) = metrics.mean_degree(_few("psnr", 30.0, math.inf, 32.0), measure="psnr").to_dicts()
    assert (found["value"], found["n"], found["low"], found["high"]) == (math.inf, 3, None, None)
    (found,) = metrics.mean_degree(_few("psnr", math.inf), measure="psnr").to_dicts()
    assert (found["value"], found["n"], found["low"], found["high"]) == (math.inf, 1, None, None)


def test_degrees_are_no_column_to_group_by(seen: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="cannot be grouped by 'degrees'"):
        metrics.mean_degree(seen, by=("degrees",))


def test_unmeasured_measure_names_the_available_ones(seen: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="'lpips'.* It has psnr, ssim"):
        metrics.mean_degree(seen, measure="lpips")
