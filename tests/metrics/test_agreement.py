from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau

from sorites.core import table as tables
from sorites.core.errors import SoritesError
from sorites.metrics.comparison import rank_agreement


def made(accuracies: dict[str, dict[str, float]], n: int = 50) -> pl.DataFrame:
    """Label rows whose accuracy a model and shift is exactly as given."""
    records = [
        {
            "run_id": "r",
            "source": "s",
            "sample_id": str(i),
            "image_id": f"{shift}{i}",
            "probe": False,
            "seed": 0,
            "shift": shift,
            "severity": 0.0 if shift == "clean" else 1.0,
            "model": model,
            "output": "label",
            "correct": i < round(share * n),
        }
        for model, shares in accuracies.items()
        for shift, share in shares.items()
        for i in range(n)
    ]
    return tables.rows(records)


def test_tau_equals_scipy_on_accuracies_with_ties() -> None:
    shares = {f"m{i}": {"clean": i / 10, "coma": (i % 4) / 10, "disk": (9 - i) / 10} for i in range(8)}
    found = rank_agreement(made(shares))
    for one, two in (("clean", "coma"), ("coma", "disk"), ("clean", "disk")):
        row = found.filter(pl.col("shift") == one, pl.col("other") == two)
        tau, p = kendalltau([s[one] for s in shares.values()], [s[two] for s in shares.values()])
        assert row["value"].item() == pytest.approx(tau)
        assert row["p"].item() == pytest.approx(p)
        assert row["n"].item() == 8
    assert found.height == 9
    assert found.filter(pl.col("shift") == pl.col("other"))["value"].to_list() == pytest.approx([1, 1, 1])


def test_the_matrix_is_symmetric_and_knows_its_interval() -> None:
    rng = np.random.default_rng(0)
    shares = {
        f"m{i}": {"a": float(rng.integers(50)) / 50, "b": float(rng.integers(50)) / 50} for i in range(12)
    }
    found = rank_agreement(made(shares))
    there = found.filter(pl.col("shift") == "a", pl.col("other") == "b").row(0, named=True)
    back = found.filter(pl.col("shift") == "b", pl.col("other") == "a").row(0, named=True)
    assert there["value"] == back["value"]
    assert there["low"] < there["value"] < there["high"]
    reach = 1.959963984540054 * (0.437 / 8) ** 0.5
    assert np.arctanh(there["high"]) - np.arctanh(there["value"]) == pytest.approx(reach)


def test_models_can_be_left_out_by_name() -> None:
    shares = {f"m{i}": {"a": i / 10, "b": i / 10} for i in range(6)} | {"odd": {"a": 1.0, "b": 0.0}}
    assert rank_agreement(made(shares)).filter(pl.col("shift") != pl.col("other"))["value"][0] < 1
    kept = rank_agreement(made(shares), exclude=["odd"])
    assert kept.filter(pl.col("shift") != pl.col("other"))["value"].to_list() == pytest.approx([1, 1])
    with pytest.raises(SoritesError, match="'od'. Did you mean odd"):
        rank_agreement(made(shares), exclude=["od"])


def test_too_few_models_are_null_not_one() -> None:
    one = rank_agreement(made({"m": {"a": 0.5, "b": 0.4}}))
    assert one["value"].null_count() == one.height
    tied = rank_agreement(made({"m": {"a": 0.5, "b": 0.4}, "k": {"a": 0.5, "b": 0.1}}))
    assert tied.filter(pl.col("shift") != pl.col("other"))["value"].null_count() == 2


def test_an_empty_table_has_an_empty_answer() -> None:
    assert rank_agreement(tables.rows([])).height == 0


def test_equal_models_tie_in_any_order_of_rows() -> None:
    """Three models with equal accuracies over settings of different sizes: their means differ in the last
    digit, depending on the order of the rows.
    """
    rng = np.random.default_rng(0)
    marks = rng.random((7, 3, 3)) < 0.6
    records = [
        {
            "run_id": "r", "source": "s", "sample_id": str(i), "image_id": f"{shift}{setting}{i}", "seed": 0,
            "probe": False, "shift": shift, "severity": float(setting + 1), "model": model,
            "output": "label", "correct": bool(marks[(i + turn) % 7, setting, k]),
        }
        for turn, model in enumerate("abcde")
        for k, shift in enumerate(("blur", "noise", "haze"))
        for setting in range(3)
        for i in range(7)
    ]  # fmt: skip
    table = tables.rows(records)
    for seed in range(5):
        found = rank_agreement(table.sample(fraction=1, shuffle=True, seed=seed))
        assert found["value"].null_count() == found.height, "every model ties with every other"
