from __future__ import annotations

import dataclasses
import re
import statistics

import numpy as np
import polars as pl
import pytest
from scipy.stats import binomtest

from sorites import metrics
from sorites.core import CLEAN
from sorites.reports.components.markup import THIN
from sorites.reports.page import sentences
from sorites.reports.sections.accuracy import headline
from sorites.reports.view import RunView, View, merge


def in_short(view: View) -> str:
    return " ".join(sentences(view))


def card(run: RunView, model: str) -> str:
    """Return the text of a model's card."""
    section = headline(merge([run]))
    assert section is not None
    own = next(part for part in section.body.split("<article") if f"<h3>{model}</h3>" in part)
    return " ".join(re.sub(r"<[^>]+>", " ", own.replace("<wbr>", "")).replace(THIN, "").split())


def verdicts(rows: pl.DataFrame, model: str) -> list[dict[str, object]]:
    return [row for row in rows.to_dicts() if row["model"] == model and row["error"] is None]


def test_clean_and_shifted_accuracy(run: RunView, rows: pl.DataFrame) -> None:
    own = verdicts(rows, "lite1")
    clean = [row["correct"] for row in own if row["shift"] == CLEAN]
    ends = binomtest(sum(clean), len(clean)).proportion_ci(method="wilson")  # type: ignore[arg-type]
    said = f"Clean {100 * statistics.mean(clean):.1f}% {100 * ends.low:.1f} to {100 * ends.high:.1f}% n = 60"  # type: ignore[type-var]
    assert said in card(run, "lite1")


def test_the_mean_under_shift_counts_each_shift_the_same(run: RunView, rows: pl.DataFrame) -> None:
    whole = dataclasses.replace(
        run, table=run.table.filter(pl.col("error").is_null() & (pl.col("shift") != "jpeg"))
    )
    grid = [
        row
        for row in verdicts(rows, "lite2")
        if not row["probe"] and row["shift"] in ("defocus_disk", "gaussian_noise")
    ]
    each = [
        statistics.mean(row["correct"] for row in grid if row["shift"] == shift)
        for shift in ("defocus_disk", "gaussian_noise")
    ]  # type: ignore[misc]
    assert f"Under shift {100 * statistics.mean(each):.1f}%" in card(whole, "lite2")


def test_where_half_are_lost(run: RunView, rows: pl.DataFrame) -> None:
    own = [row for row in verdicts(rows, "lite0") if row["shift"] in (CLEAN, "defocus_disk")]
    points = []
    for sample in {row["sample_id"] for row in own}:
        wrong = [row["severity"] for row in own if row["sample_id"] == sample and not row["correct"]]
        points.append(min(wrong, default=float("inf")))  # type: ignore[type-var]
    assert f"defocus_disk px out of focus {statistics.median(points):.1f} " in card(run, "lite0")  # type: ignore[type-var]


def test_survivors_have_no_median(run: RunView) -> None:
    sturdy = run.table.filter(pl.col("error").is_null() & ~pl.col("probe")).with_columns(correct=pl.lit(True))
    words = card(dataclasses.replace(run, table=sturdy), "lite0")
    assert "survive the greatest severity (178 of 178)" in words
    assert "beyond 10" in words


def test_missing_predictions_are_counted(run: RunView) -> None:
    assert "10 predictions failed and count as missing" in card(run, "lite0")
    assert "missing" not in card(
        dataclasses.replace(run, table=run.table.filter(pl.col("error").is_null())), "lite0"
    )


def test_the_summary_calls_nobody_better_whom_the_images_do_not_tell_apart(run: RunView) -> None:
    """The intervals of lite1 and lite2 overlap, but the paired difference is significant."""
    under = metrics.mean_accuracy(run.table).filter(pl.col("model").is_in(["lite1", "lite2"]))
    assert under["low"].max() < under["high"].min()  # type: ignore[operator]
    said = in_short(merge([run]))
    assert "lite2 is best" in said
    gap = (
        metrics.paired_difference(run.table, other="lite1")
        .filter(pl.col("model") == "lite2")
        .row(0, named=True)
    )
    assert gap["low"] > 0
    points = [f"{100 * gap[name]:.0f}" for name in ("value", "low", "high")]
    assert f"({points[0]} points, {points[1]} to {points[2]})" in said
    few = merge([dataclasses.replace(run, table=run.table.filter(pl.col("sample_id") < "object-08"))])
    summary = in_short(few)
    assert "No model is clearly best" in summary
    assert "than lite2 or lite0." in summary


def test_costs_carry_their_intervals(run: RunView) -> None:
    drops = metrics.accuracy_drop(run.table, by=["shift"]).sort("value")
    ends = [drops.select("value", "low", "high").row(place) for place in (-1, 0)]
    most, least = (
        f"({value:.0f} points, {low:.0f} to {high:.0f})" for value, low, high in 100 * np.array(ends)
    )
    said = in_short(merge([run])).replace("−", "-")
    assert f"costs the most accuracy {most}" in said
    assert f"the least {least}" in said


def test_a_model_that_is_never_right_has_no_half_and_no_hardest_shift(run: RunView) -> None:
    wrong = dataclasses.replace(run, table=run.table.with_columns(correct=pl.col("correct") & False))
    said = in_short(merge([wrong]))
    assert "costs the most" not in said
    assert "All 3 shifts cost about the same accuracy, 0 points." in said
    assert "−0" not in said
    assert "−0.0" not in card(wrong, "lite2")
    assert "beyond" not in card(wrong, "lite2")


@pytest.mark.slow
def test_half_lost_says_that_it_counts_images_the_model_never_had(run: RunView) -> None:
    worse = run.table.with_columns(
        correct=pl.when((pl.col("shift") == CLEAN) & (pl.col("sample_id") < "object-15"))
        .then(False)
        .otherwise("correct")
    )
    assert "including the 25% that are misclassified when clean." in card(
        dataclasses.replace(run, table=worse), "lite2"
    )
    assert "including" not in card(run, "lite2")
    assert "shift median failure severity half-accuracy severity survive" in card(run, "lite2")


@pytest.mark.parametrize("rows_kept", [0, 1])
def test_the_summary_of_almost_no_rows(run: RunView, rows_kept: int) -> None:
    said = in_short(merge([dataclasses.replace(run, table=run.table.head(rows_kept))]))
    assert (
        said
        == ["No image was evaluated.", "The model classifies 100\u202f% of the clean images correctly."][
            rows_kept
        ]
    )
