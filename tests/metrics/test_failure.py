from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import CensoredData, ecdf, quantile_test

from sorites.core.errors import SoritesError
from sorites.metrics import failure_histogram, failure_severity, survival, trajectories

INF = float("inf")
SEEN = st.lists(
    st.tuples(
        st.sampled_from("abcdefg"),
        st.sampled_from(
            [("clean", 0.0), *((shift, s) for shift in ("blur", "noise") for s in (0.5, 1.0, 1.25, 2.0, 3.0))]
        ),
        st.sampled_from([True, True, False, None]),
    ),
    max_size=60,
    unique_by=lambda drawn: drawn[:2],
)


def build(row: Any, frame: Any, drawn: list[Any]) -> pl.DataFrame:
    """Severities off the whole numbers are probes; a verdict of None is an error."""
    marks = [
        {"probe": s != int(s), "error": None if right is not None else "bad"} for _, (_, s), right in drawn
    ]
    built: pl.DataFrame = frame(
        row(who, *where, right, **m) for (who, where, right), m in zip(drawn, marks, strict=True)
    )
    return built


def by_hand(drawn: list[Any]) -> dict[tuple[str, str], tuple[float, float]]:
    """(shift, sample) to its failure severity (inf: survived) and the last severity judged."""
    judged = [(who, shift, s, right) for who, (shift, s), right in drawn if right is not None]
    clean_wrong = {who for who, shift, _, right in judged if shift == "clean" and not right}
    paths = defaultdict(list)
    for who, shift, s, right in judged:
        if shift != "clean":
            paths[shift, who].append((s, right))
    least = {key: min([s for s, right in path if not right], default=INF) for key, path in paths.items()}
    return {
        key: (0.0 if key[1] in clean_wrong else least[key], max(s for s, _ in path))
        for key, path in paths.items()
    }


@settings(deadline=None)
@given(SEEN)
def test_trajectories_are_the_loop(row: Any, frame: Any, drawn: list[Any]) -> None:
    rows = (
        trajectories(build(row, frame, drawn)).select("shift", "sample_id", "failure", "top").collect().rows()
    )
    assert {(shift, who): (INF if f is None else f, top) for shift, who, f, top in rows} == by_hand(drawn)
    assert len(rows) == len(by_hand(drawn))


@settings(deadline=None)
@given(SEEN)
def test_failure_severity_is_the_median_with_survivors_above(row: Any, frame: Any, drawn: list[Any]) -> None:
    paths = by_hand(drawn)
    answer = failure_severity(build(row, frame, drawn))
    assert answer["shift"].to_list() == sorted({shift for shift, _ in paths})
    for shift, value, n, survived in answer.select("shift", "value", "n", "survived").rows():
        points = [point for (of, _), (point, _) in paths.items() if of == shift]
        assert (n, survived) == (len(points), points.count(INF))
        assert (INF if value is None else value) == pytest.approx(median(points))
        assert (value is None) == (2 * survived >= n)


@settings(deadline=None)
@given(SEEN)
def test_survival_and_histogram_are_the_loop(row: Any, frame: Any, drawn: list[Any]) -> None:
    paths, table = by_hand(drawn), build(row, frame, drawn)
    for shift, severity, value, n in survival(table).select("shift", "severity", "value", "n").rows():
        reached = [point for (of, _), (point, top) in paths.items() if of == shift and top >= severity]
        assert n == len(reached)
        assert value == pytest.approx(sum(point > severity for point in reached) / n)
    bars = failure_histogram(table)
    for shift, above, severity, value, n in bars.select("shift", "above", "severity", "value", "n").rows():
        points = [point for (of, _), (point, _) in paths.items() if of == shift]
        low, high = -1 if above is None else above, INF if severity is None else severity
        inside = [p for p in points if (p == INF if severity is None else low < p <= high)]
        assert (value, n) == (pytest.approx(len(inside) / len(points)), len(points))
    assert bars.group_by("shift").agg(pl.col("value").sum())["value"].to_list() == pytest.approx(
        [1.0] * bars["shift"].n_unique()
    )


@pytest.mark.parametrize("n", [1, 5, 6, 17, 40, 301])
def test_median_interval_is_scipys(n: int, row: Any, frame: Any) -> None:
    points = np.random.default_rng(n).permutation(np.arange(1, n + 1)).astype(float)
    value, low, high = failure_severity(frame(row(f"p{i}", "blur", s, False) for i, s in enumerate(points)))[
        "value", "low", "high"
    ].row(0)
    theirs = quantile_test(points, p=0.5).confidence_interval(0.95)
    assert value == np.median(points)
    assert low == (theirs.low if np.isfinite(theirs.low) else 0.0)
    assert high == (theirs.high if np.isfinite(theirs.high) else None)


def test_median_interval_is_open_above_where_it_reaches_the_survivors(row: Any, frame: Any) -> None:
    table = frame(row(f"p{i}", "blur", 1.0, i >= 11) for i in range(20))
    assert failure_severity(table).rows() == [("m", "blur", 1.0, 20, 1.0, None, 9)]


def test_survival_is_kaplan_meier(world: pl.DataFrame) -> None:
    one = world.filter(pl.col("model") == "strong", pl.col("shift").is_in(["clean", "blur"]))
    paths = trajectories(one).collect()
    fallen = paths["failure"].drop_nulls().to_numpy()
    theirs = ecdf(
        CensoredData(uncensored=fallen, right=paths.filter(pl.col("failure").is_null())["top"].to_numpy())
    ).sf
    mine = survival(one)
    assert mine["value"].to_list() == pytest.approx(theirs.evaluate(mine["severity"].to_numpy()).tolist())
    assert set(fallen) <= set(mine["severity"])


def test_wrong_when_clean_fails_at_zero_of_every_dial(row: Any, frame: Any) -> None:
    rows = [row("a", "clean", 0.0, False), row("a", "blur", 1.0, True), row("a", "noise", 3.0, True)]
    assert failure_severity(frame(rows)).select("shift", "value", "survived").rows() == [
        ("blur", 0.0, 0),
        ("noise", 0.0, 0),
    ]


def test_runs_and_seeds_are_trajectories_of_their_own(row: Any, frame: Any) -> None:
    rows = [row("a", "blur", 1.0, False, run_id="1"), row("a", "blur", 2.0, False, run_id="2")]
    rows += [row("a", "blur", 3.0, False, run_id="2", seed=1), row("a", "clean", 0.0, False, run_id="3")]
    assert sorted(trajectories(frame(rows)).collect()["failure"]) == [1.0, 2.0, 3.0]


def test_missing_run_and_seed_still_meet_their_clean_image(row: Any, frame: Any) -> None:
    rows = [
        row("a", "clean", 0.0, False, run_id=None, seed=None),
        row("a", "blur", 1.0, True, run_id=None, seed=None),
    ]
    assert trajectories(frame(rows)).collect()["failure"].to_list() == [0.0]


def test_relative_pools_dials_as_fractions_of_their_tops(row: Any, frame: Any) -> None:
    rows = [row("a", "blur", s, s < 2) for s in (1.0, 2.0, 4.0)] + [
        row("b", "blur", s, True) for s in (1.0, 2.0, 4.0)
    ]
    rows += [row(who, "noise", s, s < 30) for who in "ab" for s in (10.0, 20.0, 30.0, 40.0)]
    table = frame(rows)
    assert failure_severity(table, by=("model",), relative=True).select("value", "n", "survived").rows() == [
        (0.75, 4, 1)
    ]
    curve = survival(table, by=("model",), relative=True)
    assert dict(curve.select("severity", "value").rows()) == {
        0.0: 1,
        0.25: 1,
        0.5: 0.75,
        0.75: 0.25,
        1.0: 0.25,
    }
    with pytest.raises(SoritesError, match="relative=True"):
        failure_severity(table, by=("model",))


def test_by_sample_it_is_the_trajectorys_own_point(world: pl.DataFrame) -> None:
    own = failure_severity(world, by=("model", "shift", "sample_id"))
    paths = trajectories(world).collect().sort("model", "shift", "sample_id")
    assert own["value"].to_list() == paths["failure"].to_list()
    assert own["n"].unique().to_list() == [1]


def test_other_columns_can_be_kept_and_grouped_by(world: pl.DataFrame) -> None:
    assert trajectories(world, keep=("label",)).collect()["label"].n_unique() == 4
    assert failure_severity(world, by=("model", "shift", "label"))["n"].to_list() == [10] * 24


def test_a_table_in_parts_gives_the_same_answer(
    row: Any, frame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    settings = [("clean", 0.0), *((shift, s) for shift in ("blur", "noise") for s in (1.0, 2.0, 3.0))]
    table = build(
        row, frame, [(f"s{i}", setting, bool(rng.random() < 0.8)) for i in range(60) for setting in settings]
    )
    whole = failure_severity(table.lazy())
    monkeypatch.setattr("sorites.metrics.failure.ROWS_PER_PART", 50)
    assert failure_severity(table.lazy()).equals(whole)
    assert whole["n"].sum() == 120


@settings(deadline=None, max_examples=40)
@given(SEEN)
def test_hashed_trajectories_match_exact_ones(row: Any, frame: Any, drawn: list[Any]) -> None:
    some = build(row, frame, drawn)
    nameless = some.with_columns(
        pl.lit(None, pl.String).alias("run_id"), model=pl.lit("other"), seed=pl.lit(None, pl.Int64)
    )
    table = pl.concat([some, nameless.cast(dict(some.schema))])
    for by in (("model", "shift"), ("shift", "label"), ("run_id", "shift", "sample_id")):
        whole = failure_severity(table, by)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sorites.metrics.failure.ROWS_PER_PART", max(1, table.height // 2))
            assert failure_severity(table, by).equals(whole)
    pooled = failure_severity(table, ("model",), relative=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sorites.metrics.failure.ROWS_PER_PART", max(1, table.height // 2))
        assert failure_severity(table, ("model",), relative=True).equals(pooled)
