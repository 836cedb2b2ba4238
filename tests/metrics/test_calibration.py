from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binned_statistic
from tests.metrics.coverage import columns, named

from sorites.core.errors import SoritesError
from sorites.metrics import accuracy, adaptive_calibration_error, calibration_error, reliability

CONF = st.floats(0, 1, width=32)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(CONF, st.booleans()), min_size=1, max_size=60), st.integers(1, 20))
def test_ece_is_the_binned_gap(row: Any, frame: Any, seen: list[tuple[float, bool]], bins: int) -> None:
    table = frame(row(f"p{i}", "clean", 0.0, right, conf=conf) for i, (conf, right) in enumerate(seen))
    conf, right = np.array([c for c, _ in seen]), np.array([float(r) for _, r in seen])
    at = np.floor(conf * bins)  # binned_statistic's own edges can lie a rounding away from k / bins
    gaps = binned_statistic(
        np.minimum(at, bins - 1), right - conf, "sum", bins=bins, range=(0, bins)
    ).statistic
    assert calibration_error(table, bins=bins)["value"][0] == pytest.approx(
        np.abs(gaps).sum() / len(seen), abs=1e-9
    )


def test_worked_by_hand(row: Any, frame: Any) -> None:
    """Bins of one half: .25 .25 with one right in two, .75 .75 1 with all right: (|1 - .5| + |3 -
    2.5|) / 5.
    """
    seen = [(0.25, True), (0.25, False), (0.75, True), (0.75, True), (1.0, True)]
    table = frame(row(f"p{i}", "clean", 0.0, right, conf=conf) for i, (conf, right) in enumerate(seen))
    value, n, mean_right, conf = (
        calibration_error(table, bins=2).select("value", "n", "accuracy", "conf").row(0)
    )
    assert (value, n, mean_right, conf) == pytest.approx((0.2, 5, 0.8, 0.6))
    assert reliability(table, bins=2).select("bin", "value", "n", "conf").rows() == [
        (0, 0.5, 2, 0.25),
        (1, 1.0, 3, pytest.approx(2.5 / 3)),
    ]


@pytest.mark.parametrize("images", [1, 4])
def test_chance_is_what_calibrated_models_show(images: int) -> None:
    """The mean error of simulated models that are perfectly calibrated, with correlated images of a sample."""
    rng, draws, n = np.random.default_rng(5), 100, 150
    conf = ndtr(rng.normal(size=(draws, n, 1)) + 0.5 * rng.normal(size=(draws, n, images)) + 0.5)
    run, sample, image = (axis.ravel() for axis in np.indices(conf.shape))
    table = columns(
        conf.size,
        run_id=named("r", run),
        sample_id=named("p", sample),
        image_id=named("i", image),
        shift="clean",
        severity=0.0,
        conf=conf.ravel(),
        correct=rng.random(conf.size) < conf.ravel(),
    )
    answer = calibration_error(table, by=("run_id",))
    assert answer["chance"].mean() == pytest.approx(answer["value"].mean(), rel=0.1)
    assert "low" not in answer.columns


def test_rows_without_a_confidence_are_passed_over(row: Any, frame: Any) -> None:
    rows = [
        row("a", "clean", 0.0, True, conf=0.9),
        row("b", "clean", 0.0, True, conf=None),
        row("c", "clean", 0.0, True, conf=float("nan")),
    ]
    assert calibration_error(frame(rows))["n"].to_list() == [1]


def test_bins_add_up_to_the_whole(world: pl.DataFrame) -> None:
    bars = (
        reliability(world)
        .group_by("model")
        .agg(pl.col("n").sum(), right=(pl.col("value") * pl.col("n")).sum())
        .sort("model")
    )
    whole = accuracy(world, by=("model",))
    assert bars["n"].to_list() == whole["n"].to_list()
    assert (bars["right"] / bars["n"]).to_list() == pytest.approx(whole["value"].to_list())


def test_no_bins_is_refused(world: pl.DataFrame) -> None:
    with pytest.raises(SoritesError, match="got 0"):
        calibration_error(world, bins=0)


def test_bins_of_equally_many_rows(row: Any, frame: Any) -> None:
    rng = np.random.default_rng(7)
    conf = np.round(rng.random(60), 1).astype(np.float32).astype(float)
    right = rng.random(60) < conf
    rows = [
        row(f"p{i}", "clean", 0.0, bool(right[i]), conf=float(conf[i]), image_id=f"{i}") for i in range(60)
    ]
    order = sorted(range(60), key=lambda i: conf[i])
    shared = {c: float(np.mean(right[conf == c])) for c in conf}
    gaps = [abs(sum(conf[i] - shared[conf[i]] for i in order[12 * b : 12 * b + 12])) for b in range(5)]
    found = adaptive_calibration_error(frame(rows), by=["model"], bins=5).row(0, named=True)
    assert found["value"] == pytest.approx(sum(gaps) / 60, abs=1e-9)
    shuffled = [rows[i] for i in rng.permutation(60)]
    assert adaptive_calibration_error(frame(shuffled), by=["model"], bins=5)["value"].item() == pytest.approx(
        found["value"], abs=1e-12
    )
    assert calibration_error(frame(rows), by=["model"], bins=5)["conf"].item() == pytest.approx(found["conf"])


def test_fewer_rows_than_bins_have_a_chance(row: Any, frame: Any) -> None:
    """Empty bins made it NaN."""
    for n in (1, 2, 7):
        table = frame(row(f"p{i}", "clean", 0.0, i % 2 == 0, conf=0.5 if i < 2 else i / 10) for i in range(n))
        answer = adaptive_calibration_error(table)
        assert answer["n"].to_list() == [n]
        assert np.isfinite(answer.select("value", "chance").to_numpy()).all()
