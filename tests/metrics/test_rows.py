from typing import Any

import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.metrics import accuracy, failure_severity, with_clean
from sorites.metrics.rows import judged_rows, select_rows


@pytest.mark.parametrize(
    "passed_over",
    [
        {"output": "ood"},
        {"probe": True},
        {"valid": False},
        {"correct": None, "error": "x"},
        {"correct": None, "known": False},
    ],
)
def test_judged_rows_are_label_rows_with_a_verdict(passed_over: dict[str, Any], row: Any, frame: Any) -> None:
    kept, left = row("a", "blur", 1.0, True), row("b", "blur", 1.0, True) | passed_over
    rows, _ = select_rows(frame([kept, left]), ())
    assert judged_rows(rows).collect()["sample_id"].to_list() == ["a"]


@pytest.mark.parametrize("kept", [{"probe": None}, {"valid": None}, {"valid": True}])
def test_null_means_unknown(kept: dict[str, Any], row: Any, frame: Any) -> None:
    rows, _ = select_rows(frame([row("a", "blur", 1.0, True) | kept]), ())
    assert judged_rows(rows).collect().height == 1


def test_with_clean_starts_every_dial_and_only_dials(world: pl.DataFrame) -> None:
    curves = accuracy(with_clean(world))
    starts = curves.filter(pl.col("severity") == 0).select("shift", "model", "value", "n")
    clean = starts.filter(pl.col("shift") == "clean").drop("shift")
    assert starts["shift"].unique().sort().to_list() == ["blur", "clean", "noise"]
    for shift in ("blur", "noise"):
        assert starts.filter(pl.col("shift") == shift).drop("shift").equals(clean)
    assert curves.filter(pl.col("severity") != 0).equals(accuracy(world).filter(pl.col("severity") != 0))


def test_with_clean_stays_within_a_run(row: Any, frame: Any) -> None:
    rows = [row("a", "clean", 0.0, True, run_id="1"), row("a", "blur", 1.0, True, run_id="1")]
    rows += [row("a", "clean", 0.0, False, run_id="2"), row("a", "noise", 1.0, True, run_id="2")]
    curves = accuracy(with_clean(frame(rows))).filter(pl.col("severity") == 0, pl.col("shift") != "clean")
    assert curves.select("shift", "value", "n").rows() == [("blur", 1.0, 1), ("noise", 0.0, 1)]


def test_trajectories_cannot_be_grouped_by_image_columns(world: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="grouped by 'severity'"):
        failure_severity(world, by=("model", "shift", "severity"))
