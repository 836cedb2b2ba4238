"""Comparison of models: rank agreement, paired differences, ranks, and accuracy on the line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement, permutations
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.io.paths import path_of
from sorites.io.tables import as_numbers, csv
from sorites.metrics.accuracy import accuracy, mean_accuracy, over_samples
from sorites.metrics.intervals import Z, paired_interval
from sorites.metrics.rows import REAL_SAMPLES, WHOLE, answer_frame, judged_rows, select_rows, with_clean


@add_metric
def rank_agreement(table: Table, by: Sequence[str] = ("shift",), exclude: Sequence[str] = ()) -> pl.DataFrame:
    """Kendall's tau-b between the orders of the models under ``shift`` and under ``other``; ``p`` against
    independence.

    A model's accuracy under a shift is its mean over settings; ``clean`` counts as a shift and gives
    the baseline order. ``n`` counts the models that were judged under both shifts, without those in
    ``exclude``. The interval is that of Bonett & Wright (2000) on Fisher's scale, null below five
    models; tau and p are null below two models or where all models tie in one order. Further columns in
    ``by`` form separate groups.
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

    both = np.isfinite(a.astype(float)) & np.isfinite(b.astype(float))
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
    other_correct = theirs.select("run_id", "image_id", theirs=pl.col("correct").cast(pl.Float64))
    both = mine.join(other_correct, on=["run_id", "image_id"], nulls_equal=True).with_columns(
        other=pl.lit(other)
    )
    difference = pl.col("correct").cast(pl.Float64) - pl.col("theirs")
    sums = over_samples(both, ["model", "other", *group_columns], value=difference, share=difference.abs())
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("share"), pl.col("n"))
    return sums.with_columns(**bounds).collect(engine="streaming")


# Ranks of models, shared where the data cannot separate them.


@add_metric
def rank(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Rank of each model: 1 + the number of models that are better by more than the standard errors of
    both.

    A model is better when the lower end of its accuracy ± ``sigma``, sigma = sqrt(p (1 - p) / n), is
    above the upper end of the other's; overlapping models share a rank. Models are compared within the
    other columns of ``by``; ``model`` is added where it is left out. By shift and severity, every shift
    starts with the clean images at severity 0.
    """
    columns = [by] if isinstance(by, str) else list(by)
    keys = columns if "model" in columns else [*columns, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(keys) else table
    accuracies = accuracy(curves, keys).lazy().filter(pl.col("n") > 0).rename({"value": "accuracy"})
    p = pl.col("accuracy")
    with_sigma = accuracies.with_columns(sigma=(p * (1 - p) / pl.col("n")).sqrt()).with_row_index("me")
    group_columns = [key for key in keys if key != "model"]
    rivals = with_sigma.select(*group_columns, rival_low=p - pl.col("sigma"))
    comparisons = (
        with_sigma.join(rivals, on=group_columns, nulls_equal=True)
        if group_columns
        else with_sigma.join(rivals, how="cross")
    )
    better = (pl.col("rival_low") > p + pl.col("sigma")).sum().cast(pl.Int64)
    ranks = with_sigma.join(comparisons.group_by("me").agg(value=1 + better), on="me")
    return answer_frame(ranks, keys, "value", "n", "accuracy", "sigma")


# Model facts: numbers about models that are not in the table, such as parameters or accuracy elsewhere.

# A CSV file with a column ``model`` and one column per fact, such a frame, or a mapping from model to facts.
ModelFacts = str | Path | pl.DataFrame | Mapping[str, Mapping[str, object]]


def read_model_facts(facts: ModelFacts, *names: str) -> pl.DataFrame:
    """Return one row per model with ``model`` and the named facts as numbers.

    Raises:
        SoritesError: If a fact is missing or not a number, or a model appears twice.
    """
    frame = _read(facts)
    for name in ("model", *names):
        if name not in frame.columns:
            raise UnknownName("fact", name, frame.columns, f"The facts are {', '.join(frame.columns)}.")
    if frame["model"].is_duplicated().any():
        duplicate = frame.filter(pl.col("model").is_duplicated())["model"][0]
        raise SoritesError(f"facts: the model {duplicate!r} appears twice")
    numbers = frame.select("model", *(as_numbers(frame[name], f"facts, column {name}") for name in names))
    for name in names:
        invalid = frame.filter(frame[name].is_not_null() & numbers[name].is_null())
        if invalid.height:
            raise SoritesError(
                f"facts: expected a number for {name} of {invalid['model'][0]!r}, got {invalid[name][0]!r}"
            )
    return numbers


def _read(facts: ModelFacts) -> pl.DataFrame:
    if isinstance(facts, pl.DataFrame):
        return facts
    if isinstance(facts, Mapping):
        return pl.DataFrame([{"model": model, **values} for model, values in facts.items()])
    return csv(path_of(facts), "facts as a CSV file with the column model", infer_schema=True)


# Accuracy on the line: accuracy under shift as a linear function of accuracy without shift, over models.

Array = NDArray[np.float64]
Numbers = dict[str, float | int | None]


@add_metric
def on_the_line(
    table: Table,
    by: Sequence[str] = ("shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Least-squares line of accuracy under shift on accuracy without shift: slope with its 95 % interval,
    ``intercept``, ``r``, ``p``.

    ``n`` counts models; ``p`` tests the slope against 0 (t with n - 2 degrees of freedom). ``baseline``
    names the model fact with the accuracy without shift (a fraction); severity 0 is then fitted too.
    The numbers are null where there are too few models or their accuracies do not differ.
    """
    points, keys = _points(table, by, facts, baseline)
    return _estimate_groups(
        points, keys, lambda x, y, _: fit(x, y), ("value", "n", "low", "high", "intercept", "r", "p")
    )


@add_metric
def line_gain(
    table: Table,
    by: Sequence[str] = ("model", "shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Accuracy of a model minus the line's prediction from its accuracy without shift; ``n`` counts
    samples.
    """
    columns_by = [by] if isinstance(by, str) else list(by)
    points, keys = _points(table, [key for key in columns_by if key != "model"], facts, baseline)
    lines = _estimate_groups(points, keys, lambda x, y, _: fit(x, y), ("value", "n", "intercept")).rename(
        {"value": "slope", "n": "models"}
    )
    joined = points.join(lines, on=keys, nulls_equal=True) if keys else points.join(lines, how="cross")
    expected = pl.col("intercept") + pl.col("slope") * pl.col("start")
    gains = joined.with_columns(expected=expected, accuracy=pl.col("y")).with_columns(
        value=pl.col("y") - pl.col("expected")
    )
    columns_with_model = columns_by if "model" in columns_by else [*columns_by, "model"]
    return answer_frame(gains, columns_with_model, "value", "n", "accuracy", "expected", "models")


@add_metric
def partial_correlation(
    table: Table,
    by: Sequence[str] = ("shift", "severity"),
    facts: ModelFacts | None = None,
    fact: str = "parameters",
    baseline: str | None = None,
) -> pl.DataFrame:
    """Correlation over models of a ``fact`` and accuracy under shift, controlling for accuracy without
    shift; ``p`` against 0.

    ``facts`` is a CSV file with the column ``model`` and one column per fact. ``plain`` is the
    correlation without the control; ``n`` counts models. The interval is Fisher's, null below five
    models.
    """
    points, keys = _points(table, by, facts, baseline, fact)
    return _estimate_groups(
        points, keys, lambda x, y, z: partial(z, y, x), ("value", "n", "low", "high", "plain", "p")
    )


def fit(x: Array, y: Array) -> Numbers:
    """Fit a line through points; return its slope (``value``) with interval, intercept, Pearson's r and p."""
    n, nothing = len(x), dict.fromkeys(("value", "low", "high", "intercept", "r", "p"))
    dx, dy = x - x.mean() if n else x, y - y.mean() if n else y
    if n < 2 or not (sxx := float(dx @ dx)) > 1e-18:
        return {"n": n, **nothing}
    sxy, syy = float(dx @ dy), float(dy @ dy)
    slope, r = sxy / sxx, sxy / np.sqrt(sxx * syy) if syy > 1e-18 else None
    line: Numbers = {
        "n": n,
        **nothing,
        "value": slope,
        "intercept": float(y.mean() - slope * x.mean()),
        "r": r,
    }
    if n < 3:
        return line
    from scipy.special import stdtr, stdtrit

    error = np.sqrt(max(syy - slope * sxy, 0.0) / (n - 2) / sxx)
    half_width = float(stdtrit(n - 2, 0.975)) * error
    p = 2 * float(stdtr(n - 2, -abs(slope) / error)) if error > 0 else 0.0
    return {**line, "low": slope - half_width, "high": slope + half_width, "p": p if r is not None else 1.0}


def partial(a: Array, b: Array, given: Array) -> Numbers:
    """Return Pearson's correlation of ``a`` and ``b`` after regressing both on ``given``, and their plain
    correlation.
    """
    n, plain = len(a), _pearson(a, b)
    nothing: Numbers = {"n": n, "plain": plain, **dict.fromkeys(("value", "low", "high", "p"))}
    control_correlations = [_pearson(*pair) for pair in ((a, given), (b, given))]
    if (
        plain is None
        or n < 4
        or control_correlations[0] is None
        or control_correlations[1] is None
        or max(map(abs, (control_correlations[0], control_correlations[1]))) > 1 - 1e-12
    ):
        return nothing
    from scipy.special import stdtr

    value = float(
        np.clip(
            (plain - control_correlations[0] * control_correlations[1])
            / np.sqrt((1 - control_correlations[0] ** 2) * (1 - control_correlations[1] ** 2)),
            -1,
            1,
        )
    )
    freedom = n - 3
    with np.errstate(divide="ignore"):
        t = abs(value) * np.sqrt(freedom / np.float64(max(1 - value**2, 0.0)))
        middle = np.arctanh(value)
    result: Numbers = {**nothing, "value": value, "p": 2 * float(stdtr(freedom, -t))}
    if n < 5:
        return result
    half_width = Z / np.sqrt(n - 4)
    return {**result, "low": float(np.tanh(middle - half_width)), "high": float(np.tanh(middle + half_width))}


def _pearson(a: Array, b: Array) -> float | None:
    if len(a) < 2:
        return None
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 1e-18 else None


def _points(
    table: Table, by: Sequence[str], facts: ModelFacts | None, baseline: str | None, fact: str | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per group and model: accuracy under shift (``y``) and without (``start``), the
    ``fact``, and ``n``.
    """
    keys = [by] if isinstance(by, str) else list(by)
    if "model" in keys:
        raise SoritesError("models are the points of the line: remove model from by")
    means = mean_accuracy(with_clean(table) if baseline and "severity" in keys else table, [*keys, "model"])
    points = means.select(*keys, "model", "n", y="value").drop_nulls("y")
    if baseline is None:
        clean = accuracy(table.lazy().filter(pl.col("shift") == CLEAN), ["model"])
        points = points.join(clean.select("model", start="value"), on="model")
    for column, name in (("start", baseline), ("fact", fact)):
        if name is not None:
            points = points.join(_model_fact(facts, name, points).rename({name: column}), on="model")
    return points.with_columns(fact=pl.lit(0.0) if fact is None else "fact").drop_nulls(
        ["start", "fact"]
    ), keys


def _model_fact(facts: ModelFacts | None, name: str, points: pl.DataFrame) -> pl.DataFrame:
    """Return one fact per model; raise an error if the facts name no model of the table."""
    if facts is None and points.height:
        raise SoritesError(
            f"{name} is a model fact: pass facts=FILE, a CSV file with the columns model and {name}"
        )
    empty = pl.DataFrame(schema={"model": pl.String, name: pl.Float64})
    values = empty if facts is None else read_model_facts(facts, name)
    if points.height and not points.join(values, on="model").height:
        raise SoritesError(f"the facts contain none of the table's models, such as {points['model'][0]!r}")
    return values


def _estimate_groups(
    points: pl.DataFrame,
    keys: list[str],
    estimate: Callable[[Array, Array, Array], Numbers],
    columns: Sequence[str],
) -> pl.DataFrame:
    """Return ``estimate(start, y, fact)`` over the models of each group."""
    rows: list[dict[str, object]] = []
    for group in (
        points.partition_by(keys, maintain_order=True) if keys else [points] if points.height else []
    ):
        ordered = group.sort("model")
        x, y, z = (ordered[name].to_numpy().astype(np.float64) for name in ("start", "y", "fact"))
        rows.append({**(ordered.select(keys).row(0, named=True) if keys else {}), **estimate(x, y, z)})
    kinds = {name: pl.Int64 if name == "n" else pl.Float64 for name in columns}
    return answer_frame(
        pl.DataFrame(rows, schema={**{k: points.schema[k] for k in keys}, **kinds}), keys, *columns
    )
