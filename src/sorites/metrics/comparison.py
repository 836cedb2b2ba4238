"""Comparison of models: rank agreement, paired differences, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.errors import UnknownName
from sorites.core.table import Table
from sorites.metrics.accuracy import accuracy, mean_accuracy, over_samples
from sorites.metrics.intervals import Z, paired_interval
from sorites.metrics.rows import (
    REAL_SAMPLES,
    SAMPLE_KEY,
    WHOLE,
    answer_frame,
    judged_rows,
    select_rows,
    with_clean,
)


@add_metric
def rank_agreement(table: Table, by: Sequence[str] = ("shift",), exclude: Sequence[str] = ()) -> pl.DataFrame:
    """Kendall's tau-b between the orders of the models under ``shift`` and under ``other``; ``p`` against
    independence.

    A model's accuracy under a shift is its mean over settings; ``clean`` counts as a shift and gives
    the baseline order. ``n`` counts the models that were judged under both shifts, without those in
    ``exclude``. The interval is that of Bonett & Wright (2000) on Fisher's scale, null below five
    models; tau and p are null below two models or where all models tie in one order. Accuracies are
    rounded to 10 decimals before they are ranked, so equal ones tie. Further columns in ``by`` form separate
    groups.
    """
    means = _means(table, [key for key in ([by] if isinstance(by, str) else by) if key != "shift"], exclude)
    group_columns = [name for name in means.columns if name not in ("model", "shift", "value")]
    rows = []
    for group in means.partition_by(group_columns, maintain_order=True) if group_columns else [means]:
        group_key = group.select(group_columns).row(0, named=True) if group_columns else {}
        rows += [{**group_key, **pair} for pair in _pairs(group)]
    schema = pl.Schema({**{name: means.schema[name] for name in group_columns}, **_PAIR})
    return answer_frame(
        pl.DataFrame(rows, schema=schema),
        [*group_columns, "shift", "other"],
        "value",
        "n",
        "low",
        "high",
        "p",
    )


_PAIR: dict[str, pl.DataType | type[pl.DataType]] = {
    "shift": pl.String,
    "other": pl.String,
    "value": pl.Float64,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "p": pl.Float64,
}


def _means(table: Table, group_columns: list[str], exclude: Sequence[str]) -> pl.DataFrame:
    excluded = [exclude] if isinstance(exclude, str) else list(exclude)
    models = table.lazy().select(pl.col("model").unique()).collect(engine="streaming")["model"].to_list()
    for name in excluded:
        if models and name not in models:
            raise UnknownName("model", name, [m for m in models if m])
    included = table.lazy().filter(pl.col("model").is_in(excluded).not_())
    as_shift = included.filter(pl.col("shift") == CLEAN).with_columns(shift=pl.lit("clean images"))
    both = pl.concat([included.filter(pl.col("shift") != CLEAN), as_shift])
    means = mean_accuracy(both, by=["model", "shift", *group_columns]).select(
        "model", "shift", *group_columns, "value"
    )
    return means.with_columns(pl.col("shift").replace("clean images", CLEAN))


def _pairs(group: pl.DataFrame) -> list[dict[str, object]]:
    """Return tau of every shift with itself and with every other shift, in both directions."""
    if not group.height:
        return []
    wide = group.pivot(on="shift", index="model", values="value")
    records = []
    for first, second in combinations_with_replacement(
        sorted(name for name in wide.columns if name in set(group["shift"])), 2
    ):
        pair = _tau(wide[first].to_numpy(), wide[second].to_numpy())
        records += [{"shift": a, "other": b, **pair} for a, b in {(first, second), (second, first)}]
    return records


def _tau(a: NDArray[np.float64], b: NDArray[np.float64]) -> dict[str, object]:
    from scipy.stats import kendalltau

    # Equal means may differ in their last digits, which depend on the order of summation.
    a, b = (np.round(side.astype(float), 10) for side in (a, b))
    both = np.isfinite(a) & np.isfinite(b)
    n, nothing = int(both.sum()), {"value": None, "low": None, "high": None, "p": None}
    if n < 2 or len(set(a[both])) == 1 or len(set(b[both])) == 1:
        return {"n": n, **nothing}
    tau, p = (float(x) for x in kendalltau(a[both], b[both]))
    if n < 5:
        return {"n": n, "value": tau, "low": None, "high": None, "p": p}
    with np.errstate(divide="ignore"):
        middle, half_width = np.arctanh(tau), Z * np.sqrt(0.437 / (n - 4))
    return {
        "n": n,
        "value": tau,
        "low": float(np.tanh(middle - half_width)),
        "high": float(np.tanh(middle + half_width)),
        "p": p,
    }


# Paired comparison of two models on the same images.

# The columns that identify an image: two sources may use the same names.
_IMAGE = ("run_id", "source", "image_id")


@add_metric
def paired_difference(table: Table, by: Sequence[str] = ("model",), other: str | None = None) -> pl.DataFrame:
    """Accuracy of ``model`` minus that of ``other`` on the shifted images that both were judged on,
    averaged as in ``mean_accuracy``.

    ``other`` names the model that all are compared with; without it every pair is returned in both
    directions. ``n`` counts samples, and ``share`` is the share of images on which exactly one of the
    two is correct. The interval is that of ``accuracy_drop``.
    """
    rows, keys = select_rows(table, by)
    group_columns = [key for key in keys if key not in ("model", WHOLE)]
    slim = judged_rows(rows).filter((pl.col("shift") != CLEAN) & REAL_SAMPLES)
    models = sorted(slim.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    if other is not None and models and other not in models:
        raise UnknownName("model", other, models, f"The table has {', '.join(models)}.")
    pairs = [(first, second) for first, second in permutations(models, 2) if other in (None, second)]
    frames = [_difference(slim, group_columns, first, second) for first, second in pairs] or [
        _difference(slim, group_columns, "", "")
    ]
    return answer_frame(
        pl.concat(frames), ["model", *group_columns], "value", "n", "low", "high", "share", then=["other"]
    )


def _difference(rows: pl.LazyFrame, group_columns: list[str], model: str, other: str) -> pl.DataFrame:
    mine, theirs = (rows.filter(pl.col("model") == name) for name in (model, other))
    other_correct = theirs.select(*_IMAGE, theirs=pl.col("correct").cast(pl.Float64))
    both = mine.join(other_correct, on=_IMAGE, nulls_equal=True).with_columns(other=pl.lit(other))
    difference = pl.col("correct").cast(pl.Float64) - pl.col("theirs")
    sums = over_samples(both, ["model", "other", *group_columns], value=difference, share=difference.abs())
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("share"), pl.col("n"))
    return sums.with_columns(**bounds).collect(engine="streaming")


# Ranks of models, shared where the data cannot separate them.


# The probability that any two equal models of a group get different ranks.
RANK_RATE = 0.05


@add_metric
def rank(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Rank of each model: 1 + the number of models that are clearly better on the same images.

    A model is clearly better when the interval of the paired difference of ``accuracy`` is above 0. The
    interval is over samples, with half a pair added to each outcome (Agresti & Min 2005), and corrected
    by Bonferroni over the pairs of models of a group, so that equal models share a rank in at least 95 %
    of cases. Models are compared within the other columns of ``by``; ``model`` is added where it is left
    out. By shift and severity, every shift starts with the clean images at severity 0.
    """
    columns = [by] if isinstance(by, str) else list(by)
    keys = columns if "model" in columns else [*columns, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(keys) else table
    accuracies = accuracy(curves, keys).filter(pl.col("n") > 0).rename({"value": "accuracy"})
    group_columns = [key for key in keys if key != "model"]
    rows, _ = select_rows(curves, keys)
    judged = judged_rows(rows).select(
        *dict.fromkeys([*keys, *_IMAGE, *SAMPLE_KEY]), correct=pl.col("correct").cast(pl.Float64)
    )
    better = _clearly_better(judged.collect(engine="streaming"), group_columns)
    ranks = accuracies.join(better, on=keys, how="left", nulls_equal=True).with_columns(
        value=1 + pl.col("better").fill_null(0)
    )
    return answer_frame(ranks, keys, "value", "n", "accuracy")


def _clearly_better(rows: pl.DataFrame, group_columns: list[str]) -> pl.DataFrame:
    """Return how many models are clearly better than each, by group."""
    from scipy.special import ndtri

    found: list[dict[str, object]] = []
    groups = rows.partition_by(group_columns, as_dict=True) if group_columns else {(): rows}
    for key, group in groups.items():
        images = list(dict.fromkeys([*_IMAGE, *SAMPLE_KEY]))
        wide = group.pivot(on="model", index=images, values="correct", aggregate_function="mean")
        models = [name for name in wide.columns if name not in images]
        sample = wide.select(pl.struct(SAMPLE_KEY).rank("dense")).to_series().to_numpy() - 1
        outcomes = {name: wide[name].to_numpy() for name in models}
        behind = dict.fromkeys(models, 0)
        z = float(ndtri(1 - RANK_RATE / max(len(models) * (len(models) - 1), 1)))
        for one, two in combinations(models, 2):
            ahead = _ahead(outcomes[one] - outcomes[two], sample, z)
            behind[one if ahead < 0 else two] += ahead != 0
        found += [
            {**dict(zip(group_columns, key, strict=True)), "model": name, "better": count}
            for name, count in behind.items()
        ]
    schema = {**{name: rows.schema[name] for name in [*group_columns, "model"]}, "better": pl.Int64()}
    return pl.DataFrame(found, schema=schema)


def _ahead(difference: NDArray[np.float64], sample: NDArray[np.int64], z: float) -> int:
    """Return 1 if the mean difference is clearly above 0, -1 if it is clearly below, else 0.

    Every image has the same weight, so the contribution of a sample grows with its number of images.
    """
    both = np.isfinite(difference)
    if not both.any():
        return 0
    difference, codes = difference[both], np.unique(sample[both], return_inverse=True)[1]
    n = int(codes.max()) + 1
    value, apart = (np.bincount(codes, part) * n / len(codes) for part in (difference, np.abs(difference)))
    numbers = (value.mean(), (value**2).mean(), apart.mean(), float(n))
    mean, square, share, samples = (pl.lit(float(number)) for number in numbers)
    one = pl.DataFrame({"n": [n]})
    bounds = one.select(**paired_interval(mean, square, share, samples, z)).row(0)
    return int(bounds[0] > 1e-12) - int(bounds[1] < -1e-12)
