"""Half-accuracy severity: the severity at which accuracy is half-way between clean accuracy and chance.

Chance is the accuracy of a model that guesses: the mean over samples of the number of accepted classes,
divided by the number of classes that the model can answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import CLASSES, Table
from sorites.metrics.intervals import checked_resamples, cluster_bootstrap, share
from sorites.metrics.rows import (
    CLEAN_KEY,
    IMAGE_COLUMNS,
    REAL_SAMPLES,
    SAMPLE_HASH,
    SHIFTED,
    answer_frame,
    judged_rows,
    select_rows,
)

Array = NDArray[np.float64]
# Temporary columns: the chance of a row, and whether its number of classes is assumed.
CHANCE, ASSUMED = "(chance)", "(assumed)"
# Outcomes: the severity was found; accuracy stays above; clean accuracy is not clearly above chance; there
# are no clean images.
REACHED, BEYOND, UNDEFINED, NO_CLEAN = "reached", "beyond", "undefined", "no clean images"
Row = dict[str, Any]


@add_metric
def half_accuracy_severity(
    table: Table,
    by: Sequence[str] = ("model", "shift"),
    resamples: int = 1000,
    chance: float | None = None,
) -> pl.DataFrame:
    """Severity at which accuracy, interpolated linearly from the clean images on, first falls half-way from
    clean accuracy to chance.

    Unlike ``failure_severity`` it ignores images that are misclassified when clean. ``n`` counts samples,
    ``clean`` is their clean accuracy and ``chance`` that of a guess: the mean of accepted classes / classes
    that the model can answer, or the argument ``chance``. ``assumed`` is true where the number of classes
    is not recorded: it is then the number of classes seen in the table, and chance is 0 where fewer than
    two are seen. ``majority`` is the share of the most frequent class where it is larger than chance.
    ``status`` is "reached"; "beyond" where accuracy stays above half-way up to the highest severity;
    "undefined" where the 95 % interval of clean accuracy contains chance; or "no clean images". The value
    is null unless it is reached. The interval is a percentile bootstrap over samples; bounds above the
    highest severity are null.
    """
    checked_resamples(resamples, or_none=False)
    if chance is not None and not 0 <= chance < 1:
        raise SoritesError(f"chance must be in [0, 1), got {chance:g}")
    rows, keys = select_rows(table, by, IMAGE_COLUMNS)
    if "shift" not in keys:
        raise SoritesError("severities of different shifts have different units: add shift to by")
    schema = {name: rows.collect_schema()[name] for name in keys} | _ANSWER
    records = [
        {**dict(zip(keys, key, strict=True)), **_half(group, resamples)}
        for key, group in _groups(table.lazy(), keys, chance)
    ]
    return answer_frame(pl.DataFrame(records, schema=schema), keys, *_ANSWER)


_ANSWER: dict[str, pl.DataType | type[pl.DataType]] = {
    "value": pl.Float64,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "clean": pl.Float64,
    "chance": pl.Float64,
    "majority": pl.Float64,
    "assumed": pl.Boolean,
    "status": pl.String,
}


# Chance.


def with_chance(table: Table, chance: float | None = None) -> pl.LazyFrame:
    """Return the table with the chance of each row, and whether its number of classes is assumed.

    Args:
        table: The table.
        chance: The chance of every row, in place of that computed from the classes.
    """
    lazy = table.lazy()
    return lazy.with_columns(_chance(lazy, None if chance is not None else _classes_seen(lazy), chance))


def _chance(lazy: pl.LazyFrame, seen: pl.DataFrame | None, chance: float | None) -> list[pl.Expr]:
    """Return the columns of ``with_chance``; ``seen`` is the answer of ``_classes_seen`` for these models."""
    if seen is None:
        return [pl.lit(chance, pl.Float64).alias(CHANCE), pl.lit(False).alias(ASSUMED)]
    recorded = _recorded(lazy)
    # One model has one number, which need not be looked up for every row.
    of_model = (
        pl.lit(seen["(seen)"].item(), pl.Int32)
        if seen.height == 1
        else pl.col("model").replace_strict(
            seen["model"], seen["(seen)"], default=None, return_dtype=pl.Int32
        )
    )
    classes = pl.coalesce(recorded, of_model)
    accepted = pl.col("accept").list.len().fill_null(1).clip(1)
    guess = pl.when(classes > 1).then(pl.min_horizontal(accepted / classes, 1.0)).otherwise(0.0)
    return [guess.alias(CHANCE), recorded.is_null().alias(ASSUMED)]


def _recorded(lazy: pl.LazyFrame) -> pl.Expr:
    return pl.col(CLASSES) if CLASSES in lazy.collect_schema() else pl.lit(None, pl.Int32)


def _classes_seen(rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the number of classes that occur as label, accepted class or prediction of each model, in the
    rows that do not record it.
    """
    labels = rows.filter(_recorded(rows).is_null(), pl.col("output") == "label")
    named = labels.group_by("model").agg(pl.col("label", "pred").unique())
    # Most rows accept their label only, which is counted already.
    more = (pl.col("accept").list.len() != 1) | pl.col("accept").list.first().ne_missing(pl.col("label"))
    accepted = labels.filter(more).select("model", pl.col("accept").alias("class")).explode("class")
    found, others = (frame.collect(engine="streaming") for frame in (named, accepted.unique()))
    own = [found.select("model", pl.col(name).alias("class")).explode("class") for name in ("label", "pred")]
    classes = pl.concat([*own, others]).drop_nulls("class")
    return classes.group_by("model").agg(pl.col("class").n_unique().alias("(seen)"))


# The curve of each group, and where it comes down.


def _groups(
    table: pl.LazyFrame, keys: list[str], chance: float | None
) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Yield the outcomes of each group, and those of its samples' clean images at severity 0.

    One model at a time is read, to limit memory.
    """
    models = table.select(pl.col("model").unique().sort()).collect(engine="streaming")["model"]
    parts = [(model, pl.col("model").eq_missing(pl.lit(model, pl.String))) for model in models]
    others = [key for key in keys if key != "model"]
    classes = None if chance is not None else _classes_seen(table)
    for model, part in parts if "model" in keys else [(None, pl.lit(True))]:
        seen = None if classes is None else classes.filter(part)
        rows, _ = select_rows(table.filter(part).with_columns(_chance(table, seen, chance)), keys)
        judged = judged_rows(rows).filter(REAL_SAMPLES)
        clean = pl.col("shift") == CLEAN
        outcomes = judged.filter(clean | SHIFTED).select(*others, *_OUTCOME).collect(engine="streaming")
        starts = outcomes.filter(clean).select(name.meta.output_name() for name in _OUTCOME)
        starts = starts.with_columns(pl.lit(0.0).alias("(severity)"))
        shifted = outcomes.filter(~clean)
        del outcomes
        groups = shifted.partition_by(others, as_dict=True, include_key=False)
        del shifted
        while groups:
            key, group = groups.popitem()
            own = starts.join(group.select("(start)").unique(), on="(start)", how="semi")
            named = dict(zip(others, key, strict=True)) | {"model": model}
            yield tuple(named[name] for name in keys), pl.concat([group, own])


_OUTCOME = (
    SAMPLE_HASH.alias("(sample)"),
    pl.struct(CLEAN_KEY).hash().alias("(start)"),
    pl.col(CHANCE),
    pl.col(ASSUMED),
    pl.col("label").alias("(label)"),
    pl.col("severity").alias("(severity)"),
    pl.col("correct").alias("(correct)"),
)


def _half(group: pl.DataFrame, resamples: int) -> Row:
    """Return the answer for one group from the outcomes of its samples."""
    severities = group["(severity)"].unique().sort().to_numpy()
    right, chances, labels = _matrix(group, severities)
    seen = np.isfinite(right)
    n, chance = len(right), float(chances.mean())
    majority = _majority(labels)
    answer: Row = dict.fromkeys(("value", "low", "high", "clean", "majority")) | {
        "n": n,
        "chance": round(chance, 12),
        "majority": majority if majority is not None and majority > chance + 1e-12 else None,
        "assumed": bool(group[ASSUMED].any()),
        "status": NO_CLEAN,
    }
    if severities[0] != 0:
        return answer
    started = int(seen[:, 0].sum())
    clean = float(np.nanmean(right[:, 0]))
    low, _ = share(clean, started)
    if low is None or low <= chance:
        return {**answer, "clean": clean, "status": UNDEFINED}
    sums = _sums(right, chances)
    value = float(_crossings(sums.sum(axis=0, keepdims=True), severities)[0])
    low, high = cluster_bootstrap(sums, lambda drawn: _crossings(drawn, severities), resamples)
    ends = {"value": value, "low": min(low, value), "high": max(high, value)}
    found = {name: end if np.isfinite(end) else None for name, end in ends.items()}
    return {**answer, **found, "clean": clean, "status": REACHED if np.isfinite(value) else BEYOND}


def _matrix(group: pl.DataFrame, severities: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """Return outcomes (samples x severities, NaN: missing), and chance and label (-1: none) of samples."""
    names, sample = np.unique(group["(sample)"].to_numpy(), return_inverse=True)
    shape = (len(names), len(severities))
    cell = sample * shape[1] + np.searchsorted(severities, group["(severity)"].to_numpy())
    seen = np.bincount(cell, minlength=shape[0] * shape[1])
    right = np.bincount(cell, group["(correct)"].to_numpy(), len(seen))
    outcomes = np.where(seen > 0, right / np.maximum(seen, 1), np.nan).reshape(shape)
    chances = np.bincount(sample, group[CHANCE].to_numpy()) / np.bincount(sample)
    labels = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(labels, sample, group["(label)"].fill_null(-1).to_numpy().astype(np.int64))
    return outcomes, chances, labels


def _majority(labels: NDArray[np.int64]) -> float | None:
    """Return the share of the most frequent label; None where labels are missing or all the same."""
    known, counts = np.unique(labels, return_counts=True)
    return float(counts.max() / counts.sum()) if len(known) > 1 and known[0] >= 0 else None


def _sums(right: Array, chances: Array) -> Array:
    """Return what is summed over samples: outcomes and judgements at each severity, chance, and 1."""
    seen = np.isfinite(right)
    return np.column_stack([np.where(seen, right, 0.0), seen, chances, np.ones(len(right))])


def _crossings(sums: Array, severities: Array) -> Array:
    k = len(severities)
    return crossing(sums[:, :k], sums[:, k : 2 * k], severities, sums[:, -2] / sums[:, -1])


def crossing(right: Array, seen: Array, severities: Array, chance: Array | float = 0.0) -> Array:
    """Return where each row's curve (``right / seen``) first falls half-way from its start to chance.

    Args:
        right: Correct outcomes, rows x severities.
        seen: Judged outcomes, rows x severities.
        severities: The severities in rising order; the first is that of the clean images.
        chance: The accuracy of a guess, one for all rows or one for each.

    Returns:
        One severity per row: infinity where the curve stays above, and the first severity where it does not
            start above chance.
    """
    floor = np.broadcast_to(np.asarray(chance, np.float64), len(right))
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = right / seen
        level = (curve[:, 0] + floor) / 2
        # Equal accuracies may differ in the last digit.
        low = curve <= level[:, None] + 1e-12
        low[:, 0] = False
        first = np.where(low.any(axis=1), low.argmax(axis=1), 0)
        rows = np.arange(len(curve))
        above, below = curve[rows, first - 1], curve[rows, first]
        part = np.nan_to_num((above - level) / (above - below))
    at = severities[first - 1] + np.clip(part, 0, 1) * (severities[first] - severities[first - 1])
    found = np.where(first > 0, at, np.inf)
    return np.where(curve[:, 0] <= floor + 1e-12, severities[0], found)
