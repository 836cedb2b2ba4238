"""Gains against the house's paired difference, SciPy's intervals and a simulation with known truth."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from sorites.core import table as tables
from sorites.core.errors import UnknownName
from sorites.metrics import paired_difference
from sorites.training.arms import accuracies, comparison_tables, gains, members, verdicts


def row(sample, shift, severity, right, model):
    family = {"coma": "optics", "trefoil": "optics"}.get(shift, shift)
    return {
        "run_id": "r", "source": "s", "sample_id": sample, "shift": shift, "family": family, "severity": severity, "seed": 0,
        "probe": False, "model": model, "output": "label", "correct": right, "conf": 0.5, "label": 1, "known": True,
        "image_id": f"{sample} {shift} {severity}",
    }  # fmt: skip


def world(arms, seeds, images=200, shifts=("coma", "trefoil"), seed=0):
    """Images of their own difficulty, arms of their own ability, seeds with luck of their own."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(0, 1, images)
    rows = []
    for member in members(list(arms), seeds):
        luck = rng.normal(0, 0.05)
        for at, (shift, severity) in enumerate(
            [("clean", 0.0), *[(s, v) for s in shifts for v in (1.0, 3.0)]]
        ):
            chance = stats.norm.cdf(arms[member.arm] + luck - hard - 0.3 * min(at, 1) * severity)
            rows += [
                row(f"p{i}", shift, severity, bool(rng.random() < chance[i]), member.name)
                for i in range(images)
            ]
    return tables.rows(rows).lazy(), members(list(arms), seeds)


def test_with_one_seed_it_is_the_paired_difference():
    table, trained = world({"none": 0.0, "optics": 0.5}, 1)
    found = gains(verdicts(table, trained), "none", ("shift", "severity")).filter(pl.col("shift") != "clean")
    wanted = paired_difference(table, by=["model", "shift", "severity"], other="none_0").sort(
        "shift", "severity"
    )
    assert found["value"].to_list() == pytest.approx(wanted["value"].to_list())
    assert found["low"].to_list() == pytest.approx(wanted["low"].to_list())
    assert found["high"].to_list() == pytest.approx(wanted["high"].to_list())
    assert found["seeds"].unique().to_list() == [1]


def test_a_family_is_the_mean_of_its_shifts_on_the_same_images():
    table, trained = world({"none": 0.0, "optics": 0.5}, 2)
    rows = verdicts(table, trained)
    whole = gains(rows, "none").filter((pl.col("family") == "optics") & (pl.col("severity") == 3))
    each = gains(rows, "none", ("shift", "severity")).filter(
        (pl.col("shift") != "clean") & (pl.col("severity") == 3)
    )
    assert whole["shifts"].item().to_list() == ["coma", "trefoil"]
    assert whole["value"].item() == pytest.approx(each["value"].mean())
    assert whole.select("n", "seeds").row(0) == (200, 2)
    assert 0.05 < whole["value"].item() < 0.35


def test_the_scatter_of_seeds_widens_as_student_has_it():
    """Images that are all alike leave the seeds alone: then the interval is SciPy's, but for the
    added half pairs.
    """
    shares = [0.30, 0.20, 0.25]
    rows = [
        row(f"p{i}", "coma", 1.0, arm == "optics" and i < share * 4000, f"{arm}_{seed}")
        for seed, share in enumerate(shares)
        for arm in ("none", "optics")
        for i in range(4000)
    ]
    found = gains(verdicts(tables.rows(rows).lazy(), members(["none", "optics"], 3)), "none").row(
        0, named=True
    )
    images = gains(verdicts(tables.rows(rows).lazy(), members(["none", "optics"], 1)), "none").row(
        0, named=True
    )
    low, high = stats.t.interval(0.95, 2, loc=0.25, scale=stats.sem(shares))
    assert found["value"] == pytest.approx(0.25)
    assert (
        (high - low) / 2
        < (found["high"] - found["low"]) / 2
        < (high - low) / 2 + (images["high"] - images["low"]) / 2
    )
    assert (found["high"] - found["low"]) / (high - low) == pytest.approx(1, abs=0.03)


def drawn(images, luck, seed):
    """Verdicts of two arms with three seeds: the second arm is right where the first is, and gains
    as its luck has it.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for training in range(3):
        chance = rng.normal((0.4, 0.6), luck)
        for arm, share in zip(("none", "optics"), chance, strict=True):
            right = (np.linspace(0, 1, images) + rng.normal(0, 0.2, images) < share).astype(float)
            where = pl.DataFrame({"image_id": [f"p{i}" for i in range(images)], "right": right})
            names = {
                "arm": arm,
                "seed": training,
                "shift": "coma",
                "source": "s",
                "family": "optics",
                "severity": 1.0,
            }
            parts.append(
                where.with_columns(
                    pl.col("image_id").alias("sample_id"), **{k: pl.lit(v) for k, v in names.items()}
                )
            )
    return pl.concat(parts)


@pytest.mark.slow
@pytest.mark.parametrize("luck", [0.0, 0.05])
def test_intervals_hold_the_truth_as_often_as_they_say(luck):
    ground_truth = np.mean([gains(drawn(20_000, 0, seed), "none")["value"].item() for seed in range(3)])
    found = pl.concat([gains(drawn(100, luck, 100 + seed), "none") for seed in range(80)])
    held = found.filter((pl.col("low") <= ground_truth) & (pl.col("high") >= ground_truth)).height
    assert held >= stats.binom.ppf(0.001, 80, 0.95)


def test_accuracies_are_the_shares_of_right_answers():
    table, trained = world({"none": 0.0, "optics": 0.5}, 2)
    rows = verdicts(table, trained)
    found = {(r["family"], r["severity"], r["arm"]): r for r in accuracies(rows).to_dicts()}
    for (family, severity, arm), held in found.items():
        own = rows.filter(
            (pl.col("family") == family) & (pl.col("severity") == severity) & (pl.col("arm") == arm)
        )
        assert held["value"] == pytest.approx(own["right"].mean())
        assert 0 <= held["low"] < held["value"] < held["high"] <= 1


def test_an_arm_that_is_always_right_is_not_certain():
    table, trained = world({"none": 0.0, "optics": 50.0}, 1, images=30)
    clean = accuracies(verdicts(table, trained)).filter(pl.col("family") == "clean")
    found = clean.filter(pl.col("arm") == "optics").row(0, named=True)
    assert found["value"] == 1
    assert found["high"] == pytest.approx(1)
    assert found["low"] == pytest.approx(1 / (1 + 1.96**2 / 30), abs=1e-3)  # Wilson's bound


def test_a_page_gets_gains_over_optics_where_there_are_others():
    table, trained = world({"none": 0.0, "optics": 0.5, "cascade": 0.4}, 1, images=30)
    found = comparison_tables(table, trained)
    assert found["over_optics"]["arm"].unique().to_list() == ["cascade"]
    assert set(found["gains"]["arm"]) == {"optics", "cascade"}
    table, trained = world({"none": 0.0, "optics": 0.5}, 1, images=30)
    assert "over_optics" not in comparison_tables(table, trained)


def test_an_arm_that_is_not_there_is_told():
    table, trained = world({"none": 0.0, "optics": 0.5}, 1, images=5)
    with pytest.raises(UnknownName, match="Did you mean optics"):
        gains(verdicts(table, trained), "optic")
