"""IS-OOD's map, means, correlation and sensitivity against NumPy and the equations of the paper."""

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import linregress
from sklearn.metrics import average_precision_score, roc_auc_score

from sorites.core.errors import SoritesError
from sorites.metrics import correlation, fpr95_ood_pos, level_curve, level_map, sensitivity

THIN = (5, 2)


@pytest.fixture(scope="module")
def seen(row: Any, frame: Any) -> pl.DataFrame:
    """An 8 x 3 map: 12 images a cell, 4 in the thin one, none at semantic level 6; in-distribution
    images have levels too.
    """
    rng = np.random.default_rng(6)
    shared = {"output": "ood", "scorer": "knn"}
    levels = {"sem_level": 0, "cov_level": 0}
    made = [row(f"id{i}", "clean", 0.0, True, score=rng.normal(), **levels, **shared) for i in range(50)]
    for sem, cov in itertools.product((0, 1, 2, 3, 4, 5, 7), range(3)):
        for i in range(4 if (sem, cov) == THIN else 12):
            levels = {"sem_level": sem, "cov_level": cov, "score": rng.normal(0.4 * sem - 0.2 * cov)}
            known = {} if i % 2 else {"known": False, "label": None}
            made.append(
                row(f"s{sem}{cov}{i}", "gray" if i % 2 else "clean", None, None, **levels, **known, **shared)
            )
    return frame(made)


@pytest.fixture(scope="module")
def cells(seen: pl.DataFrame) -> dict[tuple[int, int], float]:
    in_distribution = seen.filter(pl.col("sample_id").str.starts_with("id"))["score"].to_list()
    moved = (
        seen.filter(pl.col("sample_id").str.starts_with("s")).group_by("sem_level", "cov_level").agg("score")
    )
    areas = {
        (s, c): roc_auc_score([0] * 50 + [1] * len(own), [*in_distribution, *own])
        for s, c, own in moved.iter_rows()
    }
    return {cell: area for cell, area in areas.items() if cell != THIN}


def test_each_cell_is_held_against_the_one_in_distribution_pool(
    seen: pl.DataFrame, cells: dict[tuple[int, int], float]
) -> None:
    found = level_map(seen)
    fair = found.filter(pl.col("value").is_not_null())
    assert {(row["sem_level"], row["cov_level"]): row["value"] for row in fair.to_dicts()} == pytest.approx(
        cells
    )
    assert fair["n"].unique().to_list() == [12]
    assert found["id"].unique().to_list() == [50]


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
    got = [
        ask(seen).filter(axis=axis).select("value", "n", "levels").row(0)
        for ask in (correlation, sensitivity)
    ]
    assert got == [
        (pytest.approx(r), curve["n"].sum(), len(x)),
        (pytest.approx(100 * slope), curve["n"].sum(), len(x)),
    ]
    line = linregress(i, x)
    assert (r, slope) == pytest.approx((line.rvalue, abs(line.slope)))


def test_another_number_can_be_mapped(seen: pl.DataFrame) -> None:
    own = (pl.col("sem_level") == 3) & (pl.col("cov_level") == 1)
    one = fpr95_ood_pos(seen.filter(own | pl.col("sample_id").str.starts_with("id")), framework="graded")
    assert (
        level_map(seen, metric="fpr95_ood_pos").filter(sem_level=3, cov_level=1)["value"].item()
        == one["value"].item()
    )
    with pytest.raises(SoritesError, match="'aurc'. Did you mean auroc"):
        level_map(seen, metric="aurc")
    with pytest.raises(SoritesError, match="at least 1, got 0"):
        level_map(seen, min_n=0)


def test_two_levels_make_no_line(seen: pl.DataFrame) -> None:
    few = seen.filter(pl.col("sem_level") < 2)
    found = correlation(few).filter(axis="semantic")
    assert found.select("value", "levels").row(0) == (None, 2)


def test_means_that_do_not_differ_have_no_correlation(seen: pl.DataFrame) -> None:
    flat = seen.with_columns(score=pl.lit(1.0, pl.Float32))
    assert correlation(flat)["value"].to_list() == [None, None]
    assert sensitivity(flat)["value"].to_list() == pytest.approx([0.0, 0.0])


@pytest.fixture(scope="module")
def two_sets(row: Any, frame: Any) -> pl.DataFrame:
    """One source with two graded sets, as is_ood reads them, and a third set from another source;
    in-distribution ones lack labels.
    """
    rng = np.random.default_rng(11)
    shared = {"output": "ood", "scorer": "knn", "label": None, "known": None}
    made = [
        row(f"v{i}", "clean", 0.0, None, score=rng.normal(), source="is_ood", **shared) for i in range(80)
    ]
    for name, slope in (("imagenet21k", -0.3), ("syn_is", 0.3), ("own", 0.1)):
        for sem, cov, i in itertools.product((1, 2, 3), (1, 2, 3, 4), range(14)):
            place = {"sem_level": sem, "cov_level": cov, "score": rng.normal(1.5 + 0.3 * sem + slope * cov)}
            told = {
                "params": f'{{"cov_level": {cov}, "sem_level": {sem}}}',
                "split": "unknown",
                "source": "is_ood",
            }
            if name == "own":
                told = {"params": "{}", "source": "own", "known": False}
            at = ("clean", 0.0) if name == "own" else (name, None)
            made.append(row(f"{name}{sem}{cov}{i}", *at, None, **shared | place | told))
    return frame(made)


SETS = {
    "imagenet21k": pl.col("shift") == "imagenet21k",
    "own": pl.col("source") == "own",
    "syn_is": pl.col("shift") == "syn_is",
}


def own_areas(seen: pl.DataFrame, chosen: pl.Expr) -> dict[tuple[int, int], float]:
    in_distribution = seen.filter(pl.col("sem_level").is_null())["score"].to_list()
    found = (
        seen.filter(chosen & pl.col("sem_level").is_not_null())
        .group_by("sem_level", "cov_level")
        .agg("score")
    )
    return {
        (s, c): roc_auc_score([0] * len(in_distribution) + [1] * len(own), [*in_distribution, *own])
        for s, c, own in found.iter_rows()
    }


@pytest.mark.parametrize("name", list(SETS))
def test_figures_5_and_7_each_set_has_its_own_map_against_the_one_in_distribution_pool(
    two_sets: pl.DataFrame, name: str
) -> None:
    found = level_map(two_sets).filter(set=name)
    assert {(row["sem_level"], row["cov_level"]): row["value"] for row in found.to_dicts()} == pytest.approx(
        own_areas(two_sets, SETS[name])
    )
    assert found["n"].unique().to_list() == [14]
    assert found["id"].unique().to_list() == [80]


def test_tables_1_and_2_have_covariate_correlations_of_two_signs(two_sets: pl.DataFrame) -> None:
    signs = {}
    for name in SETS:
        areas = own_areas(two_sets, SETS[name])
        means = [np.mean([area for (_, cov), area in areas.items() if cov == level]) for level in range(1, 5)]
        r, slope = equations(np.array(means), np.arange(1, 5))
        for ask, wanted in ((correlation, r), (sensitivity, 100 * slope)):
            assert ask(two_sets).filter(set=name, axis="covariate")["value"].item() == pytest.approx(wanted)
        signs[name] = np.sign(r)
    assert (signs["imagenet21k"], signs["syn_is"]) == (-1, 1)


def test_sets_are_pooled_only_on_request_and_then_by_name(two_sets: pl.DataFrame) -> None:
    for ask in (level_map, level_curve, correlation, sensitivity):
        for by in (("model", "scorer"), (), "set"):
            assert set(ask(two_sets, by=by)["set"]) == set(SETS)
        assert set(ask(two_sets, pooled=True)["set"]) == {"pooled: imagenet21k + own + syn_is"}
    found = level_map(two_sets, pooled=True)
    areas = own_areas(two_sets, pl.lit(True))
    assert {(row["sem_level"], row["cov_level"]): row["value"] for row in found.to_dicts()} == pytest.approx(
        areas
    )
    assert found["n"].unique().to_list() == [42]


def test_one_set_is_named_by_its_source(seen: pl.DataFrame) -> None:
    assert set(level_map(seen)["set"]) == {"s"}
    assert level_map(seen, pooled=True).drop("set").equals(level_map(seen).drop("set"))


def test_sets_of_one_name_in_two_sources_stay_apart(two_sets: pl.DataFrame) -> None:
    again = two_sets.with_columns(
        pl.col("source").replace("is_ood", "other"), pl.col("sample_id") + "b", pl.col("image_id") + "b"
    )
    names = {"is_ood/imagenet21k", "other/imagenet21k", "is_ood/syn_is", "other/syn_is", "own"}
    assert set(level_map(pl.concat([two_sets, again]))["set"]) == names


def fpr95(in_distribution: list[float], ood: list[float]) -> float:
    """Section 2.4, as OpenOOD: the share of in-distribution images flagged where 95 % of the OOD ones are."""
    flag = max(limit for limit in ood if np.mean(np.array(ood) >= limit) >= 0.95)
    return float(np.mean(np.array(in_distribution) >= flag))


def aupr(in_distribution: list[float], ood: list[float]) -> float:
    return float(
        average_precision_score([0] * len(in_distribution) + [1] * len(ood), [*in_distribution, *ood])
    )


@pytest.mark.parametrize(("metric", "asked"), [("fpr95_ood_pos", fpr95), ("aupr_out", aupr)])
def test_tables_4_to_7_are_equations_5_and_6_of_fpr95_and_aupr(
    two_sets: pl.DataFrame, metric: str, asked: Any
) -> None:
    in_distribution = two_sets.filter(pl.col("sem_level").is_null())["score"].to_list()
    for name in ("imagenet21k", "syn_is"):
        own = two_sets.filter(SETS[name] & pl.col("sem_level").is_not_null())
        cells = {
            (s, c): asked(in_distribution, held)
            for s, c, held in own.group_by("sem_level", "cov_level").agg("score").iter_rows()
        }
        for axis, place, levels in (("semantic", 0, (1, 2, 3)), ("covariate", 1, (1, 2, 3, 4))):
            means = [
                np.mean([value for cell, value in cells.items() if cell[place] == level]) for level in levels
            ]
            wanted = equations(np.array(means), np.array(levels))
            found = [
                ask(two_sets, metric=metric).filter(set=name, axis=axis)["value"].item()
                for ask in (correlation, sensitivity)
            ]
            assert found == pytest.approx([wanted[0], 100 * wanted[1]])
