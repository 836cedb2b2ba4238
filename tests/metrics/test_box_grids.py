"""Surfaces, contour and interaction of grids for detectors, against closed forms and independent computations."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites import metrics
from sorites.core import table as tables
from sorites.core.errors import SoritesError
from sorites.metrics.detection.kept import half_objects_severities
from sorites.metrics.grids import Outcomes, influences, interactions

Row = dict[str, Any]
A, B = (0.0, 1.0, 2.0), (0.0, 2.0, 4.0, 8.0)
SAMPLES, OBJECTS = 20, 2
Found = Callable[[int, int, float, float], bool]


def box(k: int, label: int, **more: object) -> Row:
    return {"x0": 50.0 * k, "y0": 0.0, "x1": 50.0 * k + 40, "y1": 40.0, "label": label, **more}


def box_table(found: Found, samples: int = SAMPLES, left: Found = lambda i, k, a, b: False) -> pl.DataFrame:
    """Samples with two objects of two classes; ``left`` says whether an object counts as a crowd."""
    rows: list[Row] = []
    for i, a, b in itertools.product(range(samples), A, B):
        clean = not a and not b
        truth = [box(k, k, area=None, crowd=left(i, k, a, b)) for k in range(OBJECTS)]
        boxes = [box(k, k, conf=0.9 - i / 100) for k in range(OBJECTS) if found(i, k, a, b)]
        wrong = [{**box(9, 0), "conf": 0.3 + i / 50}] if (i + a + b) % 3 == 0 else []
        rows.append(
            {
                "run_id": "r",
                "source": "s",
                "sample_id": f"p{i}",
                "image_id": f"p{i}/{a}/{b}",
                "shift": "clean" if clean else "dim x blur",
                "family": "combined",
                "severity": 0.0 if clean else None,
                "params": None if clean else json.dumps({"dim": a, "blur": b}),
                "seed": 0,
                "probe": False,
                "model": "d",
                "output": "boxes",
                "ground_truth": truth,
                "boxes": boxes + wrong,
            }
        )
    return tables.rows(rows)


def linear(i: int, k: int, a: float, b: float) -> bool:
    """Of 40 objects, the share that is found falls by 5 % per unit of either severity."""
    return OBJECTS * i + k < SAMPLES * OBJECTS - 2 * (a + b)


def at(table: pl.DataFrame, a: float, b: float) -> pl.DataFrame:
    """The rows of one point, as if they were all there is."""
    if not a and not b:
        return table.filter(shift="clean")
    return table.filter(params=json.dumps({"dim": a, "blur": b}))


def test_the_surfaces_are_the_metrics_of_each_point() -> None:
    table = box_table(linear)
    surface = metrics.grid_map(table, resamples=40)
    recall, kept = metrics.grid_recall(table), metrics.grid_kept(table)
    assert surface.height == recall.height == kept.height == len(A) * len(B)
    for a, b in itertools.product(A, B):
        alone = metrics.map(at(table, a, b), by=("model",), resamples=0)["value"].item()
        assert surface.filter(first=a, second=b)["value"].item() == pytest.approx(alone, abs=1e-12)
        for shares in (recall, kept):
            line = shares.filter(first=a, second=b).row(0, named=True)
            assert line["value"] == pytest.approx(1 - (a + b) / 20)
            assert line["low"] <= line["value"] <= line["high"]
    assert surface["third"].null_count() == surface.height
    assert (kept["n"][0], kept["objects"][0]) == (SAMPLES, SAMPLES * OBJECTS)


def test_surfaces_may_be_asked_by_class_but_not_over_shifts() -> None:
    table = box_table(linear)
    by_class = metrics.grid_recall(table, by=("model", "shift", "class"))
    assert by_class.height == 2 * len(A) * len(B)
    assert metrics.grid_map(table, by=("model", "shift", "class"), resamples=0).height == by_class.height
    with pytest.raises(SoritesError, match="add shift to by"):
        metrics.grid_kept(table, by=("model",))


def test_the_contour_is_where_half_of_the_objects_are_lost() -> None:
    """The kept share is 1 - (a + b) / 14, so half are lost at b = 7 - a."""
    contour = metrics.box_failure_contour(
        box_table(lambda i, k, a, b: OBJECTS * i + k < 28 - 2 * (a + b), samples=14), resamples=200
    )
    assert contour["first"].to_list() == list(A)
    assert contour["value"].to_list() == pytest.approx([7.0, 6.0, 5.0])
    assert contour["status"].to_list() == ["reached"] * 3
    assert contour.select("n", "objects").row(0) == (14, 28)
    assert (contour["low"] <= contour["value"]).all()
    assert (contour["high"].fill_null(np.inf) >= contour["value"]).all()


def test_objects_missed_in_the_clean_image_do_not_count() -> None:
    """Class 1 is found under shift only; of class 0, all are lost where both shifts act."""
    table = box_table(lambda i, k, a, b: not (a and b) if k == 0 else bool(a or b))
    kept = metrics.grid_kept(table)
    assert kept["objects"].unique().to_list() == [SAMPLES]
    assert kept.filter((pl.col("first") > 0) & (pl.col("second") > 0))["value"].sum() == 0
    assert metrics.grid_recall(table).filter(first=1.0, second=2.0)["value"].item() == 0.5
    assert metrics.box_failure_contour(table, resamples=50)["status"].to_list() == [
        "beyond",
        "reached",
        "reached",
    ]
    nothing = metrics.box_failure_contour(box_table(lambda i, k, a, b: False), resamples=50)
    assert nothing["status"].to_list() == ["undefined"] * 3
    dim = metrics.box_failure_contour(box_table(lambda i, k, a, b: a < 2), resamples=50)
    assert dim.row(2, named=True)["status"] == "below"
    assert dim.row(2, named=True)["value"] == 0


def test_on_the_axes_the_contour_is_the_severity_of_the_single_shift() -> None:
    rng = np.random.default_rng(4)
    ease = rng.uniform(0, 12, (SAMPLES, OBJECTS))
    table = box_table(lambda i, k, a, b: bool(ease[i, k] > a + b))
    alone = table.filter(pl.col("shift") == "clean").vstack(
        pl.concat([at(table, 0.0, b).with_columns(shift=pl.lit("blur"), severity=pl.lit(b)) for b in B[1:]])
    )
    single = half_objects_severities(alone).row(0, named=True)
    line = metrics.box_failure_contour(table).filter(first=0.0).row(0, named=True)
    for name in ("value", "low", "high", "n", "objects"):
        assert line[name] == pytest.approx(single[name])


def test_objects_that_left_the_image_are_not_lost() -> None:
    """An object is a crowd from b = 4 on and not found there: it is left out, not lost."""
    table = box_table(lambda i, k, a, b: k == 0 or b < 4, left=lambda i, k, a, b: k == 1 and b >= 4)
    kept = metrics.grid_kept(table)
    assert kept["value"].unique().to_list() == [1.0]
    assert kept.filter(second=8.0)["objects"].unique().to_list() == [SAMPLES]
    assert metrics.box_interaction(table).filter(second=8.0)["objects"].unique().to_list() == [SAMPLES]


def test_the_interaction_is_the_mean_excess_of_objects_with_samples_as_units() -> None:
    """Compared with a jackknife over samples, which does not know of ratios; added samples widen it a little."""
    rng = np.random.default_rng(2)
    ease = rng.normal(size=(60, 1)) + 0.7 * rng.normal(size=(60, OBJECTS))
    least = {(a, b): -0.5 + 0.4 * a + 0.2 * b for a in A for b in B}
    flicker = {point: 0.3 * rng.normal(size=(60, OBJECTS)) for point in least}
    table = box_table(
        lambda i, k, a, b: bool(ease[i, k] + flicker[a, b][i, k] > least[a, b]),
        samples=60,
        left=lambda i, k, a, b: k == 1 and i % 2 == 0,
    )
    found = metrics.box_interaction(table)
    counted = np.array([[True, i % 2 == 1] for i in range(60)])
    for a, b in itertools.product(A[1:], B[1:]):
        hit = {
            p: (ease + flicker[p] > least[p]).astype(float) for p in ((0.0, 0.0), (a, 0.0), (0.0, b), (a, b))
        }
        excess = np.where(counted, hit[a, 0.0] + hit[0.0, b] - hit[0.0, 0.0] - hit[a, b], 0)
        row = found.filter(first=a, second=b).row(0, named=True)
        assert row["value"] == pytest.approx(excess.sum() / counted.sum())
        assert (row["n"], row["objects"]) == (60, counted.sum())
        assert row["recall"] == pytest.approx(hit[a, b][counted].mean())
        left_out = [np.delete(excess, i, 0).sum() / np.delete(counted, i, 0).sum() for i in range(60)]
        error = np.sqrt(59 / 60 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
        assert (row["high"] - row["low"]) / 2 / 2.0 == pytest.approx(error, rel=0.15)
    assert found.filter(pl.col("first").is_null())["p"].item() is None


def test_objects_of_one_sample_are_no_proof_of_an_interaction() -> None:
    """Objects share the luck of their image; tested as if they were independent, nulls are significant too often."""
    rng, p, naive = np.random.default_rng(3), [], []
    points = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)]
    cluster = np.repeat(np.arange(40), 6)
    for _ in range(400):
        luck = rng.normal(size=(40, 4))[cluster] + 0.5 * rng.normal(size=(240, 4))
        correct, chance = (luck > -0.3).astype(float), np.zeros(240)
        p.append(interactions(Outcomes(points, correct, chance, cluster))[0]["p"])
        naive.append(interactions(Outcomes(points, correct, chance, np.arange(240)))[0]["p"])
    assert np.mean(np.array(p) < 0.05) <= 0.05 + 2 * (0.05 * 0.95 / 400) ** 0.5
    assert np.mean(np.array(naive) < 0.05) > 0.2


def test_influences_have_the_mean_of_all_values() -> None:
    values, cluster = np.arange(7.0), np.array([0, 0, 0, 1, 1, 2, 5])
    assert influences(values, cluster).mean() == pytest.approx(values.mean())
    assert influences(values, np.arange(7)).tolist() == values.tolist()
