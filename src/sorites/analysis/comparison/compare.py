"""Compare two models on the same images, shift by shift (``sorites.compare``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.analysis.comparison.pairs import (
    ALL,
    Curves,
    Matrix,
    Side,
    curves,
    matrix,
    paired,
    refuse_unlike,
    shifts_of,
    side,
    together,
)
from sorites.analysis.comparison.statistics import Flips, detectable_mean, flips, holm, mcnemar_mid
from sorites.analysis.passport.battery import run_folders
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.analysis.passport.document import read_passport
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.metrics import paired_difference
from sorites.metrics.failure import crossing

# --- Images that only one of the models was evaluated on: errors, and images excluded by a filter


REMEDIES = {
    "error": "Fix the cause and repeat the run's command",
    "aside": "Filter both runs with the same settings",
}


def refuse_one_sided(base: Side, new: Side, shared: bool) -> list[str]:
    """Refuse images that failed, or were filtered out, for one model only; return notes about the rest.

    A model that fails on hard images would otherwise be evaluated on the easy ones alone. ``shared``
    leaves such images out instead.
    """
    return [note for part in base.parts for note in _check_part(part, base, new, shared)]


def _check_part(part: str, base: Side, new: Side, shared: bool) -> list[str]:
    mine, theirs = pl.collect_all([_states(side.rows(part)) for side in (base, new)])
    both = mine.join(theirs, on="image_id", suffix="_new").sort("image_id")
    judged = both.filter(~pl.any_horizontal("error", "aside", "error_new", "aside_new"))
    excluded = [_describe(both.filter(pl.col("error") & pl.col("error_new")), "failed for both models")]
    for kind, remedy in REMEDIES.items():
        one_sided = " and ".join(
            filter(None, (_one_sided(both, kind, base, ""), _one_sided(both, kind, new, "_new")))
        )
        if one_sided and not shared:
            raise SoritesError(
                f"{one_sided}. {remedy}, or pass {option('shared')} to compare the {judged.height} images"
                " evaluated for both models."
            )
        excluded.append(one_sided)
    notes = [f"{reason}; they are left out." for reason in excluded if reason]
    if missing := sorted(set(both["shift"]) - set(judged["shift"])):
        notes.append(f"Not compared, because no image was evaluated for both models: {', '.join(missing)}.")
    return notes


def _one_sided(both: pl.DataFrame, kind: str, side: Side, suffix: str) -> str:
    """Describe the images that failed or were filtered out on this side only."""
    other = "" if suffix else "_new"
    rows = both.filter(pl.col(f"{kind}{suffix}") & ~pl.col(f"{kind}{other}"))
    if kind == "aside":
        return _describe(rows, f"were filtered out only in {side.path}")
    first = next(iter(rows[f"why{suffix}"].drop_nulls()), "")
    return _describe(rows, f"failed only for {side.model} of {side.path} (first error: {first})")


def _describe(rows: pl.DataFrame, what: str) -> str:
    if not rows.height:
        return ""
    if rows.height == 1:
        what = what.replace("were ", "was ", 1)
    return f"{rows.height} {'images' if rows.height > 1 else 'image'} ({shifts_of(rows)}) {what}"


def _states(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return one row per grid image: whether it failed, why, and whether it was filtered out."""
    grid = rows.filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    return grid.group_by("image_id").agg(
        pl.col("shift").first(),
        error=pl.col("error").is_not_null().any(),
        why=pl.col("error").drop_nulls().first(),
        aside=(~pl.col("valid").fill_null(True)).any(),
    )


# --- Failure severities of both models, with a bootstrap that draws the same samples for both


Array = NDArray[np.float64]
BOOTSTRAP_DRAWS = 2_000
SEED = 0
# Upper bound on draws x samples held in memory at a time.
CELLS_PER_BATCH = 1 << 22


@dataclass(frozen=True)
class Points:
    """Failure severities of both models under one shift, in its unit: estimates and bootstrap draws.

    A severity beyond the tested range counts as the greatest tested severity.
    """

    base: float
    new: float
    drawn_base: Array
    drawn_new: Array
    top: float
    n: int


# Takes correctness (samples x severities), bootstrap weights (draws x samples) and severities;
# returns one value per draw.
Measure = Callable[[Array, Array, Array], Array]


def half_accuracy_severity(right: Array, weights: Array, severities: Array) -> Array:
    """Return the severity at which accuracy has fallen to half of clean accuracy; see the metric."""
    observed = np.isfinite(right)
    severity: Array = crossing(weights @ np.where(observed, right, 0.0), weights @ observed, severities)
    return severity


def failure_severity(right: Array, weights: Array, severities: Array) -> Array:
    """Return the median over samples of the least misclassified severity; see the metric.

    Samples misclassified when clean count as 0.
    """
    wrong = np.where(np.isfinite(right), right < 1, False)
    first = np.where(wrong.any(axis=1), severities[wrong.argmax(axis=1)], np.inf)
    order = np.argsort(first, kind="stable")
    counted = np.cumsum(weights[:, order], axis=1)
    total = counted[:, -1:]
    lower, upper = (np.argmax(counted >= rank, axis=1) for rank in ((total + 1) // 2, total // 2 + 1))
    points = first[order]
    return np.asarray((points[lower] + points[upper]) / 2)


MEASURES: Mapping[str, Measure] = {
    "half_accuracy_severity": half_accuracy_severity,
    "failure_severity": failure_severity,
}


def failure_severities(curves: Curves, name: str, draws: int = BOOTSTRAP_DRAWS) -> Points:
    """Return the estimates of both models, with bootstrap draws over their shared samples."""
    measure, n, top = MEASURES[name], len(curves.base), float(curves.severities[-1])
    rng, batch = np.random.default_rng(SEED), max(1, CELLS_PER_BATCH // n)
    once = np.ones((1, n))
    estimates = [
        float(_within(measure(side, once, curves.severities), top)[0]) for side in (curves.base, curves.new)
    ]
    drawn: tuple[list[Array], list[Array]] = ([], [])
    for start in range(0, draws, batch):
        weights = rng.multinomial(n, np.full(n, 1 / n), min(batch, draws - start)).astype(np.float64)
        for values, counts in zip(drawn, (curves.base, curves.new), strict=True):
            values.append(_within(measure(counts, weights, curves.severities), top))
    return Points(estimates[0], estimates[1], np.concatenate(drawn[0]), np.concatenate(drawn[1]), top, n)


def _within(values: Array, top: float) -> Array:
    """Clip to the tested range; NaN (nothing correct when clean) becomes 0."""
    return np.minimum(np.nan_to_num(values, nan=0.0, posinf=top), top)


# Family-wise rate of false alarms between two equal models.
RATE = 0.05
# Stands for the clean images where a metric needs a shift name.
_AS_SHIFT = "(clean)"


@dataclass(frozen=True)
class Comparison:
    """Changes from a base model to a new one, on the images both were evaluated on."""

    base: Side
    new: Side
    names: tuple[str, str]
    notes: tuple[str, ...]
    table: pl.LazyFrame
    pairs: pl.DataFrame
    matrix: Matrix
    rate: float = RATE

    @functools.cached_property
    def places(self) -> tuple[str, ...]:
        """The shifts, clean images first and the mean over all shifts last."""
        moved = [name for name in self.matrix.dials if name != CLEAN]
        return (*self.matrix.dials, ALL) if len(moved) > 1 else self.matrix.dials

    @functools.cached_property
    def flips(self) -> Flips:
        """The joint test of the drops of all shifts; the mean over shifts is not part of the family."""
        base, new = self.matrix.columns(self.matrix.dials)
        return flips(base - new, self.rate)

    @functools.cached_property
    def curves(self) -> Mapping[str, Curves]:
        """Correctness along each shift that has ordered severities."""
        return curves(self.table, *self.names)

    def points(self, measure: str, dial: str) -> Points:
        """Return ``failure_severity`` or ``half_accuracy_severity`` of both models under a shift."""
        return failure_severities(self.curves[dial], measure)

    @functools.cached_property
    def dials(self) -> pl.DataFrame:
        """One row per shift: accuracies, drop and interval, flips, p, Holm's p, and the detectable drop.

        The detectable drop is null where not even a model that is always wrong would be detected.
        """
        drops = _drops(_clean_once(self.table, self.base), *self.names)
        counts = _counts(self.pairs)
        rows = drops.join(counts, on="dial", how="left")
        tests = _tests(self)
        order = {name: i for i, name in enumerate(self.places)}
        joined = rows.join(tests, on="dial").sort(pl.col("dial").replace_strict(order, return_dtype=pl.Int64))
        columns = (
            "dial",
            "n",
            "base",
            "new",
            "drop",
            "low",
            "high",
            "lost",
            "gained",
            "p",
            "p_holm",
            "detectable",
        )
        return joined.select(columns)

    @functools.cached_property
    def settings(self) -> pl.DataFrame:
        """One row per setting: images, accuracies, flips each way, and McNemar's mid-p."""
        keys = ["shift", "severity", "params"]
        each = self.pairs.group_by(keys).agg(
            n=pl.len(), base=pl.col("correct").mean(), new=pl.col("correct_new").mean(), **_SIDES
        )
        p = [mcnemar_mid(lost, gained) for lost, gained in each.select("lost", "gained").iter_rows()]
        return each.with_columns(pl.Series("p", p, pl.Float64)).sort(keys, nulls_last=True)

    @functools.cached_property
    def changed(self) -> pl.DataFrame:
        """The flipped images: for each sample, shift and direction the one of least severity."""
        flipped = self.pairs.filter(pl.col("correct") != pl.col("correct_new")).with_columns(
            lost=pl.col("correct")
        )
        first = flipped.sort("severity", "image_id", nulls_last=True)
        return first.unique(["source", "sample_id", "shift", "lost"], keep="first", maintain_order=True)


_SIDES = {
    "lost": (pl.col("correct") & ~pl.col("correct_new")).sum().cast(pl.Int64),
    "gained": (~pl.col("correct") & pl.col("correct_new")).sum().cast(pl.Int64),
}


def compare(
    base: str | Path,
    new: str | Path,
    *,
    base_model: str | None = None,
    model: str | None = None,
    shared: bool = False,
    other_versions: bool = False,
    rate: float = RATE,
) -> Comparison:
    """Compare the models of two run folders (or passports) on the same images.

    Args:
        base: The run folder or passport of the base model.
        new: The run folder or passport of the new model.
        base_model: Which model of ``base`` to take, if it has several.
        model: Which model of ``new`` to take, if it has several.
        shared: Compare only the images that both were evaluated on, instead of refusing differences.
        other_versions: Allow different versions of the libraries that make images.
        rate: Rate at which two equal models raise a false alarm on any shift.

    Returns:
        The comparison; its tables are computed when they are first read.

    Raises:
        SoritesError: The runs are unfinished or have different images, or one model failed on some images.
    """
    sides = (_open(base, base_model, "base_model"), _open(new, model, "model"))
    notes = [*refuse_unlike(*sides, other_versions, shared), *refuse_one_sided(*sides, shared)]
    names = _names(*sides)
    table = together(*sides, names)
    pairs = paired(_clean_once(table, sides[0]), *names)
    return Comparison(*sides, names, tuple(notes), table, pairs, matrix(pairs), rate)


def _clean_once(table: pl.LazyFrame, base: Side) -> pl.LazyFrame:
    """Keep the clean images of the first part only; other parts repeat them or frame them differently."""
    return table.filter((pl.col("shift") != CLEAN) | (pl.col("run_id") == next(iter(base.parts))))


def _open(path: str | Path, model: str | None, option_name: str) -> Side:
    """Open a run folder, or all runs of a passport."""
    folder = Path(path)
    if not (folder / PASSPORT).exists():
        return side(path, {"run": folder}, model, option_name)
    parts = read_passport(folder).runs
    return side(path, run_folders(folder, [run.part for run in parts]), model, option_name)


def _names(base: Side, new: Side) -> tuple[str, str]:
    """Return display names of the models, with the version or folder where both have the same name."""
    if base.model != new.model:
        return base.model, new.model
    if base.version != new.version:
        return f"{base.model} ({base.version[:6]})", f"{new.model} ({new.version[:6]})"
    return f"{base.model} ({base.path})", f"{new.model} ({new.path})"


def _drops(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return the paired difference under each shift as a drop, with its interval; clean counts as a shift."""
    clean = pl.col("shift") == CLEAN
    named = table.with_columns(shift=pl.when(clean).then(pl.lit(_AS_SHIFT)).otherwise("shift"))
    each = paired_difference(named, by=("model", "shift"), other=base).filter(pl.col("model") == new)
    pooled = (
        paired_difference(table, by=("model",), other=base)
        .filter(pl.col("model") == new)
        .with_columns(shift=pl.lit(ALL))
    )
    rows = pl.concat([each, pooled.select(each.columns)])
    return rows.select(
        dial=pl.col("shift").replace({_AS_SHIFT: CLEAN}),
        n="n",
        drop=(0 - pl.col("value")).round(12) + 0.0,
        low=0 - pl.col("high"),
        high=0 - pl.col("low"),
    )


def _counts(pairs: pl.DataFrame) -> pl.DataFrame:
    """Count the flipped images of each shift, and of all shifts."""
    each = pairs.group_by(dial="shift").agg(**_SIDES)
    pooled = each.filter(pl.col("dial") != CLEAN).select(
        pl.lit(ALL).alias("dial"), pl.col("lost", "gained").sum()
    )
    return pl.concat([each, pooled])


def _tests(comparison: Comparison) -> pl.DataFrame:
    """Return p, Holm's p, the accuracies and the detectable drop of each shift."""
    base, new = comparison.matrix.columns(comparison.places)
    pooled = flips((base - new)[:, -1:], comparison.rate) if ALL in comparison.places else None
    family = comparison.flips
    p = [float(value) for value in family.p]
    corrected: Sequence[float | None] = holm(p)
    error = [*family.cautious, *(pooled.cautious if pooled else ())]
    critical = [family.critical] * len(p) + ([pooled.critical] if pooled else [])
    return pl.DataFrame(
        {
            "dial": list(comparison.places),
            "base": np.nanmean(base, axis=0),
            "new": np.nanmean(new, axis=0),
            "p": [*p, *(float(value) for value in (pooled.p if pooled else ()))],
            "p_holm": [*corrected, *([None] if pooled else [])],
            "detectable": [
                detectable_mean(float(e), c, comparison.rate) for e, c in zip(error, critical, strict=True)
            ],
        },
        schema_overrides={"p_holm": pl.Float64, "detectable": pl.Float64},
    )
