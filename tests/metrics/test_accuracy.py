import math
from collections import defaultdict
from statistics import fmean
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from sorites.metrics import accuracy, accuracy_drop, mean_accuracy
from sorites.metrics.intervals import Z

VERDICTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.sampled_from([("clean", 0.0), ("blur", 1.0), ("blur", 2.0), ("noise", 1.0), ("camera", None)]),
        st.sampled_from([True, False, None]),
        st.sampled_from(["m", "w"]),
    ),
    max_size=40,
    unique_by=lambda drawn: (drawn[0], drawn[1], drawn[3]),
)


@settings(deadline=None)
@given(VERDICTS)
def test_accuracy_is_a_count(row: Any, frame: Any, drawn: list[Any]) -> None:
    table = frame(
        row(s, *where, right, model=m, error=None if right is not None else "bad")
        for s, where, right, m in drawn
    )
    cells = defaultdict(list)
    for _, where, right, model in drawn:
        cells[model, *where].append(right)
    for model, shift, severity, value, n, low, high, missing in accuracy(table).rows():
        seen = [right for right in cells.pop((model, shift, severity)) if right is not None]
        assert n == len(seen)
        if not seen:
            assert (value, low, high) == (None, None, None)
            assert missing > 0
            continue
        theirs = binomtest(sum(seen), n).proportion_ci(0.95, method="wilson")
        assert (value, low, high) == pytest.approx((fmean(seen), theirs.low, theirs.high), abs=1e-9)
    assert not cells


def test_errors_count_as_missing_and_unknown_labels_are_left_out(row: Any, frame: Any) -> None:
    rows = [
        row("a", "blur", 1.0, True),
        row("b", "blur", 1.0, None, error="truncated"),
        row("c", "blur", 1.0, None, known=False),
    ]
    assert accuracy(frame(rows)).select("value", "n", "missing").rows() == [(1.0, 1, 1)]


def test_rows_can_be_grouped_by_params(world: pl.DataFrame) -> None:
    camera = accuracy(world.filter(pl.col("shift") == "camera"), by=("model", "params"))
    assert camera["params"].unique().to_list() == ['{"iso": 100}']
    assert camera["n"].to_list() == [40, 40, 40]


@settings(deadline=None)
@given(VERDICTS)
def test_drop_and_mean_take_the_sample_as_unit(row: Any, frame: Any, drawn: list[Any]) -> None:
    table = frame(row(s, *where, right, model=m) for s, where, right, m in drawn if right is not None)
    clean = {(m, s): right for s, where, right, m in drawn if where[0] == "clean" and right is not None}
    shifted: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for s, (shift, _), right, m in drawn:
        if shift != "clean" and right is not None:
            shifted[m][s][shift].append(right)
    means = {
        m: {s: fmean(fmean(v) for v in shifts.values()) for s, shifts in of.items()}
        for m, of in shifted.items()
    }
    assert {m: v for m, v, *_ in mean_accuracy(table).rows()} == pytest.approx(
        {m: fmean(of.values()) for m, of in means.items()}
    )
    drops = {m: [clean[m, s] - v for s, v in of.items() if (m, s) in clean] for m, of in means.items()}
    answer = accuracy_drop(table, by=("model",))
    assert dict(answer.select("model", "value").rows()) == pytest.approx(
        {m: fmean(d) for m, d in drops.items() if d}
    )
    assert dict(answer.select("model", "n").rows()) == {m: len(d) for m, d in drops.items() if d}
    assert answer["value"].to_list() == pytest.approx((answer["clean"] - answer["shifted"]).to_list())


@pytest.mark.parametrize(("lost", "won", "kept"), [(9, 2, 29), (0, 0, 40), (40, 0, 0), (1, 1, 1)])
def test_drop_interval_is_agresti_and_mins(lost: int, won: int, kept: int, row: Any, frame: Any) -> None:
    pairs = [(True, False)] * lost + [(False, True)] * won + [(True, True)] * kept
    rows = [row(f"p{i}", "clean", 0.0, before) for i, (before, _) in enumerate(pairs)]
    rows += [row(f"p{i}", "blur", 1.0, after) for i, (_, after) in enumerate(pairs)]
    value, n, low, high = accuracy_drop(frame(rows)).select("value", "n", "low", "high").row(0)
    assert (value, n) == (pytest.approx((lost - won) / len(pairs)), len(pairs))
    b, c, total = lost + 0.5, won + 0.5, len(pairs) + 2
    half = Z * math.sqrt(b + c - (b - c) ** 2 / total) / total
    assert (low, high) == pytest.approx((max(-1, (b - c) / total - half), min(1, (b - c) / total + half)))


def test_drop_pairs_within_a_run(row: Any, frame: Any) -> None:
    rows = [row("a", "clean", 0.0, True, run_id="1"), row("a", "blur", 1.0, False, run_id="2")]
    assert accuracy_drop(frame(rows)).height == 0


def test_mean_accuracy_interval_is_wilsons_when_each_sample_has_one_row(world: pl.DataFrame) -> None:
    one = world.filter(pl.col("shift") == "blur", pl.col("severity") == 2)
    columns = ["model", "value", "n", "low", "high"]
    for mine, plain in zip(
        mean_accuracy(one).rows(), accuracy(one, by=("model",)).select(columns).rows(), strict=True
    ):
        assert mine[0] == plain[0]
        assert mine[1:] == pytest.approx(plain[1:])
