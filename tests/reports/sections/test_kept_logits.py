"""The sections from kept logits: their numbers are those of the verbs, and other runs have no such section."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl
import pytest
from tests.analysis.uncertainty.test_conformal import CLASSES, seen, source

import sorites
from sorites.core import Model
from sorites.reports.components import by_method
from sorites.reports.components.markup import number, percent, points
from sorites.reports.report import load_views
from sorites.reports.sections.prediction_sets import prediction_sets
from sorites.reports.sections.recalibration import recalibration
from sorites.reports.view import View, merge
from sorites.suites.suite import parse

SECTIONS = {"conformal": prediction_sets, "recalibrate": recalibration}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    suite = parse({"name": "s", "labels": CLASSES, "shifts": ["brightness"]}, "test")
    models = [Model(name, seen) for name in ("one", "two")]
    sorites.run(suite, source=source(60), models=models, out=out, keep_features=True, levels=[2, 5])
    return out


@pytest.fixture(scope="module")
def view(folder: Path) -> View:
    return merge(load_views(folder))


def test_the_tables_have_the_numbers_of_the_verbs(folder: Path, view: View) -> None:
    sets = prediction_sets(view)
    assert sets is not None
    worst = sorites.conformal(folder, models=["one"], methods=["aps"]).filter(shift="brightness")
    row = worst.sort("value").row(0, named=True)
    assert percent(row["value"]) in sets.body
    assert f"{number(row['size'])} classes" in sets.body
    fitted = recalibration(view)
    assert fitted is not None
    judged = sorites.recalibrate(folder, models=["one"], methods=["temperature"])
    for shift in ("clean", "brightness"):
        row = judged.filter(shift=shift).sort("nll").row(-1, named=True)
        assert f"{points(row['gap'])} confidence − accuracy" in fitted.body
        assert f"Brier {number(row['brier'])}, ECE {percent(row['adaptive_ece'])}" in fitted.body
        assert number(row["nll"]) in fitted.body


def test_the_gap_is_confidence_minus_accuracy(folder: Path) -> None:
    rows = sorites.recalibrate(folder)
    gaps = rows.select(difference=(pl.col("conf") - pl.col("accuracy") - pl.col("gap")).abs().max())
    assert gaps.item() < 1e-12
    # These methods change the confidence of an answer, and no answer.
    accuracies = rows.group_by("model", "shift", "severity").agg(pl.col("accuracy").n_unique())
    assert accuracies["accuracy"].to_list() == [1] * accuracies.height
    assert rows.filter((pl.col("gap_low") < pl.col("gap")) & (pl.col("gap") < pl.col("gap_high"))).height > 0


@pytest.mark.parametrize("verb", SECTIONS)
def test_each_model_has_a_panel_with_two_charts_per_shift(view: View, verb: str) -> None:
    section = SECTIONS[verb](view)
    assert section is not None
    assert section.body.count("data-pick=") >= 2
    assert section.body.count('class="card"') == 2 * 2


@pytest.mark.parametrize("verb", SECTIONS)
def test_runs_without_logits_have_no_section_and_long_ones_the_command(
    view: View, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = merge([dataclasses.replace(run, logits=None) for run in view.runs])
    assert SECTIONS[verb](without) is None
    monkeypatch.setattr(by_method, "MAX_IMAGES", 10)
    section = SECTIONS[verb](view)
    assert section is not None
    assert f"sorites {verb} RUN" in section.body
