"""Accuracy on the line: accuracy under shift as a linear function of accuracy without shift, over models.

Both accuracies are measured on the same images, with errors. The line is corrected for them (errors in
variables, Fuller 1987, section 1.2), and its interval is over models and over samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.io.paths import path_of
from sorites.io.tables import as_numbers, csv
from sorites.metrics.accuracy import sample_contributions
from sorites.metrics.intervals import Z, t_quantile
from sorites.metrics.rows import SAMPLE, answer_frame, judged_rows, select_rows, with_clean

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


Array = NDArray[np.float64]
Numbers = dict[str, float | int | None]


@add_metric
def on_the_line(
    table: Table,
    by: Sequence[str] = ("shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Line of accuracy under shift on accuracy without shift: slope with its 95 % interval, ``intercept``,
    ``r``, ``p``.

    Accuracies are averaged as in ``mean_accuracy``. Their sampling errors would make a least-squares line too
    flat; it is corrected by the errors that the samples show. The interval is Student's (n - 2 degrees of
    freedom) with a variance over models and over samples, which the models share. ``n`` counts models, ``p``
    tests the slope against 0, and ``r`` is the correlation of the measured accuracies. ``baseline``
    names the model fact with the accuracy without shift (a fraction, taken as exact); severity 0 is then
    fitted too. The numbers are null where there are too few models or their accuracies do not differ by
    more than their errors.
    """
    points = _points(table, by, facts, baseline)
    return _estimate_groups(
        points,
        lambda group: fit(group.x, group.y, group.errors()),
        ("value", "n", "low", "high", "intercept", "r", "p"),
    )


@add_metric
def line_gain(
    table: Table,
    by: Sequence[str] = ("model", "shift", "severity"),
    facts: ModelFacts | None = None,
    baseline: str | None = None,
) -> pl.DataFrame:
    """Accuracy of a model minus the prediction of ``on_the_line`` from its accuracy without shift; ``n``
    counts samples.
    """
    columns_by = [by] if isinstance(by, str) else list(by)
    points = _points(table, [key for key in columns_by if key != "model"], facts, baseline)
    keys = points.keys
    lines = _estimate_groups(
        points, lambda group: fit(group.x, group.y, group.errors()), ("value", "n", "intercept")
    ).rename({"value": "slope", "n": "models"})
    joined = (
        points.frame.join(lines, on=keys, nulls_equal=True) if keys else points.frame.join(lines, how="cross")
    )
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
    points = _points(table, by, facts, baseline, fact)
    return _estimate_groups(
        points,
        lambda group: partial(group.fact, group.y, group.x),
        ("value", "n", "low", "high", "plain", "p"),
    )


def fit(x: Array, y: Array, errors: tuple[Array, Array] | None = None) -> Numbers:
    """Fit a line through points; return its slope (``value``) with interval, intercept, Pearson's r and p.

    Args:
        x: The accuracy of each model without shift.
        y: Its accuracy under shift.
        errors: The influence of each sample on x and on y (samples x models); None: the points are exact,
            and the line is that of least squares with Student's interval.
    """
    n, nothing = len(x), dict.fromkeys(("value", "low", "high", "intercept", "r", "p"))
    if n < 2:
        return {"n": n, **nothing}
    dx, dy = x - x.mean(), y - y.mean()
    # Errors that all models share move the line, but do not turn it.
    ex, ey = (part - part.mean(axis=1, keepdims=True) for part in errors or (np.zeros((1, n)),) * 2)
    few = len(ex) / max(len(ex) - 1, 1)
    noise, noise_xy = few * float((ex * ex).sum()), few * float((ex * ey).sum())
    sxx, sxy = float(dx @ dx) - noise, float(dx @ dy) - noise_xy
    if not sxx > max(noise, 1e-18):
        return {"n": n, **nothing}
    slope = sxy / sxx
    line: Numbers = {
        "n": n,
        **nothing,
        "value": slope,
        "intercept": float(y.mean() - slope * x.mean()),
        "r": _pearson(x, y),
    }
    if n < 3:
        return line
    from scipy.special import stdtr

    rest = dy - slope * dx
    of_models = float(rest @ rest) / (n - 2) * float(dx @ dx) + (noise_xy - slope * noise) ** 2 / (n - 1)
    # Two-way clusters (Cameron, Gelbach & Miller 2011): models + samples - the errors counted by both.
    cells = dx * (ey - slope * ex) + rest * ex
    of_samples, both = few * float((cells.sum(axis=1) ** 2).sum()), few * float((cells**2).sum())
    error = np.sqrt(max(of_models + of_samples - both, of_models, of_samples)) / sxx
    half_width = t_quantile(n - 2) * error
    p = 2 * float(stdtr(n - 2, -abs(slope) / error)) if error > 0 else 0.0
    flat = line["r"] is None
    return {**line, "low": slope - half_width, "high": slope + half_width, "p": 1.0 if flat else p}


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


@dataclass(frozen=True)
class _Group:
    """The models of one group: accuracies without (``x``) and under shift (``y``), and the ``fact``."""

    x: Array
    y: Array
    fact: Array
    errors: Callable[[], tuple[Array, Array]]
    """Returns the influence of each sample on x and y (samples x models)."""


@dataclass(frozen=True)
class _Points:
    """One row per group and model in ``frame``: accuracy under shift (``y``) and without (``start``), the
    ``fact``, and ``n``; and the influence of each sample on both accuracies.
    """

    frame: pl.DataFrame
    keys: list[str]
    shifted: _Parts
    clean: _Parts | None

    def group(self, rows: pl.DataFrame) -> _Group:
        """Return the models of one group."""
        ordered = rows.sort("model")
        x, y, fact = (ordered[name].to_numpy().astype(np.float64) for name in ("start", "y", "fact"))
        return _Group(x, y, fact, lambda: self._errors(ordered))

    def _errors(self, rows: pl.DataFrame) -> tuple[Array, Array]:
        frames = [None if side is None else side.of_models(rows) for side in (self.clean, self.shifted)]
        samples = np.unique(np.concatenate([side[SAMPLE].to_numpy() for side in frames if side is not None]))
        errors = np.zeros((2, len(samples), len(rows)))
        for error, side in zip(errors, frames, strict=True):
            if side is not None:
                error[np.searchsorted(samples, side[SAMPLE].to_numpy()), side["(model)"].to_numpy()] = side[
                    "(influence)"
                ].to_numpy()
        return errors[0], errors[1]


@dataclass(frozen=True)
class _Parts:
    """The influence of each sample on the accuracy of each model, in parts by the columns ``keys``."""

    keys: list[str]
    frames: Mapping[str, pl.DataFrame]
    """The parts by the text of their keys, which may be lists."""

    @staticmethod
    def of(contributions: pl.DataFrame, keys: list[str]) -> _Parts:
        slim = contributions.drop("value")
        parts = slim.partition_by(keys, maintain_order=True) if keys else [slim]
        return _Parts(keys, {_key(part, keys): part for part in parts})

    def of_models(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the influences of one group, with the number of the row of their model."""
        models = rows.select("model").with_row_index("(model)")
        return self.frames[_key(rows, self.keys)].join(models, on="model")


def _key(rows: pl.DataFrame, keys: list[str]) -> str:
    return repr(rows.select(keys).row(0) if keys else ())


def _contributions(table: Table, keys: list[str], chosen: pl.Expr) -> pl.DataFrame:
    rows, _ = select_rows(table, keys)
    outcomes = judged_rows(rows).filter(chosen)
    by_sample = sample_contributions(outcomes, keys, value=pl.col("correct").cast(pl.Float64))
    return by_sample.select(*keys, SAMPLE, "(influence)", "value").collect(engine="streaming")


def _points(
    table: Table, by: Sequence[str], facts: ModelFacts | None, baseline: str | None, fact: str | None = None
) -> _Points:
    keys = [by] if isinstance(by, str) else list(by)
    if "model" in keys:
        raise SoritesError("models are the points of the line: remove model from by")
    rows = with_clean(table) if baseline and "severity" in keys else table
    shifted, clean = _contributions(rows, [*keys, "model"], pl.col("shift") != CLEAN), None
    mean = pl.col("value").sum().round(12)
    points = shifted.group_by(*keys, "model").agg(n=pl.len().cast(pl.Int64), y=mean).sort("model")
    # Of the same samples: the clean images of another source would be another baseline.
    shared = ["model", *(key for key in keys if key in ("run_id", "source", "split"))]
    if baseline is None:
        clean = _contributions(table, shared, pl.col("shift") == CLEAN)
        points = points.join(clean.group_by(shared).agg(start=mean), on=shared, nulls_equal=True)
    for column, name in (("start", baseline), ("fact", fact)):
        if name is not None:
            points = points.join(_model_fact(facts, name, points).rename({name: column}), on="model")
    filled = points.with_columns(fact=pl.lit(0.0) if fact is None else "fact")
    complete = filled.drop_nulls(["start", "fact"]).sort(*keys, "model")
    starts = None if clean is None else _Parts.of(clean, shared[1:])
    return _Points(complete, keys, _Parts.of(shifted, keys), starts)


def _model_fact(facts: ModelFacts | None, name: str, points: pl.DataFrame) -> pl.DataFrame:
    """Return one fact per model; raise an error if the facts name no model of the table."""
    if facts is None and points.height:
        raise SoritesError(
            f"{name} is a model fact: pass {parameter('facts', 'FILE')}, a CSV file with the columns model"
            f" and {name}"
        )
    empty = pl.DataFrame(schema={"model": pl.String, name: pl.Float64})
    values = empty if facts is None else read_model_facts(facts, name)
    if points.height and not points.join(values, on="model").height:
        raise SoritesError(f"the facts contain none of the table's models, such as {points['model'][0]!r}")
    return values


def _estimate_groups(
    points: _Points, estimate: Callable[[_Group], Numbers], columns: Sequence[str]
) -> pl.DataFrame:
    """Return the estimate over the models of each group."""
    rows: list[dict[str, object]] = []
    frame, keys = points.frame, points.keys
    for group in frame.partition_by(keys, maintain_order=True) if keys else [frame] if frame.height else []:
        key = group.select(keys).row(0, named=True) if keys else {}
        rows.append({**key, **estimate(points.group(group))})
    kinds = {name: pl.Int64 if name == "n" else pl.Float64 for name in columns}
    return answer_frame(
        pl.DataFrame(rows, schema={**{k: frame.schema[k] for k in keys}, **kinds}), keys, *columns
    )
