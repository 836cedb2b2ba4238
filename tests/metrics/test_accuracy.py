import math
from collections import defaultdict
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from sorites.metrics import accuracy, accuracy_drop, dial_accuracy, dial_drop, edited_accuracy, mean_accuracy
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


@settings(deadline=None, max_examples=40)
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


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(VERDICTS)
def test_drop_and_mean_take_the_sample_as_unit(row: Any, frame: Any, drawn: list[Any]) -> None:
    table = frame(row(s, *where, right, model=m) for s, where, right, m in drawn if right is not None)
    clean = {(m, s): right for s, where, right, m in drawn if where[0] == "clean" and right is not None}
    shifted: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for s, (shift, _), right, m in drawn:
        if shift != "clean" and right is not None:
            shifted[m][s][shift].append(right)

    def by_shift(of: Any, value: Any) -> dict[str, list[float]]:
        """The means of samples over the settings of each shift."""
        found: dict[str, list[float]] = defaultdict(list)
        for s, shifts in of.items():
            for shift, verdicts in shifts.items():
                if (told := value(s, fmean(verdicts))) is not None:
                    found[shift].append(told)
        return found

    means = {m: by_shift(of, lambda _, v: v) for m, of in shifted.items()}
    assert {m: v for m, v, *_ in mean_accuracy(table).rows()} == pytest.approx(
        {m: fmean(map(fmean, of.values())) for m, of in means.items()}
    )
    drops = {
        m: by_shift(of, lambda s, v, m=m: clean[m, s] - v if (m, s) in clean else None)
        for m, of in shifted.items()
    }
    answer = accuracy_drop(table, by=("model",))
    assert dict(answer.select("model", "value").rows()) == pytest.approx(
        {m: fmean(map(fmean, d.values())) for m, d in drops.items() if d}
    )
    paired = {m: sum((m, s) in clean for s in of) for m, of in shifted.items()}
    assert dict(answer.select("model", "n").rows()) == {m: n for m, n in paired.items() if n}
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


def test_every_shift_has_the_same_weight_where_samples_are_nested(row: Any, frame: Any) -> None:
    rows = [row(f"snow{i}", "snow", 1.0, True) for i in range(100)]
    rows += [row(f"rain{i}", "rain", 1.0, False) for i in range(10)]
    rows += [row(name["sample_id"], "clean", 0.0, True) for name in list(rows)]
    assert mean_accuracy(frame(rows)).select("value", "n").rows() == [(0.5, 110)]
    assert accuracy_drop(frame(rows), by=("model",)).select("value", "n").rows() == [(0.5, 110)]
    assert dial_accuracy(frame(rows))["value"].to_list() == [0.75]
    assert dial_drop(frame(rows))["value"].to_list() == [0.25]


def test_nested_shifts_of_different_sizes_are_covered(row: Any, frame: Any) -> None:
    """The small shift decides the width: as if its samples were the only ones, halved."""
    draws, sizes, chances = 300, {"snow": 200, "rain": 30}, {"snow": 0.9, "rain": 0.5}
    rng = np.random.default_rng(2)
    lone = frame([row("p", "blur", 1.0, True)])
    frames = []
    for shift, size in sizes.items():
        right = rng.random((draws, size)) < chances[shift]
        run, sample = np.indices(right.shape).reshape(2, -1)
        frames.append(
            lone.select(pl.all().repeat_by(right.size).explode()).with_columns(
                run_id=pl.Series(run).cast(pl.String),
                sample_id=pl.lit(shift) + pl.Series(sample).cast(pl.String),
                shift=pl.lit(shift),
                correct=pl.Series(right.ravel()),
            )
        )
    found = mean_accuracy(pl.concat(frames), by=("run_id",))
    hits = found.filter((pl.col("low") <= 0.7) & (pl.col("high") >= 0.7)).height
    assert 0.92 * draws <= hits <= 0.99 * draws


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


def test_edited_images_of_two_sources_with_equal_names_count_each(row: Any, frame: Any) -> None:
    rows = [
        row("p", "hat", 1.0, True, image_id="p", source=source, degrees=[{"measure": "psnr", "value": value}])
        for source, value in (("a", 10.0), ("b", 20.0))
    ]
    found = edited_accuracy(frame(rows), similarities=["psnr"])
    assert found.select("n", "psnr").row(0) == (2, 15.0)
