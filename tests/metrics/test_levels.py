"""IS-OOD's map, means, correlation and sensitivity against NumPy and the paper's own equations."""

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress
from sklearn.metrics import roc_auc_score

from sorites.errors import SoritesError
from sorites.metrics import correlation, fpr95_ood_pos, level_curve, level_map, sensitivity

THIN = (5, 2)


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    """An 8 x 3 map: 12 pictures a cell, 4 in the thin one, none at semantic level 6; familiar pictures have levels too."""
    rng = np.random.default_rng(6)
    shared = {"output": "ood", "scorer": "knn"}
    levels = {"sem_level": 0, "cov_level": 0}
    made = [row(f"id{i}", "clean", 0.0, True, score=rng.normal(), **levels, **shared) for i in range(50)]
    for sem, cov in itertools.product((0, 1, 2, 3, 4, 5, 7), range(3)):
        for i in range(4 if (sem, cov) == THIN else 12):
            levels = {"sem_level": sem, "cov_level": cov, "score": rng.normal(0.4 * sem - 0.2 * cov)}
            known = {} if i % 2 else {"known": False, "label": None}
            made.append(row(f"s{sem}{cov}{i}", "gray" if i % 2 else "clean", None, None, **levels, **known, **shared))
    return frame(made)


@pytest.fixture(scope="module")
def cells(seen: pl.DataFrame) -> dict[tuple[int, int], float]:
    familiar = seen.filter(pl.col("sample_id").str.starts_with("id"))["score"].to_list()
    moved = seen.filter(pl.col("sample_id").str.starts_with("s")).group_by("sem_level", "cov_level").agg("score")
    areas = {(s, c): roc_auc_score([0] * 50 + [1] * len(own), [*familiar, *own]) for s, c, own in moved.iter_rows()}
    return {cell: area for cell, area in areas.items() if cell != THIN}


def test_each_cell_is_held_against_the_one_familiar_pool(seen: pl.DataFrame, cells: dict[tuple[int, int], float]) -> None:
    found = level_map(seen)
    fair = found.filter(pl.col("value").is_not_null())
    assert {(row["sem_level"], row["cov_level"]): row["value"] for row in fair.to_dicts()} == pytest.approx(cells)
    assert fair["n"].unique().to_list() == [12]
    assert found["familiar"].unique().to_list() == [50]


def test_a_thin_cell_keeps_its_n_and_loses_its_value(seen: pl.DataFrame) -> None:
    thin = level_map(seen).filter(sem_level=THIN[0], cov_level=THIN[1])
    assert thin.select("value", "low", "high", "n").row(0) == (None, None, None, 4)
    assert level_map(seen, min_n=4)["value"].null_count() == 0
    assert level_map(seen, min_n=13)["value"].null_count() == 21


def test_means_over_the_other_axis(seen: pl.DataFrame, cells: dict[tuple[int, int], float]) -> None:
    for row in level_curve(seen).to_dicts():
        place = 0 if row["axis"] == "semantic" else 1
        own = [area for cell, area in cells.items() if cell[place] == row["level"]]
        assert (row["value"], row["least"], row["most"], row["cells"]) == pytest.approx(
            (np.mean(own), min(own), max(own), len(own))
        )
        assert row["n"] == 12 * len(own)


def equations(x: np.ndarray, i: np.ndarray) -> tuple[float, float]:
    """5 and 6 as printed, with the mean level for (n + 1) / 2 where a level is missing."""
    together = np.sum((x - x.mean()) * (i - i.mean()))
    return together / np.sqrt(np.sum((x - x.mean()) ** 2) * np.sum((i - i.mean()) ** 2)), abs(
        together / np.sum((i - i.mean()) ** 2)
    )


@pytest.mark.parametrize("axis", ["semantic", "covariate"])
def test_correlation_and_sensitivity_are_equations_5_and_6(seen: pl.DataFrame, axis: str) -> None:
    curve = level_curve(seen).filter(axis=axis)
    x, i = curve["value"].to_numpy(), curve["level"].to_numpy()
    r, slope = equations(x, i)
    got = [ask(seen).filter(axis=axis).select("value", "n", "levels").row(0) for ask in (correlation, sensitivity)]
    assert got == [(pytest.approx(r), curve["n"].sum(), len(x)), (pytest.approx(slope), curve["n"].sum(), len(x))]
    line = linregress(i, x)
    assert (r, slope) == pytest.approx((line.rvalue, abs(line.slope)))


def test_another_number_can_be_mapped(seen: pl.DataFrame) -> None:
    own = (pl.col("sem_level") == 3) & (pl.col("cov_level") == 1)
    one = fpr95_ood_pos(seen.filter(own | pl.col("sample_id").str.starts_with("id")), framework="graded")
    assert level_map(seen, metric="fpr95_ood_pos").filter(sem_level=3, cov_level=1)["value"].item() == one["value"].item()
    with pytest.raises(SoritesError, match="no number named 'aurc'. Did you mean auroc"):
        level_map(seen, metric="aurc")
    with pytest.raises(SoritesError, match="from 1 up, got 0"):
        level_map(seen, min_n=0)


def test_two_levels_make_no_line(seen: pl.DataFrame) -> None:
    few = seen.filter(pl.col("sem_level") < 2)
    found = correlation(few).filter(axis="semantic")
    assert found.select("value", "levels").row(0) == (None, 2)


def test_means_that_do_not_differ_have_no_correlation(seen: pl.DataFrame) -> None:
    flat = seen.with_columns(score=pl.lit(1.0, pl.Float32))
    assert correlation(flat)["value"].to_list() == [None, None]
    assert sensitivity(flat)["value"].to_list() == pytest.approx([0.0, 0.0])
