"""Agreement of rankings: do two shifts put the models in the same order?"""

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
    """Kendall's tau-b between the orders of the models under ``shift`` and under ``other``; ``p``
    against no relation.

    A model's accuracy under a shift is its mean over settings; ``clean`` counts as a shift and
    gives the baseline order. ``n`` counts the models that were judged under both shifts, without
    those named in ``exclude``. The interval is Bonett & Wright's (2000) on Fisher's scale, null
    below five models; tau and p are null below two models or where all models tie in one order.
    Further columns in ``by`` make separate groups.
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
    left_out = [exclude] if isinstance(exclude, str) else list(exclude)
    models = table.lazy().select(pl.col("model").unique()).collect(engine="streaming")["model"].to_list()
    for name in left_out:
        if models and name not in models:
            raise UnknownName("model", name, [m for m in models if m])
    kept = table.lazy().filter(pl.col("model").is_in(left_out).not_())
    as_shift = kept.filter(pl.col("shift") == CLEAN).with_columns(shift=pl.lit("clean images"))
    both = pl.concat([kept.filter(pl.col("shift") != CLEAN), as_shift])
    means = mean_accuracy(both, by=["model", "shift", *group_columns]).select(
        "model", "shift", *group_columns, "value"
    )
    return means.with_columns(pl.col("shift").replace("clean images", CLEAN))


def _pairs(group: pl.DataFrame) -> list[dict[str, object]]:
    """Return tau for every shift with itself and with every other one, in both directions."""
    if not group.height:
        return []
    wide = group.pivot(on="shift", index="model", values="value")
    found = []
    for one, two in combinations_with_replacement(
        sorted(name for name in wide.columns if name in set(group["shift"])), 2
    ):
        pair = _tau(wide[one].to_numpy(), wide[two].to_numpy())
        found += [{"shift": a, "other": b, **pair} for a, b in {(one, two), (two, one)}]
    return found


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
        middle, reach = np.arctanh(tau), Z * np.sqrt(0.437 / (n - 4))
    return {
        "n": n,
        "value": tau,
        "low": float(np.tanh(middle - reach)),
        "high": float(np.tanh(middle + reach)),
        "p": p,
    }


# Two models on the same images: what one is right about more often than the other.


@add_metric
def paired_difference(table: Table, by: Sequence[str] = ("model",), other: str | None = None) -> pl.DataFrame:
    """Accuracy of ``model`` minus that of ``other`` on the shifted images that both were judged on,
    averaged as in ``mean_accuracy``.

    ``other`` names the one model that all are compared with; without it every pair is there, both
    ways. ``n`` counts samples, and ``share`` is the share of images on which exactly one of the two
    is right. The interval is that of ``accuracy_drop``.
    """
    rows, keys = select_rows(table, by)
    where = [key for key in keys if key not in ("model", WHOLE)]
    slim = judged_rows(rows).filter((pl.col("shift") != CLEAN) & REAL_SAMPLES)
    models = sorted(slim.select(pl.col("model").unique()).collect(engine="streaming")["model"].drop_nulls())
    if other is not None and models and other not in models:
        raise UnknownName("model", other, models, f"The table has {', '.join(models)}.")
    pairs = [(one, two) for one, two in permutations(models, 2) if other in (None, two)]
    found = [_difference(slim, where, one, two) for one, two in pairs] or [_difference(slim, where, "", "")]
    return answer_frame(
        pl.concat(found), ["model", *where], "value", "n", "low", "high", "share", then=["other"]
    )


def _difference(rows: pl.LazyFrame, where: list[str], one: str, two: str) -> pl.DataFrame:
    mine, theirs = (rows.filter(pl.col("model") == name) for name in (one, two))
    right = theirs.select("run_id", "image_id", theirs=pl.col("correct").cast(pl.Float64))
    both = mine.join(right, on=["run_id", "image_id"], nulls_equal=True).with_columns(other=pl.lit(two))
    apart = pl.col("correct").cast(pl.Float64) - pl.col("theirs")
    sums = over_samples(both, ["model", "other", *where], value=apart, share=apart.abs())
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("share"), pl.col("n"))
    return sums.with_columns(**bounds).collect(engine="streaming")


# Ranks of models, where the data can separate them.


@add_metric
def rank(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Rank of each model: 1 + the number of models that are better beyond one standard error on either side.

    A model is better when the low end of its accuracy ± ``sigma``, sigma = sqrt(p (1 - p) / n),
    lies above the high end of the other's; overlapping models share a rank. Models are compared
    within the other columns of ``by``; ``model`` is added where it is left out. By shift and
    severity, every shift starts with the clean images at severity 0.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    keys = wanted if "model" in wanted else [*wanted, "model"]
    curves = with_clean(table) if {"shift", "severity"} <= set(keys) else table
    seen = accuracy(curves, keys).lazy().filter(pl.col("n") > 0).rename({"value": "accuracy"})
    p = pl.col("accuracy")
    placed = seen.with_columns(sigma=(p * (1 - p) / pl.col("n")).sqrt()).with_row_index("me")
    field = [key for key in keys if key != "model"]
    rivals = placed.select(*field, rival_low=p - pl.col("sigma"))
    met = placed.join(rivals, on=field, nulls_equal=True) if field else placed.join(rivals, how="cross")
    better = (pl.col("rival_low") > p + pl.col("sigma")).sum().cast(pl.Int64)
    places = placed.join(met.group_by("me").agg(value=1 + better), on="me")
    return answer_frame(places, keys, "value", "n", "accuracy", "sigma")


# Model facts are numbers about models that the table does not hold: parameters, accuracy elsewhere. The
# user supplies them.


# A CSV file with a column ``model`` and one column per fact, the same as a frame, or a mapping from
# model to its facts.
ModelFacts = str | Path | pl.DataFrame | Mapping[str, Mapping[str, object]]


def read_model_facts(facts: ModelFacts, *wanted: str) -> pl.DataFrame:
    """Return one row per model, with ``model`` and the ``expected`` facts as numbers."""
    frame = _read(facts)
    for name in ("model", *wanted):
        if name not in frame.columns:
            raise UnknownName("fact", name, frame.columns, f"The facts are {', '.join(frame.columns)}.")
    if frame["model"].is_duplicated().any():
        twice = frame.filter(pl.col("model").is_duplicated())["model"][0]
        raise SoritesError(f"facts: the model {twice!r} stands twice")
    numbers = frame.select("model", *(as_numbers(frame[name], f"facts, column {name}") for name in wanted))
    for name in wanted:
        lost = frame.filter(frame[name].is_not_null() & numbers[name].is_null())
        if lost.height:
            raise SoritesError(
                f"facts: expected a number for {name} of {lost['model'][0]!r}, got {lost[name][0]!r}"
            )
    return numbers


def _read(facts: ModelFacts) -> pl.DataFrame:
    if isinstance(facts, pl.DataFrame):
        return facts
    if isinstance(facts, Mapping):
        return pl.DataFrame([{"model": model, **values} for model, values in facts.items()])
    return csv(path_of(facts), "facts as a CSV file with the column model", infer_schema=True)


# Accuracy on the line: how accuracy under shift follows accuracy without it over models, and what a model
# gains beyond that.


Array = NDArray[np.float64]
Numbers = dict[str, float | int | None]


@add_metric
def on_the_line(
    table: Table,
    by: Sequence[str] = ("shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Least-squares line of accuracy under shift on accuracy without: slope with its 95 % interval,
    ``intercept``, ``r``, ``p``.

    ``n`` counts models; ``p`` tests the slope against 0 (t with n - 2 degrees of freedom).
    ``baseline`` names the model fact that holds accuracy without shift (a fraction); severity 0 is
    then fitted too. The numbers are null where there are too few models or they do not differ.
    """
    points, keys = _points(table, by, facts, baseline)
    return _grouped(
        points, keys, lambda x, y, _: fit(x, y), ("value", "n", "low", "high", "intercept", "r", "p")
    )


@add_metric
def line_gain(
    table: Table,
    by: Sequence[str] = ("model", "shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Accuracy of a model minus that of the line at its accuracy without shift, its gain over the
    line; ``n`` counts samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    points, keys = _points(table, [key for key in wanted if key != "model"], facts, baseline)
    lines = _grouped(points, keys, lambda x, y, _: fit(x, y), ("value", "n", "intercept")).rename(
        {"value": "slope", "n": "models"}
    )
    joined = points.join(lines, on=keys, nulls_equal=True) if keys else points.join(lines, how="cross")
    expected = pl.col("intercept") + pl.col("slope") * pl.col("start")
    gains = joined.with_columns(expected=expected, accuracy=pl.col("y")).with_columns(
        value=pl.col("y") - pl.col("expected")
    )
    columns = wanted if "model" in wanted else [*wanted, "model"]
    return answer_frame(gains, columns, "value", "n", "accuracy", "expected", "models")


@add_metric
def partial_correlation(
    table: Table,
    by: Sequence[str] = ("shift", "severity"),
    facts: ModelFacts | None = None,
    fact: str = "parameters",
    baseline: str | None = None,
) -> pl.DataFrame:
    """Correlation over models of a ``fact`` and accuracy under shift, controlling for accuracy
    without shift; ``p`` against 0.

    ``facts`` is a CSV file with the column ``model`` and one column per fact. ``plain`` is the
    correlation without the control; ``n`` counts models. The interval is Fisher's, null below five
    models.
    """
    points, keys = _points(table, by, facts, baseline, fact)
    return _grouped(
        points, keys, lambda x, y, z: partial(z, y, x), ("value", "n", "low", "high", "plain", "p")
    )


def fit(x: Array, y: Array) -> Numbers:
    """Fit a line through points: slope (``value``) with its interval, intercept, Pearson's r and p."""
    n, nothing = len(x), dict.fromkeys(("value", "low", "high", "intercept", "r", "p"))
    across, up = x - x.mean() if n else x, y - y.mean() if n else y
    if n < 2 or not (sxx := float(across @ across)) > 1e-18:
        return {"n": n, **nothing}
    sxy, syy = float(across @ up), float(up @ up)
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
    reach = float(stdtrit(n - 2, 0.975)) * error
    p = 2 * float(stdtr(n - 2, -abs(slope) / error)) if error > 0 else 0.0
    return {**line, "low": slope - reach, "high": slope + reach, "p": p if r is not None else 1.0}


def partial(a: Array, b: Array, given: Array) -> Numbers:
    """Return Pearson's correlation of ``a`` and ``b`` after regressing both on ``given``, and their
    plain correlation.
    """
    n, plain = len(a), _pearson(a, b)
    nothing: Numbers = {"n": n, "plain": plain, **dict.fromkeys(("value", "low", "high", "p"))}
    rest = [_pearson(*pair) for pair in ((a, given), (b, given))]
    if (
        plain is None
        or n < 4
        or rest[0] is None
        or rest[1] is None
        or max(map(abs, (rest[0], rest[1]))) > 1 - 1e-12
    ):
        return nothing
    from scipy.special import stdtr

    value = float(
        np.clip((plain - rest[0] * rest[1]) / np.sqrt((1 - rest[0] ** 2) * (1 - rest[1] ** 2)), -1, 1)
    )
    freedom = n - 3
    with np.errstate(divide="ignore"):
        t = abs(value) * np.sqrt(freedom / np.float64(max(1 - value**2, 0.0)))
        middle = np.arctanh(value)
    found: Numbers = {**nothing, "value": value, "p": 2 * float(stdtr(freedom, -t))}
    if n < 5:
        return found
    reach = Z / np.sqrt(n - 4)
    return {**found, "low": float(np.tanh(middle - reach)), "high": float(np.tanh(middle + reach))}


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
    ``fact``, ``n`` samples.
    """
    keys = [by] if isinstance(by, str) else list(by)
    if "model" in keys:
        raise SoritesError("the points of the line are models: leave model out of by")
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
    """Return one fact per model; facts that name no model of the table are an error."""
    if facts is None and points.height:
        raise SoritesError(
            f"{name} is a fact of models: give facts=FILE, a CSV with the columns model and {name}"
        )
    empty = pl.DataFrame(schema={"model": pl.String, name: pl.Float64})
    found = empty if facts is None else read_model_facts(facts, name)
    if points.height and not points.join(found, on="model").height:
        raise SoritesError(f"the facts name none of the table's models, such as {points['model'][0]!r}")
    return found


def _grouped(
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
