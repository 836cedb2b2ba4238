from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sorites
from sorites import core
from sorites.core import Generated, Model, Outputs, Sample, Source, table
from sorites.evaluation.plan import Unit, make
from sorites.evaluation.tasks import Bracket, brackets, refine
from sorites.suites.suite import parse

Step = tuple[float | None, bool | None]


def grid(*steps: Step, sample: str = "s", model: str = "m", **more: Any) -> pl.DataFrame:
    """A trajectory as rows; severity 0 is the clean one."""
    return table.rows(
        [
            {
                "model": model, "sample_id": sample, "output": "label", "probe": False, "severity": at, "correct": right,
                "shift": "clean" if at == 0 else "blur", **more,
            }
            for at, right in steps
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([(0, True), (1, True), (2, False)], (1, 2)),
        ([(2, False), (0, True), (1, True)], (1, 2)),
        ([(0, True), (1, False), (2, True), (3, False)], (0, 1)),
        ([(0, True), (1, True), (2, True)], None),
        ([(0, False), (1, True), (2, False)], None),
        ([(0, None), (1, True), (2, False)], None),
        ([(1, True), (2, False)], None),
        ([(0, True), (1, None), (2, False)], None),
        ([(0, True), (1, False), (2, None)], (0, 1)),
        ([(0, True)], None),
        ([(None, True), (1, False)], None),
    ],
)
def test_the_first_failing_bracket_of_a_trajectory(
    steps: list[Step], found: tuple[float, float] | None
) -> None:
    wanted = {} if found is None else {("m", "s"): Bracket(*found)}
    assert brackets(grid(*steps), "blur") == wanted


def test_trajectories_are_kept_apart_and_other_rows_passed_over() -> None:
    right, wrong = [(0, True), (1, True), (2, False)], [(0, True), (1, False), (2, False)]
    rows = pl.concat(
        [
            grid(*right, sample="a"),
            grid(*wrong, sample="b"),
            grid(*wrong, sample="a", model="n"),
            grid((0.5, False), sample="a", probe=True),
            grid((0.5, False), sample="a", output="ood"),
            grid((0.5, False), sample="a", shift="noise"),
        ]
    )
    found = brackets(rows.sample(fraction=1, shuffle=True, seed=1), "blur")
    assert found == {("m", "a"): Bracket(1, 2), ("m", "b"): Bracket(0, 1), ("n", "a"): Bracket(0, 1)}


# ---- a model whose crossings are known: brightness raises a grey image by its severity

DIALS = parse({"name": "s", "labels": ["dark", "light"], "shifts": ["brightness"]}, "test")


def grey(value: int) -> Callable[[], np.ndarray]:
    return lambda: np.full((4, 4, 3), value, np.uint8)


def watcher(limit: float, seen: list[int] | None = None, name: str = "watcher") -> Model:
    """Says light as soon as an image's mean is above ``limit`` of 255."""

    def forward(images: list[np.ndarray]) -> Outputs:
        if seen is not None:
            seen.append(len(images))
        light = np.array([p.mean() > limit for p in images], np.float32)
        return Outputs(np.stack([1 - light, light], axis=1) * 9)

    return Model(name, forward, version="1", scale="logits")


def points(
    values: list[int], limit: float, tolerance: float, out: Path, **more: Any
) -> tuple[pl.DataFrame, pl.DataFrame]:
    source = Source("greys", [Sample(f"g{v}", Generated(grey(v)), label=0) for v in values])
    held = sorites.run(
        DIALS, source=source, models=[watcher(limit)], refine=tolerance, out=out, **more
    ).collect()
    return held, sorites.metrics.trajectories(held).collect().sort("sample_id")


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, pl.DataFrame]:
    return points(list(range(40, 120, 2)), 140.5, 0.02, tmp_path_factory.mktemp("run") / "r")


def test_bisection_finds_the_known_crossing(refined: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    """Grey v turns light at severity (141 - v - 0.5) / 255, where rounding first gives 141; found
    within 2 % of the top, 0.5.
    """
    _, found = refined
    ground_truth = {f"g{v}": (140.5 - v) / 255 for v in range(40, 120, 2)}
    failed = found.filter(pl.col("failure").is_not_null())
    assert failed.height == sum(at < 0.5 for at in ground_truth.values()) == 40
    for name, failure in failed.select("sample_id", "failure").iter_rows():
        assert 0 <= failure - ground_truth[name] <= 0.02 * 0.5 + 1e-6


def test_it_spends_no_more_passes_than_halving_needs(refined: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    held, _ = refined
    width, step = 0.1, 0.02 * 0.5
    per_sample = held.filter(pl.col("probe")).group_by("sample_id").len()["len"]
    assert set(per_sample) == {math.ceil(math.log2(width / step))} == {4}


def test_probe_rows_are_read_only_by_failure_metrics(refined: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    held, _ = refined
    bare = held.filter(~pl.col("probe"))
    assert bare.height < held.height
    for name in ("accuracy", "mean_accuracy", "accuracy_drop", "calibration_error", "reliability", "rank"):
        metric = core.METRICS.get(name)
        assert metric(held).equals(metric(bare)), name
    for name in ("corruption_error", "relative_corruption_error"):
        metric = core.METRICS.get(name)
        assert metric(held, reference="watcher").equals(metric(bare, reference="watcher")), name
    assert sorites.failure_severity(held)["value"].item() < sorites.failure_severity(bare)["value"].item()


def test_probe_rows_are_whole_rows_of_the_table(refined: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    held, _ = refined
    assert table.check(held) == []
    probes = held.filter(pl.col("probe"))
    assert probes["level"].null_count() == probes.height
    assert probes["correct"].null_count() == 0


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 9), st.floats(0.0011, 0.9))
@example(3, 0.025)
@example(9, 1 / 64)
def test_the_number_of_passes_for_any_tolerance(bracket: int, tolerance: float) -> None:
    """Also where the bracket is a power of two of the tolerance, whatever floating point makes of a tenth."""
    low, high = (bracket - 1) / 20, bracket / 20
    model = watcher(40 + 255 * (low + high) / 2, name="w")
    plan = make(
        DIALS.override(models=("w",)),
        Source("greys", [Sample("g", Generated(grey(40)), label=0)]),
        {"w": model},
    )
    steps = [(0.0, True), (low, True), (high, False)] if low else [(0.0, True), (high, False)]
    start = grid(*steps, sample="g", model="w").with_columns(pl.col("shift").replace("blur", "brightness"))
    passes = refine(plan, Unit("brightness", 0, 1), start, tolerance, 8, ["w"])["w"]
    assert len(passes) == max(0, math.ceil(math.log2((high - low) / (tolerance * 0.5)) - 1e-6))


def test_a_tolerance_finer_than_floats_ends(tmp_path: Path) -> None:
    held, found = points([100], 140.5, 1e-300, tmp_path / "run")
    assert held.filter(pl.col("probe")).height < 64
    assert found["failure"].item() == pytest.approx(40.5 / 255, abs=1e-6)


def test_each_model_has_its_own_brackets_and_shares_batches(tmp_path: Path) -> None:
    seen: list[int] = []
    source = Source("greys", [Sample(f"g{v}", Generated(grey(v)), label=0) for v in range(60, 76)])
    models = [watcher(140.5, seen, "one"), watcher(150.5, name="two")]
    held = sorites.run(
        DIALS, source=source, models=models, refine=0.02, out=tmp_path / "run", batch=16
    ).collect()
    found = sorites.metrics.trajectories(held).collect()
    gap = found.pivot("model", index="sample_id", values="failure")
    assert (gap["two"] - gap["one"]).mean() == pytest.approx(10 / 255, abs=0.01)
    assert seen == [1] + [16] * (1 + 5) + [16] * 4, (
        "a trial, the grid, and four rounds over all sixteen samples"
    )


def test_a_failing_model_leaves_a_trajectory_where_it_was(tmp_path: Path) -> None:
    def forward(images: list[np.ndarray]) -> Outputs:
        if any(140 < p.mean() < 150 for p in images):
            raise ValueError("not these")
        return watcher(140.5).forward(images)

    source = Source("greys", [Sample("g100", Generated(grey(100)), label=0)])
    held = sorites.run(
        DIALS, source=source, models=[Model("m", forward)], refine=0.02, out=tmp_path / "run"
    ).collect()
    probes = held.filter(pl.col("probe")).sort("severity")
    assert probes["error"].null_count() == probes.height - 1
    assert table.check(held) == []
