from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites import metrics
from sorites.core import table as tables

FIELDS = (0.0, 0.5, 0.9)
QUALITY = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}


@pytest.fixture(scope="module")
def seen() -> pl.DataFrame:
    """Ten samples through four lenses at three fields by two models; one row of a clean image and
    one error.
    """
    rng, rows = np.random.default_rng(3), []
    for model in ("m", "n"):
        for name, quality in QUALITY.items():
            for field in FIELDS:
                for i in range(10):
                    params = {
                        "lens": name,
                        "field": field,
                        "mtf50": quality - 0.05 * field,
                        "quality": quality,
                        "azimuth": 45,
                    }
                    right = bool(rng.random() < 0.2 + 1.8 * quality - 0.3 * field)
                    rows.append(_row(model, f"p{i}", f"{name}{field}", right, json.dumps(params)))
    bad = {**_row("m", "bad", "x", True, rows[0]["params"]), "correct": None, "error": "broken"}
    clean = {**_row("m", "p0", "clean", True, "{}"), "shift": "clean", "severity": 0.0}
    return tables.rows([*rows, bad, clean])


def _row(model: str, sample: str, image: str, right: bool, params: str) -> dict[str, object]:
    return {
        "run_id": "r",
        "source": "s",
        "sample_id": sample,
        "image_id": f"{sample}/{image}",
        "shift": "lens",
        "family": "optics",
        "params": params,
        "model": model,
        "output": "label",
        "correct": right,
        "probe": False,
        "known": True,
        "label": 1,
    }


def plain(seen: pl.DataFrame, model: str) -> pl.DataFrame:
    own = seen.filter((pl.col("model") == model) & (pl.col("shift") == "lens") & pl.col("error").is_null())
    told = pl.col("params").str.json_decode(
        pl.Struct({"lens": pl.String, "field": pl.Float64, "quality": pl.Float64})
    )
    return own.select("sample_id", "correct", told.alias("p")).unnest("p")


def test_accuracy_by_lens_is_the_mean_over_its_fields(seen: pl.DataFrame) -> None:
    found = metrics.lens_accuracy(seen)
    assert found.columns == ["model", "lens", "value", "n", "low", "high", "quality", "error"]
    for row in found.iter_rows(named=True):
        own = plain(seen, row["model"]).filter(pl.col("lens") == row["lens"])
        at_field = own.group_by("field").agg(pl.col("correct").mean())["correct"].to_numpy()
        assert row["value"] == pytest.approx(own["correct"].mean())
        assert row["error"] == pytest.approx(stats.sem(at_field))
        assert (row["quality"], row["n"]) == (pytest.approx(QUALITY[row["lens"]]), 10)


def test_accuracy_by_field(seen: pl.DataFrame) -> None:
    found = metrics.lens_field(seen).filter(pl.col("model") == "n")
    wanted = plain(seen, "n").group_by("field").agg(pl.col("correct").mean()).sort("field")
    assert found["lens_field"].to_list() == list(FIELDS)
    assert found["value"].to_list() == pytest.approx(wanted["correct"].to_list())


def test_correlations_are_scipys(seen: pl.DataFrame) -> None:
    found = metrics.lens_correlation(seen).row(0, named=True)
    each = plain(seen, "m").group_by("lens").agg(pl.col("correct").mean(), pl.col("quality").first())
    line, rank = (
        stats.pearsonr(each["quality"], each["correct"]),
        stats.kendalltau(each["quality"], each["correct"]),
    )
    assert (found["model"], found["n"]) == ("m", 4)
    assert [found[key] for key in ("value", "p", "tau", "tau_p")] == pytest.approx([*line, *rank])


def test_two_lenses_correlate_with_nothing(seen: pl.DataFrame) -> None:
    few = seen.filter(pl.col("params").str.contains('"a"|"b"'))
    assert metrics.lens_correlation(few)["value"].to_list() == [None, None]


def test_the_whole_table_is_one_group(seen: pl.DataFrame) -> None:
    assert metrics.lens_accuracy(seen, by=())["value"].item() == pytest.approx(
        pl.concat([plain(seen, m) for m in "mn"])["correct"].mean()
    )
    assert metrics.lens_correlation(seen, by=())["n"].item() == 4
