"""Corruption errors relative to a published curve: equation 6 of CNS-Bench, written out in loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sorites.core.errors import SoritesError
from sorites.metrics import corruption_error, relative_corruption_error

# of four samples: clean, then severities 0.5, 1, 1.5
RIGHT = {"clean": [4], "heavy_fog": [4, 3, 1], "heavy_snow": [3, 2, 2]}
CURVE = {
    "heavy_fog": {0.0: 0.4, 0.5: 0.5, 1.0: 0.6, 1.5: 0.8},
    "heavy_snow": {0.0: 0.3, 0.5: 0.35, 1.0: 0.5, 1.5: 0.95},
}


@pytest.fixture(scope="module")
def rows(row: Any, frame: Any) -> pl.DataFrame:
    return frame(
        row(
            f"p{i}",
            shift,
            0.0 if shift == "clean" else level / 2,
            i < right,
            level=None if shift == "clean" else level,
        )
        for shift, counts in RIGHT.items()
        for level, right in enumerate(counts, start=1)
        for i in range(4)
    )


def written(folder: Path, text: str) -> str:
    (folder / "alexnet.csv").write_text(text)
    return str(folder / "alexnet.csv")


def curve(folder: Path) -> str:
    lines = [
        f"{shift},{severity},{error}" for shift, held in CURVE.items() for severity, error in held.items()
    ]
    return written(folder, "\n".join(["shift,severity,error", *lines]) + "\n")


def error(shift: str, severity: float) -> float:
    """The mean error of the model."""
    return 1 - (RIGHT["clean"][0] if not severity else RIGHT[shift][int(2 * severity) - 1]) / 4


@pytest.mark.parametrize("relative", [False, True])
def test_equation_6_and_table_4_relative_to_a_published_curve(
    rows: pl.DataFrame, relative: bool, tmp_path: Path
) -> None:
    expected = {}
    for shift, held in CURVE.items():
        start, theirs = (error(shift, 0), held[0.0]) if relative else (0.0, 0.0)
        over = sum(error(shift, s) - start for s in held if s)
        expected[shift] = over / sum(held[s] - theirs for s in held if s)
    ask = relative_corruption_error if relative else corruption_error
    found = ask(rows, reference=curve(tmp_path))
    assert dict(found.select("shift", "value").iter_rows()) == pytest.approx(expected)
    assert found["n"].to_list() == [4, 4]
    mean = ask(rows, by=("model",), reference=curve(tmp_path))
    assert mean["value"].item() == pytest.approx(sum(expected.values()) / 2)
    assert mean["low"].item() < mean["value"].item() < mean["high"].item()


def test_the_curve_of_a_model_gives_what_the_model_gives(
    row: Any, frame: Any, rows: pl.DataFrame, tmp_path: Path
) -> None:
    """Where every image was seen by both, pairing changes the interval alone."""
    right = {"clean": [3], "heavy_fog": [2, 2, 0], "heavy_snow": [2, 1, 0]}
    old = frame(
        row(f"p{i}", shift, 0.0 if shift == "clean" else level / 2, i < held, model="old")
        for shift, counts in right.items()
        for level, held in enumerate(counts, start=1)
        for i in range(4)
    )
    lines = [
        f"{s},{level / 2},{1 - held / 4}"
        for s in ("heavy_fog", "heavy_snow")
        for level, held in enumerate(right[s], start=1)
    ]
    path = written(tmp_path, "\n".join(["shift,severity,error", "clean,,0.25", *lines]) + "\n")
    both = pl.concat([rows, old])
    for ask in (corruption_error, relative_corruption_error):
        paired = ask(both, reference="old").filter(pl.col("model") == "m")
        assert ask(rows, reference=path)["value"].to_list() == pytest.approx(paired["value"].to_list())


def test_levels_accuracies_and_means_over_levels_are_read_too(rows: pl.DataFrame, tmp_path: Path) -> None:
    wanted = corruption_error(rows, reference=curve(tmp_path))
    levels = [f"{shift},{int(2 * s)},{1 - e}" for shift, held in CURVE.items() for s, e in held.items()]
    by_level = corruption_error(
        rows, reference=written(tmp_path, "\n".join(["shift,level,accuracy", *levels]) + "\n")
    )
    means = [f"{shift},{sum(e for s, e in held.items() if s) / 3}" for shift, held in CURVE.items()]
    by_mean = corruption_error(rows, reference=written(tmp_path, "\n".join(["shift,error", *means]) + "\n"))
    for found in (by_level, by_mean):
        assert found["value"].to_list() == pytest.approx(wanted["value"].to_list())


def test_a_severity_that_only_the_curve_has_is_left_out_of_both_sums(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    part = corruption_error(rows.filter(pl.col("severity") < 1.2), reference=curve(tmp_path))
    assert part["value"].to_list() == pytest.approx([(0 + 0.25) / (0.5 + 0.6), (0.25 + 0.5) / (0.35 + 0.5)])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "shift,severity,error\nheavy_fog,0.5,.5\nheavy_fog,1,.6\n",
            r"at 0.5, 1: 1.5 cannot be",
        ),
        (
            "shift,severity,error\nheavy_fog,.5,.5\nheavy_fog,1,.6\nheavy_fog,1.5,.7\n",
            "heavy_snow; it has heavy_fog",
        ),
        (
            "shift,severity,error\nheavy_fog,1,60\n",
            "row 1: .* got 60",
        ),
        (
            "shift,severity,error\nheavy_fog,1,x\n",
            "row 1, column error: .* got 'x'",
        ),
        (
            "shift,severity,error\nheavy_fog,1,.5\nheavy_fog,1,.5\n",
            "row 1: heavy_fog appears twice",
        ),
        (
            "shift,severity\nheavy_fog,1\n",
            "error .*; got shift, severity",
        ),
    ],
)
def test_invalid_reference_curves_raise(rows: pl.DataFrame, text: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=match):
        corruption_error(rows, reference=written(tmp_path, text))


def test_relative_errors_need_a_clean_error(rows: pl.DataFrame, tmp_path: Path) -> None:
    path = written(tmp_path, "shift,error\nheavy_fog,.6\nheavy_snow,.6\n")
    with pytest.raises(SoritesError, match="a row heavy_fog at severity 0"):
        relative_corruption_error(rows, reference=path)
    with pytest.raises(
        SoritesError,
        match="cannot read none.csv: there is no such file. Expected the reference as a CSV file",
    ):
        corruption_error(rows, reference="none.csv")


def test_one_error_for_all_levels_needs_all_published_levels(row: Any, frame: Any, tmp_path: Path) -> None:
    path = written(tmp_path, "shift,error\njpeg,.6\n")
    with pytest.raises(SoritesError, match="the table has jpeg at 75"):
        corruption_error(frame([row("a", "jpeg", 75.0, False)]), reference=path)
