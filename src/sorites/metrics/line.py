"""Accuracy on the line: how accuracy under shift follows accuracy without it over models, and what a model gains beyond that.

Miller et al., "Accuracy on the Line", ICML 2021; Dünkel et al., "CNS-Bench", ICCV 2025, section F. The points are models;
their accuracy without shift is that on the clean pictures of the run, or any model fact the user supplies (``baseline``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.errors import SoritesError
from sorites.metrics._intervals import Z
from sorites.metrics._model_facts import ModelFacts, read_model_facts
from sorites.metrics._rows import answer_frame, with_clean
from sorites.metrics.accuracy import accuracy, mean_accuracy
from sorites.table import Table

Array = NDArray[np.float64]
Numbers = dict[str, float | int | None]


@add_metric
def on_the_line(
    table: Table, by: Sequence[str] = ("shift", "severity"), facts: ModelFacts | None = None, baseline: str | None = None
) -> pl.DataFrame:
    """Least-squares line of accuracy under shift on accuracy without: slope with its 95 % interval, ``intercept``, ``r``, ``p``.

    ``n`` counts models; ``p`` tests the slope against 0 (t with n - 2 degrees of freedom). ``baseline`` names the model fact that
    holds accuracy without shift (a fraction); severity 0 is then fitted too. The numbers are null where there are too few models
    or they do not differ.
    """
    points, keys = _points(table, by, facts, baseline)
    return _grouped(points, keys, lambda x, y, _: fit(x, y), ("value", "n", "low", "high", "intercept", "r", "p"))


@add_metric
def line_gain(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), facts: ModelFacts | None = None, baseline: str | None = None
) -> pl.DataFrame:
    """Accuracy of a model minus that of the line at its accuracy without shift, its gain over the line; ``n`` counts samples."""
    wanted = [by] if isinstance(by, str) else list(by)
    points, keys = _points(table, [key for key in wanted if key != "model"], facts, baseline)
    lines = _grouped(points, keys, lambda x, y, _: fit(x, y), ("value", "n", "intercept")).rename(
        {"value": "slope", "n": "models"}
    )
    joined = points.join(lines, on=keys, nulls_equal=True) if keys else points.join(lines, how="cross")
    expected = pl.col("intercept") + pl.col("slope") * pl.col("start")
    gains = joined.with_columns(expected=expected, accuracy=pl.col("y")).with_columns(value=pl.col("y") - pl.col("expected"))
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
    """Correlation over models of a ``fact`` and accuracy under shift, controlling for accuracy without shift; ``p`` against 0.

    ``facts`` is a CSV file with the column ``model`` and one column per fact. ``plain`` is the correlation without the control;
    ``n`` counts models. The interval is Fisher's, null below five models.
    """
    points, keys = _points(table, by, facts, baseline, fact)
    return _grouped(points, keys, lambda x, y, z: partial(z, y, x), ("value", "n", "low", "high", "plain", "p"))


def fit(x: Array, y: Array) -> Numbers:
    """Fit a line through points: slope (``value``) with its interval, intercept, Pearson's r and p."""
    n, nothing = len(x), dict.fromkeys(("value", "low", "high", "intercept", "r", "p"))
    across, up = x - x.mean() if n else x, y - y.mean() if n else y
    if n < 2 or not (sxx := float(across @ across)) > 1e-18:
        return {"n": n, **nothing}
    sxy, syy = float(across @ up), float(up @ up)
    slope, r = sxy / sxx, sxy / np.sqrt(sxx * syy) if syy > 1e-18 else None
    line: Numbers = {"n": n, **nothing, "value": slope, "intercept": float(y.mean() - slope * x.mean()), "r": r}
    if n < 3:
        return line
    from scipy.special import stdtr, stdtrit

    error = np.sqrt(max(syy - slope * sxy, 0.0) / (n - 2) / sxx)
    reach = float(stdtrit(n - 2, 0.975)) * error
    p = 2 * float(stdtr(n - 2, -abs(slope) / error)) if error > 0 else 0.0
    return {**line, "low": slope - reach, "high": slope + reach, "p": p if r is not None else 1.0}


def partial(a: Array, b: Array, given: Array) -> Numbers:
    """Return Pearson's correlation of ``a`` and ``b`` after regressing both on ``given``, and their plain correlation."""
    n, plain = len(a), _pearson(a, b)
    nothing: Numbers = {"n": n, "plain": plain, **dict.fromkeys(("value", "low", "high", "p"))}
    rest = [_pearson(*pair) for pair in ((a, given), (b, given))]
    if plain is None or n < 4 or rest[0] is None or rest[1] is None or max(map(abs, (rest[0], rest[1]))) > 1 - 1e-12:
        return nothing
    from scipy.special import stdtr

    value = float(np.clip((plain - rest[0] * rest[1]) / np.sqrt((1 - rest[0] ** 2) * (1 - rest[1] ** 2)), -1, 1))
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
    """Return one row per group and model: accuracy under shift (``y``) and without (``start``), the ``fact``, ``n`` samples."""
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
    return points.with_columns(fact=pl.lit(0.0) if fact is None else "fact").drop_nulls(["start", "fact"]), keys


def _model_fact(facts: ModelFacts | None, name: str, points: pl.DataFrame) -> pl.DataFrame:
    """Return one fact per model; facts that name no model of the table are an error."""
    if facts is None and points.height:
        raise SoritesError(f"{name} is a fact of models: give facts=FILE, a CSV with the columns model and {name}")
    empty = pl.DataFrame(schema={"model": pl.String, name: pl.Float64})
    found = empty if facts is None else read_model_facts(facts, name)
    if points.height and not points.join(found, on="model").height:
        raise SoritesError(f"the facts name none of the table's models, such as {points['model'][0]!r}")
    return found


def _grouped(
    points: pl.DataFrame, keys: list[str], estimate: Callable[[Array, Array, Array], Numbers], columns: Sequence[str]
) -> pl.DataFrame:
    """Return ``estimate(start, y, fact)`` over the models of each group."""
    rows: list[dict[str, object]] = []
    for group in points.partition_by(keys, maintain_order=True) if keys else [points] if points.height else []:
        ordered = group.sort("model")
        x, y, z = (ordered[name].to_numpy().astype(np.float64) for name in ("start", "y", "fact"))
        rows.append({**(ordered.select(keys).row(0, named=True) if keys else {}), **estimate(x, y, z)})
    kinds = {name: pl.Int64 if name == "n" else pl.Float64 for name in columns}
    return answer_frame(pl.DataFrame(rows, schema={**{k: points.schema[k] for k in keys}, **kinds}), keys, *columns)
