"""``sorites.compare``: two models on the same images, dial by dial."""

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
from sorites.analysis.comparison.statistics import Flips, flips, holm, mcnemar_mid, noticed
from sorites.analysis.passport.battery import held
from sorites.analysis.passport.document import NAME as PASSPORT
from sorites.analysis.passport.document import read_passport
from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.metrics import paired_difference
from sorites.metrics.failure import crossing

# Images that not both models were judged on: errors of one or both, and images that a filter set aside
# in one run.


MEND = {
    "error": "Mend what failed and type the run's command again",
    "aside": "Filter both runs alike",
}


def refuse_one_sided(base: Side, new: Side, shared: bool) -> list[str]:
    """Refuse images that failed, or were set aside, on one side only, with what to type; return
    notes about the rest.

    A model that fails on the images it finds hard would otherwise be judged on the easy ones alone.
    """
    return [note for part in base.parts for note in _of_part(part, base, new, shared)]


def _of_part(part: str, base: Side, new: Side, shared: bool) -> list[str]:
    mine, theirs = pl.collect_all([_states(held.rows(part)) for held in (base, new)])
    both = mine.join(theirs, on="image_id", suffix="_new").sort("image_id")
    judged = both.filter(~pl.any_horizontal("error", "aside", "error_new", "aside_new"))
    left_out = [_told(both.filter(pl.col("error") & pl.col("error_new")), "in error for both models")]
    for kind in MEND:
        said = " and ".join(filter(None, (_alone(both, kind, base, ""), _alone(both, kind, new, "_new"))))
        if said and not shared:
            more = f"add --shared to compare the {judged.height} images that both were judged on"
            raise SoritesError(f"{said}. {MEND[kind]}, or {more}.")
        left_out.append(said)
    notes = [f"{said}; they are left out." for said in left_out if said]
    if gone := sorted(set(both["shift"]) - set(judged["shift"])):
        notes.append(
            f"Not compared, because no image of theirs was judged for both models: {', '.join(gone)}."
        )
    return notes


def _alone(both: pl.DataFrame, kind: str, held: Side, suffix: str) -> str:
    """Say which images failed or were set aside on this side only."""
    other = "" if suffix else "_new"
    rows = both.filter(pl.col(f"{kind}{suffix}") & ~pl.col(f"{kind}{other}"))
    if kind == "aside":
        return _told(rows, f"set aside by a filter in {held.path} alone")
    first = next(iter(rows[f"why{suffix}"].drop_nulls()), "")
    return _told(rows, f"in error for {held.model} of {held.path} alone (the first: {first})")


def _told(rows: pl.DataFrame, what: str) -> str:
    if not rows.height:
        return ""
    images, verb = ("images", "are") if rows.height > 1 else ("image", "is")
    return f"{rows.height} {images} ({shifts_of(rows)}) {verb} {what}"


def _states(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return each image of the grid once, with whether it failed, why, and whether it was set aside."""
    grid = rows.filter((pl.col("output") == "label") & ~pl.col("probe").fill_null(False))
    return grid.group_by("image_id").agg(
        pl.col("shift").first(),
        error=pl.col("error").is_not_null().any(),
        why=pl.col("error").drop_nulls().first(),
        aside=(~pl.col("valid").fill_null(True)).any(),
    )


# Find how far each dial may be turned before each of two models fails: the bootstrap draws the same
# samples for both.


Array = NDArray[np.float64]
DRAWS = 2_000
SEED = 0
CELLS = 1 << 22


@dataclass(frozen=True)
class Points:
    """The failure severities of both models on one dial, in its unit: as seen, and as drawn.

    Beyond the dial counts as its top.
    """

    base: float
    new: float
    drawn_base: Array
    drawn_new: Array
    top: float
    n: int


# Takes verdicts (samples x severities), how often each sample was drawn (draws x samples) and
# severities.
Measure = Callable[[Array, Array, Array], Array]


def half_accuracy_severity(right: Array, weights: Array, severities: Array) -> Array:
    """Return where accuracy has come down to half of the clean accuracy, as the metric of that name."""
    held = np.isfinite(right)
    found: Array = crossing(weights @ np.where(held, right, 0.0), weights @ held, severities)
    return found


def failure_severity(right: Array, weights: Array, severities: Array) -> Array:
    """Return the median of the least severities judged wrong, as the metric of that name: 0 where
    clean is wrong already.
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


def failure_severities(curves: Curves, name: str, draws: int = DRAWS) -> Points:
    """Return the points of both models, and those of bootstrap draws over samples that both models share."""
    measure, n, top = MEASURES[name], len(curves.base), float(curves.severities[-1])
    rng, batch = np.random.default_rng(SEED), max(1, CELLS // n)
    once = np.ones((1, n))
    seen = [
        float(_within(measure(side, once, curves.severities), top)[0]) for side in (curves.base, curves.new)
    ]
    drawn: tuple[list[Array], list[Array]] = ([], [])
    for start in range(0, draws, batch):
        weights = rng.multinomial(n, np.full(n, 1 / n), min(batch, draws - start)).astype(np.float64)
        for values, counts in zip(drawn, (curves.base, curves.new), strict=True):
            values.append(_within(measure(counts, weights, curves.severities), top))
    return Points(seen[0], seen[1], np.concatenate(drawn[0]), np.concatenate(drawn[1]), top, n)


def _within(values: Array, top: float) -> Array:
    """Set what lies beyond the dial to its top, and what has no value (nothing right when clean) to 0."""
    return np.minimum(np.nan_to_num(values, nan=0.0, posinf=top), top)


# The rate at which two equal models raise a false alarm on any dial.
RATE = 0.05
_AS_SHIFT = "(clean)"


@dataclass(frozen=True)
class Comparison:
    """The changes from a base model to a new one on the images that both were judged on."""

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
        """The dials, clean images first and all dials together last."""
        moved = [name for name in self.matrix.dials if name != CLEAN]
        return (*self.matrix.dials, ALL) if len(moved) > 1 else self.matrix.dials

    @functools.cached_property
    def flips(self) -> Flips:
        """The test of the drops of all dials together; a mean over all dials is not one of the family."""
        base, new = self.matrix.columns(self.matrix.dials)
        return flips(base - new, self.rate)

    @functools.cached_property
    def curves(self) -> Mapping[str, Curves]:
        """The verdicts along each dial that has an order."""
        return curves(self.table, *self.names)

    def points(self, measure: str, dial: str) -> Points:
        """Return how far a dial may be turned: ``failure_severity`` or ``half_accuracy_severity`` of both models."""
        return failure_severities(self.curves[dial], measure)

    @functools.cached_property
    def dials(self) -> pl.DataFrame:
        """One row per dial: accuracies, the drop with its interval, images that flipped, p,
        Holm's p, detectable drop.

        The detectable drop is null where not even a model that is always wrong would be noticed.
        """
        drops = _drops(_clean_once(self.table, self.base), *self.names)
        counts = _counts(self.pairs)
        rows = drops.join(counts, on="dial", how="left")
        tests = _tests(self)
        order = {name: place for place, name in enumerate(self.places)}
        found = rows.join(tests, on="dial").sort(pl.col("dial").replace_strict(order, return_dtype=pl.Int64))
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
        return found.select(columns)

    @functools.cached_property
    def settings(self) -> pl.DataFrame:
        """One row per setting: images, accuracies, how many flipped each way, and McNemar's mid-p."""
        keys = ["shift", "severity", "params"]
        each = self.pairs.group_by(keys).agg(
            n=pl.len(), base=pl.col("correct").mean(), new=pl.col("correct_new").mean(), **_SIDES
        )
        p = [mcnemar_mid(lost, gained) for lost, gained in each.select("lost", "gained").iter_rows()]
        return each.with_columns(pl.Series("p", p, pl.Float64)).sort(keys, nulls_last=True)

    @functools.cached_property
    def changed(self) -> pl.DataFrame:
        """The images that flipped: per sample, dial and direction the least severity at
        which it did.
        """
        apart = self.pairs.filter(pl.col("correct") != pl.col("correct_new")).with_columns(
            lost=pl.col("correct")
        )
        first = apart.sort("severity", "image_id", nulls_last=True)
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

    Folders of other images, other versions or an unfinished run are refused, and so are images
    on which one model failed. ``shared`` compares the images that both have and were judged on,
    ``other_versions`` allows other versions of the libraries that make images. ``rate`` is how
    often equal models raise alarm.
    """
    sides = (_open(base, base_model, "--base-model"), _open(new, model, "--model"))
    notes = [*refuse_unlike(*sides, other_versions, shared), *refuse_one_sided(*sides, shared)]
    names = _names(*sides)
    table = together(*sides, names)
    pairs = paired(_clean_once(table, sides[0]), *names)
    return Comparison(*sides, names, tuple(notes), table, pairs, matrix(pairs), rate)


def _clean_once(table: pl.LazyFrame, base: Side) -> pl.LazyFrame:
    """Leave out the clean images of all parts but the first, which frame the same images in
    other ways, or show others.
    """
    return table.filter((pl.col("shift") != CLEAN) | (pl.col("run_id") == next(iter(base.parts))))


def _open(path: str | Path, model: str | None, option: str) -> Side:
    """Open a run folder, or all the runs of a passport."""
    folder = Path(path)
    if not (folder / PASSPORT).exists():
        return side(path, {"run": folder}, model, option)
    parts = read_passport(folder).runs
    return side(path, held(folder, [run.part for run in parts]), model, option)


def _names(base: Side, new: Side) -> tuple[str, str]:
    """Return what the models are called, each with its version or folder where both have one name."""
    if base.model != new.model:
        return base.model, new.model
    if base.version != new.version:
        return f"{base.model} ({base.version[:6]})", f"{new.model} ({new.version[:6]})"
    return f"{base.model} ({base.path})", f"{new.model} ({new.path})"


def _drops(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return the paired difference of each dial as a drop, with its interval; clean images stand
    as a dial of their own.
    """
    clean = pl.col("shift") == CLEAN
    shown = table.with_columns(shift=pl.when(clean).then(pl.lit(_AS_SHIFT)).otherwise("shift"))
    each = paired_difference(shown, by=("model", "shift"), other=base).filter(pl.col("model") == new)
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
    """Count the images that flipped on each dial, and on all of them."""
    each = pairs.group_by(dial="shift").agg(**_SIDES)
    moved = each.filter(pl.col("dial") != CLEAN).select(
        pl.lit(ALL).alias("dial"), pl.col("lost", "gained").sum()
    )
    return pl.concat([each, moved])


def _tests(found: Comparison) -> pl.DataFrame:
    """Return p, Holm's p over the dials, the accuracies and the detectable drop of each place."""
    base, new = found.matrix.columns(found.places)
    pooled = flips((base - new)[:, -1:], found.rate) if ALL in found.places else None
    family = found.flips
    p = [float(value) for value in family.p]
    corrected: Sequence[float | None] = holm(p)
    error = [*family.cautious, *(pooled.cautious if pooled else ())]
    critical = [family.critical] * len(p) + ([pooled.critical] if pooled else [])
    return pl.DataFrame(
        {
            "dial": list(found.places),
            "base": np.nanmean(base, axis=0),
            "new": np.nanmean(new, axis=0),
            "p": [*p, *(float(value) for value in (pooled.p if pooled else ()))],
            "p_holm": [*corrected, *([None] if pooled else [])],
            "detectable": [noticed(float(e), c, found.rate) for e, c in zip(error, critical, strict=True)],
        },
        schema_overrides={"p_holm": pl.Float64, "detectable": pl.Float64},
    )
