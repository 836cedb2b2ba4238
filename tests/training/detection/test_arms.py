"""Arms of detectors: mAP and gains, paired over images, and a comparison from recipe to page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.training.detection import scenes
from tests.training.detection.test_training import RECIPE, SUITE

from sorites import metrics
from sorites.analysis.comparison.compare import compare as compare_runs
from sorites.analysis.comparison.detectors import BoxComparison
from sorites.core.errors import SoritesError, UnknownName
from sorites.metrics.detection.coco import interval
from sorites.metrics.detection.mean_ap import Estimate
from sorites.training import arms as comparing
from sorites.training.arms import GROUP, evaluate, prepare, train_all, write_results
from sorites.training.detection.arms import BoxResults, box_results

SAMPLES = np.arange(50)


def estimate(arm: str, seed: int, shift: str, value: float) -> Estimate:
    noise = np.random.default_rng([seed, len(shift)]).normal(0, 0.02, 200)
    noise = np.concatenate([noise, -noise])
    clean = shift == "clean"
    keys = {"arm": arm, "seed": seed, "shift": shift, "family": "clean" if clean else "optics"}
    return Estimate({**keys, "severity": 0.0 if clean else 3.0}, value, value + noise, SAMPLES)


MADE = BoxResults(
    tuple(
        estimate(arm, seed, shift, base + 0.01 * seed * (arm == "optics"))
        for arm, base in (("none", 0.3), ("optics", 0.4))
        for seed in (0, 1, 2)
        for shift in ("clean", "coma", "trefoil")
    )
)


def test_a_gain_is_paired_and_widened_by_the_seeds() -> None:
    gains = MADE.gains("none", GROUP)
    assert gains["arm"].to_list() == ["optics", "optics"]
    row = gains.filter(family="optics").row(0, named=True)
    assert (row["shifts"], row["n"], row["seeds"], row["over"]) == (["coma", "trefoil"], 50, 3, "none")
    by_seed = [0.10, 0.11, 0.12]
    assert row["value"] == pytest.approx(np.mean(by_seed))
    # The noise of the halves is that of the images and cancels; what is left is that of the seeds.
    low, high = stats.t.interval(0.95, 2, np.mean(by_seed), stats.sem(by_seed))
    assert (row["low"], row["high"]) == (pytest.approx(low), pytest.approx(high))


def test_the_interval_of_an_arm_is_that_of_its_mean_over_shifts_and_seeds() -> None:
    row = MADE.precisions(GROUP).filter(arm="none", family="clean").row(0, named=True)
    draws = np.mean([estimate("none", seed, "clean", 0.3).draws for seed in (0, 1, 2)], axis=0)
    assert (row["low"], row["high"]) == pytest.approx(interval(draws, 0.3, 50))
    assert MADE.gains("none", ("shift", "severity"))["shift"].to_list() == ["clean", "coma", "trefoil"]


def test_an_unknown_arm_is_named() -> None:
    with pytest.raises(UnknownName):
        MADE.gains("augmix", GROUP)


def test_an_arm_that_moves_objects_is_refused_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="moves objects"):
        prepare("detector_optics", tmp_path / "out", arms=["none", "flip"], seeds=1)
    prepare("detector_optics", tmp_path / "out", arms=comparing.DEFAULT, seeds=1)


@pytest.mark.slow
def test_detectors_are_trained_and_compared_in_map(tmp_path: Path) -> None:
    file = scenes.write(tmp_path / "images", 24)
    recipe, suite = tmp_path / "r.toml", tmp_path / "s.toml"
    few = (
        RECIPE.replace("FILE", str(file))
        .replace("steps = 24", "steps = 20")
        .replace("lr = 3e-3", "lr = 5e-3")
    )
    recipe.write_text(few)
    suite.write_text(SUITE.replace("FILE", str(scenes.write(tmp_path / "others", 16, seed=1))))
    comparison = prepare(recipe, tmp_path / "out", arms=["none", "optics"], seeds=1, suites=[str(suite)])
    train_all(comparison, workers=2)
    tables = evaluate(comparison)
    results = write_results(comparison, tables)
    (table,) = tables.values()
    (folder,) = (tmp_path / "out/runs").iterdir()

    expected = compare_runs(folder, folder, base_model="none_0", model="optics_0")
    assert isinstance(expected, BoxComparison)
    by_shift = box_results(table, {"none_0": ("none", 0), "optics_0": ("optics", 0)})
    for row in by_shift.gains("none", ("shift", "severity")).iter_rows(named=True):
        dial = expected.dials.filter(dial=row["shift"]).row(0, named=True)
        assert row["value"] == pytest.approx(-dial["drop"], abs=1e-12)
        # Halves without an object of a class are treated differently there.
        assert (row["low"], row["high"]) == (
            pytest.approx(-dial["high"], abs=5e-3),
            pytest.approx(-dial["low"], abs=5e-3),
        )
    own = {(row["arm"], row["shifts"][0]): row for row in by_shift.precisions(GROUP).iter_rows(named=True)}
    for row in metrics.map(table).iter_rows(named=True):
        mine = own[row["model"].removesuffix("_0"), row["shift"]]
        for key in ("value", "low", "high", "n"):
            assert mine[key] == pytest.approx(row[key], abs=1e-6)
    assert max(row["value"] for row in own.values()) > 0

    page = results.page.read_text(encoding="utf-8")
    assert "mAP of the arms" in page
    assert "points of mAP" in page
    assert "accuracy" not in page[page.index("<body>") : page.index("<script>")].lower()
    written = pl.read_csv(results.file)
    assert set(written["family"]) == {"clean", "optics"}
    assert written["arm"].unique().to_list() == ["optics"]
