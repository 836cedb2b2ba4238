from collections import defaultdict
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sorites.core.errors import SoritesError
from sorites.metrics import corruption_error, relative_corruption_error
from sorites.metrics.intervals import Z

RIGHT = {  # of four samples, how many each model gets right: clean, then severities 1 and 2
    "m": {"clean": [4], "blur": [3, 2], "noise": [4, 2]},
    "old": {"clean": [3], "blur": [2, 0], "noise": [1, 1]},
}


@pytest.fixture(scope="module")
def worked(row: Any, frame: Any) -> pl.DataFrame:
    return frame(
        row(f"p{i}", shift, 0.0 if shift == "clean" else float(level), i < right, model=model)
        for model, shifts in RIGHT.items()
        for shift, counts in shifts.items()
        for level, right in enumerate(counts, start=1)
        for i in range(4)
    )


def test_worked_by_hand(worked: pl.DataFrame) -> None:
    """blur: (1 + 2) / (2 + 4) quarters; noise: (0 + 2) / (3 + 3); relative: blur 3 / (1 + 3), noise
    2 / (2 + 2).
    """
    mine = pl.col("model") == "m"
    assert corruption_error(worked, reference="old").filter(mine)["value"].to_list() == pytest.approx(
        [3 / 6, 2 / 6]
    )
    assert corruption_error(worked, by=("model",), reference="old").filter(mine)[
        "value"
    ].to_list() == pytest.approx([5 / 12])
    relative = relative_corruption_error(worked, reference="old")
    assert relative.filter(mine)["value"].to_list() == pytest.approx([3 / 4, 2 / 4])
    assert relative_corruption_error(worked, by="model", reference="old").filter(mine)[
        "value"
    ].to_list() == pytest.approx([5 / 8])


def test_the_reference_is_one_without_doubt(worked: pl.DataFrame) -> None:
    for ask in (corruption_error, relative_corruption_error):
        own = ask(worked, reference="old").filter(pl.col("model") == "old")
        assert own.select("value", "low", "high").rows() == [pytest.approx((1.0, 1.0, 1.0))] * 2
        assert own["n"].to_list() == [4, 4]


@pytest.mark.parametrize(
    ("reference", "words"), [("odl", "Did you mean old"), (None, "The table has m, old")]
)
def test_the_reference_must_be_named_and_there(
    worked: pl.DataFrame, reference: str | None, words: str
) -> None:
    with pytest.raises(SoritesError, match=words):
        corruption_error(worked, reference=reference)
    with pytest.raises(SoritesError, match="add model to by"):
        corruption_error(worked, by=("shift",), reference="old")


def test_a_faultless_reference_has_no_ratio(worked: pl.DataFrame) -> None:
    faultless = worked.with_columns(
        pl.when(pl.col("model") == "old", pl.col("shift") == "blur")
        .then(True)
        .otherwise("correct")
        .alias("correct")
    )
    mine = corruption_error(faultless, reference="old").filter(pl.col("model") == "m")
    assert mine["value"].to_list() == pytest.approx([None, 2 / 6])
    assert corruption_error(faultless, by=("model",), reference="old")["value"].to_list() == [None, None]


@pytest.mark.parametrize(("wrong", "defined"), [(1, False), (3, False), (4, True)])
def test_a_tiny_rise_of_the_reference_has_no_relative_error(
    row: Any, frame: Any, wrong: int, defined: bool
) -> None:
    """Of 100 samples at two severities, 4 misclassified ones are a mean rise of 2 points."""
    table = frame(
        row(f"p{i}", shift, severity, shift == "clean" or i >= errors * (severity == 2), model=model)
        for model, errors in (("m", 30), ("old", wrong))
        for shift, severity in (("clean", 0.0), ("blur", 1.0), ("blur", 2.0))
        for i in range(100)
    )
    for by in (("model", "shift"), ("model",)):
        answer = relative_corruption_error(table, by=by, reference="old").filter(pl.col("model") == "m")
        numbers = answer.select("value", "low", "high").row(0)
        assert numbers[0] == (pytest.approx(30 / wrong) if defined else None)
        assert (None in numbers) is not defined
    assert corruption_error(table, reference="old")["value"].null_count() == 0


SEEN = st.lists(
    st.tuples(
        st.sampled_from("abcde"),
        st.sampled_from([("clean", 0.0), ("blur", 1.0), ("blur", 2.0), ("noise", 1.0), ("noise", 5.0)]),
        st.sampled_from([True, False, False]),
        st.sampled_from(["m", "old"]),
    ),
    max_size=50,
    unique_by=lambda drawn: (drawn[0], drawn[1], drawn[3]),
)


def loop(drawn: list[Any], relative: bool) -> dict[tuple[str, str], float | None]:
    """Sum over severities of the mean over images that both models saw, for each; their ratio."""
    wrong = {(m, who, *where): 1 - right for who, where, right, m in drawn}
    cells: dict[Any, Any] = defaultdict(lambda: defaultdict(list))
    for m, who, shift, s in wrong:
        rise = [
            wrong[x, who, shift, s] - (wrong.get((x, who, "clean", 0.0)) if relative else 0)
            for x in (m, "old")
            if (x, who, shift, s) in wrong and (not relative or (x, who, "clean", 0.0) in wrong)
        ]
        if shift != "clean" and len(rise) == 2:
            cells[m, shift][s].append(rise)
    sums = {
        key: [sum(fmean(pair[i] for pair in pairs) for pairs in of.values()) for i in (0, 1)]
        for key, of in cells.items()
    }
    least = {key: (0.02 if relative else 1e-12) * len(cells[key]) - 1e-12 for key in sums}
    return {key: mine / theirs if theirs > least[key] else None for key, (mine, theirs) in sums.items()}


@settings(deadline=None, max_examples=40)
@given(SEEN, st.booleans())
def test_missing_images_leave_the_definition_standing(
    row: Any, frame: Any, drawn: list[Any], relative: bool
) -> None:
    assume(any(m == "old" for *_, m in drawn))
    ask = relative_corruption_error if relative else corruption_error
    answer = ask(frame(row(who, *where, right, model=m) for who, where, right, m in drawn), reference="old")
    expected = loop(drawn, relative)
    assert {
        key: value for *key, value in answer.select("model", "shift", "value").rows() for key in [tuple(key)]
    } == {key: pytest.approx(value) for key, value in expected.items()}


@pytest.mark.slow
@pytest.mark.parametrize("by", [("model", "shift"), ("model",)])
@pytest.mark.parametrize("ask", [corruption_error, relative_corruption_error])
def test_interval_agrees_with_the_jackknife(ask: Any, by: tuple[str, ...], world: pl.DataFrame) -> None:
    dials = world.filter(pl.col("shift").is_in(["clean", "blur", "noise"]))
    full = ask(dials, by=by, reference="weak").filter(pl.col("model") != "weak")
    left_out = [ask(dials.filter(pl.col("sample_id") != f"p{i}"), by=by, reference="weak") for i in range(40)]
    values = np.stack([frame.filter(pl.col("model") != "weak")["value"].to_numpy() for frame in left_out])
    jackknife = np.sqrt(39 / 40 * ((values - values.mean(0)) ** 2).sum(0))
    linearised = ((full["high"] - full["low"]) / (2 * Z)).to_numpy()
    np.testing.assert_allclose(linearised, jackknife, rtol=0.12)
