from collections import defaultdict
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from scipy.stats import CensoredData, ecdf, quantile_test

from sorites.core.errors import SoritesError
from sorites.metrics import failure_histogram, failure_severity, survival, trajectories
from sorites.metrics.intervals import share

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


@settings(deadline=None, max_examples=40)
@given(SEEN)
def test_trajectories_are_the_loop(row: Any, frame: Any, drawn: list[Any]) -> None:
    rows = (
        trajectories(build(row, frame, drawn)).select("shift", "sample_id", "failure", "top").collect().rows()
    )
    assert {(shift, who): (INF if f is None else f, top) for shift, who, f, top in rows} == by_hand(drawn)
    assert len(rows) == len(by_hand(drawn))


def product_limit_by_hand(points: list[tuple[float, float]], at: float) -> Fraction:
    """The product of 1 - failures / at risk over the failure severities up to ``at``."""
    share = Fraction(1)
    for severity in sorted({failure for failure, _ in points if failure <= at}):
        risk = sum(min(failure, top) >= severity for failure, top in points)
        share *= 1 - Fraction(sum(failure == severity for failure, _ in points), risk)
    return share


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(SEEN)
def test_failure_severity_is_where_the_product_limit_falls_to_half(
    row: Any, frame: Any, drawn: list[Any]
) -> None:
    paths = by_hand(drawn)
    answer = failure_severity(build(row, frame, drawn))
    assert answer["shift"].to_list() == sorted({shift for shift, _ in paths})
    for shift, value, n, survived, censored in answer.select(
        "shift", "value", "n", "survived", "censored"
    ).rows():
        points = [point for (of, _), point in paths.items() if of == shift]
        highest = max(top for _, top in points)
        assert n == len(points)
        assert survived == sum(failure == INF and top == highest for failure, top in points)
        assert censored == sum(failure == INF and top < highest for failure, top in points)
        at = sorted({failure for failure, _ in points if failure < INF})
        first = [s for s in at if product_limit_by_hand(points, s) <= Fraction(1, 2)]
        below = [s for s in at if product_limit_by_hand(points, s) < Fraction(1, 2)]
        assert (INF if value is None else value) == ((first[0] + below[0]) / 2 if below else INF)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(SEEN)
def test_without_early_ends_it_is_the_plain_median(row: Any, frame: Any, drawn: list[Any]) -> None:
    paths = by_hand(drawn)
    answer = failure_severity(build(row, frame, drawn), estimator="counts")
    for shift, value, n, survived, censored in answer.select(
        "shift", "value", "n", "survived", "censored"
    ).rows():
        points = [point for (of, _), (point, _) in paths.items() if of == shift]
        assert (n, survived, censored) == (len(points), points.count(INF), 0)
        assert (INF if value is None else value) == pytest.approx(median(points))
        assert (value is None) == (2 * survived >= n)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(SEEN)
def test_survival_and_histogram_are_the_loop(row: Any, frame: Any, drawn: list[Any]) -> None:
    paths, table = by_hand(drawn), build(row, frame, drawn)
    curve = survival(table)
    for shift, severity, value, n in curve.select("shift", "severity", "value", "n").rows():
        points = [point for (of, _), point in paths.items() if of == shift]
        assert n == len(points)
        assert value == pytest.approx(float(product_limit_by_hand(points, severity)))
    for _, part in curve.group_by("shift", maintain_order=True):
        assert (part["value"].diff().drop_nulls() <= 0).all(), "survival never rises"
    bars, plain = failure_histogram(table), failure_histogram(table, estimator="counts")
    alive = {(shift, s): value for shift, s, value in curve.select("shift", "severity", "value").rows()}
    for shift, above, severity, value in bars.select("shift", "above", "severity", "value").rows():
        before = 1.0 if above is None else alive[shift, above]
        assert value == pytest.approx(before - (0.0 if severity is None else alive[shift, severity]))
    for shift, above, severity, value, n in plain.select("shift", "above", "severity", "value", "n").rows():
        ends = [point for (of, _), (point, _) in paths.items() if of == shift]
        low, high = -1 if above is None else above, INF if severity is None else severity
        inside = [p for p in ends if (p == INF if severity is None else low < p <= high)]
        assert (value, n) == (pytest.approx(len(inside) / len(ends)), len(ends))
    for found in (bars, plain):
        assert found.group_by("shift").agg(pl.col("value").sum())["value"].to_list() == pytest.approx(
            [1.0] * found["shift"].n_unique()
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
    assert failure_severity(table).rows() == [("m", "blur", 1.0, 20, 1.0, None, 9, 0)]


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


@pytest.mark.slow
@settings(deadline=None, max_examples=15)
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


def censored(row: Any, frame: Any, n: int = 120, seed: int = 4) -> pl.DataFrame:
    """Trajectories of which a third were ended early by a filter."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        fails, ends = rng.integers(1, 9), rng.integers(1, 9) if i % 3 == 0 else 6
        rows.append(row(f"p{i}", "clean", 0.0, bool(rng.random() < 0.9)))
        rows += [row(f"p{i}", "blur", float(s), bool(s < fails), valid=bool(s <= ends)) for s in range(1, 7)]
    built: pl.DataFrame = frame(rows)
    return built


def test_survival_and_its_variance_are_statsmodels(row: Any, frame: Any) -> None:
    from statsmodels.duration.survfunc import SurvfuncRight

    table = censored(row, frame)
    paths = trajectories(table).collect()
    ends, failed = pl.coalesce("failure", "top"), pl.col("failure").is_not_null()
    theirs = SurvfuncRight(paths.select(ends).to_series().to_numpy(), paths.select(failed).to_series())
    mine = survival(table).filter(pl.col("severity").is_in(theirs.surv_times.tolist()))
    assert mine["value"].to_list() == pytest.approx(theirs.surv_prob.tolist())
    assert mine["at_risk"].to_list() == theirs.n_risk.tolist()
    assert theirs.surv_prob.min() > 0
    effective = theirs.surv_prob * (1 - theirs.surv_prob) / theirs.surv_prob_se**2
    bounds = [share(p, n) for p, n in zip(theirs.surv_prob, effective, strict=True)]
    assert mine["low"].to_list() == pytest.approx([low for low, _ in bounds])
    assert mine["high"].to_list() == pytest.approx([high for _, high in bounds])
    median_severity = failure_severity(table).row(0, named=True)
    assert median_severity["value"] == theirs.quantile(0.5)
    assert median_severity["low"] <= median_severity["value"] <= median_severity["high"]
    assert median_severity["censored"] > 0


def test_trajectories_that_a_filter_ended_are_not_survivors(row: Any, frame: Any) -> None:
    """Both fail at 1 or 2; of the one that survives 1, the image at 2 was removed, and a third is judged to
    3: the share of the survivors may not rise again.
    """
    rows = [row(who, "clean", 0.0, True) for who in "abcd"]
    rows += [row("a", "blur", s, False) for s in (1.0, 2.0, 3.0)]
    rows += [row(who, "blur", s, True, valid=s < 2) for who in "bc" for s in (1.0, 2.0, 3.0)]
    rows += [row("d", "blur", s, s < 3) for s in (1.0, 2.0, 3.0)]
    assert survival(frame(rows))["value"].to_list() == [1.0, 0.75, 0.75, 0.0]
    found = failure_severity(frame(rows)).row(0, named=True)
    assert (found["value"], found["survived"], found["censored"]) == (3.0, 0, 2)
    published = failure_severity(frame(rows), estimator="counts").row(0, named=True)
    assert (published["value"], published["survived"]) == (None, 2), "counted, half survive"
    with pytest.raises(SoritesError, match="counts"):
        survival(frame(rows), estimator="count")


def test_sources_with_equal_sample_names_are_kept_apart(world: pl.DataFrame) -> None:
    other = world.with_columns(source=pl.lit("t"), correct=~pl.col("correct"))
    both = pl.concat([world, other])
    for ask in (failure_severity, survival, failure_histogram):
        found = ask(both, by=("source", "model", "shift")).filter(pl.col("source") == "s").drop("source")
        assert_frame_equal(found, ask(world))
    assert trajectories(both).collect().height == 2 * trajectories(world).collect().height


def test_the_clean_image_is_that_of_the_seed_or_the_only_one(row: Any, frame: Any) -> None:
    rows = [row("a", "clean", 0.0, seed == 0, seed=seed) for seed in (0, 1)]
    rows += [row("a", "blur", 2.0, True, seed=seed) for seed in (0, 1)]
    rows += [row("b", "clean", 0.0, False, seed=None), row("b", "blur", 2.0, True, seed=7)]
    found = trajectories(frame(rows)).sort("sample_id", "seed").collect()
    assert found["failure"].to_list() == [None, 0.0, 0.0]


def test_trajectories_of_one_sample_are_not_independent(row: Any, frame: Any) -> None:
    """Five copies of each trajectory under other seeds say nothing new: the intervals stay as they are."""
    one = censored(row, frame)
    five = pl.concat([one.with_columns(seed=pl.lit(seed, pl.Int64)) for seed in range(5)])
    for ask, abs_ in ((survival, 0.01), (failure_histogram, 0.02)):
        lone, copied = ask(one), ask(five)
        assert copied["n"].to_list() == [5 * n for n in lone["n"]]
        for end in ("low", "high"):
            assert copied[end].to_list() == pytest.approx(lone[end].to_list(), abs=abs_)
    ends = ["value", "low", "high"]
    assert failure_severity(one).select(ends).equals(failure_severity(five).select(ends))


def test_intervals_over_samples_cover_the_truth(row: Any, frame: Any) -> None:
    """Twelve shifts of each sample share its ability; the pooled curve at 2 is known from the law."""
    draws, n, shifts = 150, 60, 12
    rng = np.random.default_rng(0)
    ability = rng.normal(size=(draws, n, 1))
    right = ability + rng.normal(size=(draws, n, shifts)) > 0
    ids = np.indices(right.shape).reshape(3, -1)
    base = frame([row("p", "blur", 1.0, True)])
    lone = base.select(pl.all().repeat_by(right.size).explode())
    table = lone.with_columns(
        run_id=pl.Series(ids[0]).cast(pl.String),
        sample_id=pl.Series(ids[1]).cast(pl.String),
        shift=pl.Series(ids[2]).cast(pl.String),
        correct=pl.Series(right.ravel()),
    )
    found = survival(table, by=("run_id",), relative=True).filter(pl.col("severity") == 1)
    hits = ((found["low"] <= 0.5) & (found["high"] >= 0.5)).sum()
    assert found.height == draws
    assert 0.9 * draws <= hits <= 0.995 * draws
    naive = [share(value, n * shifts) for value in found["value"]]
    assert (
        sum(low <= 0.5 <= high for low, high in naive if low is not None and high is not None) < 0.8 * draws
    )
