"""Curves of two models from a table: probes, and sources with the same names."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest

from sorites.analysis.comparison.compare import failure_severities
from sorites.analysis.comparison.pairs import ALL, Matrix, curves, matrix, paired
from sorites.analysis.comparison.statistics import flip_test, weighted_drops, weighted_means
from sorites.core import table as tables
from sorites.metrics import failure_severity, paired_difference

MODELS = ("base", "new")


def rows(failures: dict[str, list[float]], probes: bool, source: str = "s") -> list[dict[str, Any]]:
    """Return rows of samples that fail from a severity on, on a grid of 1, 2, 3 and perhaps at probes."""
    made = []
    for model, edges in failures.items():
        for i, edge in enumerate(edges):
            grid = [("clean", 0.0, False), *(("blur", s, False) for s in (1.0, 2.0, 3.0))]
            between = [("blur", edge, True)] if probes and 0 < edge < 3 else []
            for shift, severity, probe in grid + between:
                made.append(
                    {
                        "run_id": "r",
                        "source": source,
                        "sample_id": f"p{i}",
                        "image_id": f"p{i}/{shift}/{severity}",
                        "family": "x",
                        "shift": shift,
                        "severity": severity,
                        "label": 0,
                        "model": model,
                        "output": "label",
                        "pred": 0,
                        "conf": 0.5,
                        "correct": severity < edge,
                        "probe": probe,
                    }
                )
    return made


def made(records: list[dict[str, Any]]) -> pl.LazyFrame:
    schema = tables.SCHEMA
    known = pl.DataFrame(records, schema_overrides={name: schema[name] for name in records[0]})
    others = {name: pl.lit(None, kind) for name, kind in schema.items() if name not in known.columns}
    return known.with_columns(**others).select(list(schema)).lazy()


FAILURES = {"base": [1.5, 2.5, 2.75, 9.0], "new": [0.0, 1.25, 1.75, 2.5]}


def test_refined_failure_severities_are_used_where_both_runs_have_them() -> None:
    table = made(rows(FAILURES, probes=True))
    (found,) = curves(table, *MODELS).values()
    assert found.refined
    ends = found.base.ends
    assert ends.severity[ends.failed].tolist() == [1.5, 2.5, 2.75]
    assert ends.severity[~ends.failed].tolist() == [3.0]
    points = failure_severities(found, "failure_severity", draws=10)
    assert (points.base, points.new) == (2.625, 1.5)
    stated = dict(failure_severity(table).select("model", "value").rows())
    assert stated == pytest.approx({"base": 2.625, "new": 1.5})


def test_probes_of_one_run_alone_are_not_used() -> None:
    one = rows({"base": FAILURES["base"]}, probes=False) + rows({"new": FAILURES["new"]}, probes=True)
    (found,) = curves(made(one), *MODELS).values()
    assert not found.refined
    assert found.new.ends.severity.tolist() == [0.0, 2.0, 2.0, 3.0]
    assert found.new.ends.failed.all()


@pytest.mark.slow
def test_failure_severities_are_those_of_the_metric_where_images_are_missing() -> None:
    """A filter removed images at random, so trajectories end early; several seeds are several trajectories."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        edges = {model: rng.uniform(0, 4, 9).round(1).tolist() for model in MODELS}
        seeds = [
            {**row, "seed": seed, "image_id": f"{row['image_id']}/{seed}"}
            for seed in range(2)
            for row in rows(edges, probes=False)
        ]
        cut = {
            (model, f"p{i}", seed): rng.integers(1, 5)
            for model in MODELS
            for i in range(9)
            for seed in (0, 1)
        }
        kept = [row for row in seeds if row["severity"] < cut[row["model"], row["sample_id"], row["seed"]]]
        table = made(kept)
        (found,) = curves(table, *MODELS).values()
        points = failure_severities(found, "failure_severity", draws=2)
        stated = dict(failure_severity(table).select("model", "value").rows())
        for model, point in zip(MODELS, (points.base, points.new), strict=True):
            assert point == pytest.approx(points.top if stated[model] is None else stated[model])


def test_a_copy_of_a_source_under_another_name_changes_no_drop() -> None:
    once = made(rows(FAILURES, probes=False))
    twice = pl.concat([once, once.with_columns(source=pl.lit("t"))])
    first, both = (matrix(paired(table, *MODELS)) for table in (once, twice))
    for side in ("base", "new"):
        copied = np.tile(getattr(first, side), (2, 1))
        assert np.array_equal(np.sort(getattr(both, side), axis=0), np.sort(copied, axis=0))
    kept = twice.filter(pl.col("source") == "s")
    assert paired_difference(kept).equals(paired_difference(once))
    assert paired_difference(twice)["value"].to_list() == paired_difference(once)["value"].to_list()


def test_no_order_of_rows_changes_the_matrix_or_a_curve() -> None:
    records = rows(FAILURES, probes=True)
    shuffled = [records[i] for i in np.random.default_rng(0).permutation(len(records))]
    one, two = (made(each) for each in (records, shuffled))
    assert np.array_equal(matrix(paired(one, *MODELS)).new, matrix(paired(two, *MODELS)).new)
    assert np.array_equal(curves(one, *MODELS)["blur"].new.right, curves(two, *MODELS)["blur"].new.right)


def nested(lost: dict[str, int], sizes: dict[str, int]) -> pl.LazyFrame:
    """Return a table in which every shift has samples of its own; the base is correct on all of them."""
    made = []
    for shift, size in sizes.items():
        for i, model in itertools.product(range(size), MODELS):
            (row,) = rows({model: [9.0]}, probes=False)[1:2]
            row |= {"sample_id": f"{shift}{i}", "image_id": f"{shift}{i}", "shift": shift}
            made.append(row | {"correct": model == "base" or i >= lost[shift]})
    return tables.rows(made).lazy()


def test_shifts_with_few_samples_weigh_as_much_as_others_in_the_mean_over_shifts() -> None:
    """84 of 200 images lost under fog and none of 4 under rain: the mean drop is 21 points, not 41."""
    table = nested({"fog": 84, "rain": 0}, {"fog": 200, "rain": 4})
    found = matrix(paired(table, *MODELS))
    (base, new), weights = found.columns([ALL, "fog"]), found.weights([ALL, "fog"])
    assert weighted_means(base - new, weights).tolist() == pytest.approx([0.21, 0.42])
    stated = paired_difference(table, other="new").filter(pl.col("model") == "base")["value"].item()
    assert stated == pytest.approx(0.21)
    test = flip_test((base - new)[:, :1], draws=2000, weights=weights[:, :1])
    assert test.mean.tolist() == pytest.approx([0.21])
    assert 0 < test.bound[0] < 0.21
    assert weighted_drops((base - new)[:, 0], weights[:, 0]) is None


def test_samples_under_all_shifts_have_equal_weights() -> None:
    found = Matrix(("clean", "a", "b"), *(np.full((3, 3), 0.5) for _ in range(2)))
    assert (found.weights(["clean", ALL]) == 1).all()
    held = np.array([[1.0, 0.2, 0.4], [1.0, 0.6, np.nan]])
    assert Matrix(("clean", "a", "b"), held, held).columns([ALL])[0][:, 0].tolist() == [
        pytest.approx((0.2 + 2 * 0.4) / 3),
        0.6,
    ]
