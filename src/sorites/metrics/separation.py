"""Exact measures of how well scores separate OOD from in-distribution images, from two sorts and one merge.

A larger score is more OOD. Ties get half credit in the AUROC; elsewhere a threshold flags every
score at or above it (OOD is positive) or at or below it (in-distribution is positive), so that tied
scores stay together. Nothing here knows of a table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.table import Table
from sorites.metrics.rows import ON_GRID, SAMPLE_KEY, SET, select_rows, with_sets

Floats = NDArray[np.floating]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """Scores in rising order; ``sample`` numbers the sample of each image, from 0 up, or is None
    where all differ.
    """

    scores: Floats
    sample: Counts | None = None

    @classmethod
    def of(cls, scores: Floats, sample: Counts | None = None) -> Pool:
        """Make a pool of scores in any order; NaN is an error."""
        if np.isnan(scores).any():
            raise SoritesError(
                f"expected scores that are numbers, got {int(np.isnan(scores).sum())} NaN among {len(scores)}"
            )
        if sample is None:
            return cls(np.sort(scores))
        order = np.argsort(scores)
        return cls(scores[order], sample[order])

    def __len__(self) -> int:
        return len(self.scores)

    @functools.cached_property
    def samples(self) -> int:
        """The number of different samples in the pool, which is the n of an interval that counts no
        sample twice.
        """
        return len(self) if self.sample is None else int(np.count_nonzero(np.bincount(self.sample)))

    @functools.cached_property
    def firsts(self) -> Counts:
        """For each score, the number of scores of the pool strictly below it."""
        places = np.arange(len(self))
        return np.maximum.accumulate(np.where(np.diff(self.scores, prepend=np.nan) == 0, 0, places))


@dataclass(frozen=True, eq=False)
class Pair:
    """Two pools that are both not empty."""

    in_distribution: Pool
    ood: Pool

    @functools.cached_property
    def below(self) -> Counts:
        """For each OOD score, the number of in-distribution scores strictly below it."""
        return np.searchsorted(self.in_distribution.scores, self.ood.scores, "left")

    @functools.cached_property
    def up_to(self) -> Counts:
        """For each OOD score, the number of in-distribution scores below it or tied with it."""
        in_distribution, ood = self.in_distribution.scores, self.ood.scores
        tied = in_distribution[np.minimum(self.below, len(in_distribution) - 1)] == ood
        found = self.below.copy()
        found[tied] = np.searchsorted(in_distribution, ood[tied], "right")
        return found

    @functools.cached_property
    def flipped(self) -> Pair:
        """The pair with in-distribution as the positive class: scores change sign and the pools change places."""
        turned = (
            Pool(-p.scores[::-1], None if p.sample is None else p.sample[::-1])
            for p in (self.ood, self.in_distribution)
        )
        return Pair(*turned)


def pair(in_distribution: Floats, ood: Floats) -> Pair:
    """Make a pair of two plain arrays of scores."""
    if not len(in_distribution) or not len(ood):
        raise SoritesError(
            f"expected in-distribution and OOD scores, got {len(in_distribution)} and {len(ood)}"
        )
    return Pair(Pool.of(np.asarray(in_distribution)), Pool.of(np.asarray(ood)))


def auroc(two: Pair) -> float:
    """Return the chance that an OOD image scores above an in-distribution one, a tie counted half
    (Mann and Whitney 1947).
    """
    wins = int(two.below.sum()) + int(two.up_to.sum())
    return wins / (2 * len(two.in_distribution) * len(two.ood))


def average_precision(two: Pair) -> float:
    """Return the mean of the precision at each OOD image's score: the step area under the
    precision-recall curve.
    """
    flagged = len(two.ood) - two.ood.firsts
    return float(np.mean(flagged / (flagged + len(two.in_distribution) - two.below)))


def trapezoid_precision(two: Pair) -> float:
    """Return the area under the precision-recall curve joined by straight lines, from precision 1
    at recall 0.

    This area is too large; it is kept for parity with tools that use it.
    """
    many = np.unique(two.ood.scores, return_counts=True)[1]
    last = np.cumsum(many) - 1
    above = len(two.ood) - 1 - last
    here = (above + many) / (above + many + len(two.in_distribution) - two.below[last])
    over = above + len(two.in_distribution) - two.up_to[last]
    before = np.where(over > 0, above / np.maximum(over, 1), 1.0)
    return float(np.sum(many * (here + before)) / (2 * len(two.ood)))


def false_alarms(two: Pair, caught: float = 0.95) -> tuple[float, float]:
    """Return the share of in-distribution images above the highest threshold that flags at least
    ``caught`` of the OOD ones.

    The second number is that threshold.
    """
    needed = int(np.ceil(caught * len(two.ood) - 1e-9))
    place = len(two.ood) - needed
    return 1 - float(two.below[place]) / len(two.in_distribution), float(two.ood.scores[place])


def alarms_between(two: Pair, missed: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """Return the shares of in-distribution images above the thresholds that miss these shares of the
    OOD ones, the least first.

    A threshold below every OOD score flags every in-distribution image, since nothing is known of
    where it lies.
    """
    low, high = missed
    if low is None or high is None:
        return None, None
    places = int(np.floor(high * len(two.ood))), int(np.floor(low * len(two.ood))) - 1
    least = 1 - float(two.below[min(places[0], len(two.ood) - 1)]) / len(two.in_distribution)
    return least, 1.0 if places[1] < 0 else 1 - float(two.below[places[1]]) / len(two.in_distribution)


def placements(two: Pair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return DeLong's structural components, whose means are both the AUROC.

    They are, for each OOD score, the share of in-distribution scores below it, and for each in-distribution
    score the share of OOD scores above it (ties count half).
    """
    many, size = len(two.ood), len(two.in_distribution)
    strictly = np.cumsum(np.bincount(two.up_to, minlength=size + 1))[:size]
    at_most = np.cumsum(np.bincount(two.below, minlength=size + 1))[:size]
    return (two.below + two.up_to) / (2 * size), 1 - (strictly + at_most) / (2 * many)


def auroc_variance(two: Pair) -> float:
    """Return DeLong's variance of the AUROC (Biometrics 1988), clustered by sample (Obuchowski,
    Biometrics 1997).

    It is NaN where a pool has fewer than two samples.
    """
    shown = (two.ood.samples, two.in_distribution.samples)
    if min(shown) < 2:
        return float("nan")
    value = auroc(two)
    parts = [(part - value) / len(part) for part in placements(two)]
    if two.ood.sample is None or two.in_distribution.sample is None:
        return sum(n / (n - 1) * float(np.sum(part * part)) for n, part in zip(shown, parts, strict=True))
    ids = (two.ood.sample, two.in_distribution.sample)
    size = max(int(who.max()) for who in ids) + 1
    sums = [np.bincount(who, part, size) for who, part in zip(ids, parts, strict=True)]
    within = sum(n / (n - 1) * float(np.sum(total * total)) for n, total in zip(shown, sums, strict=True))
    both = np.count_nonzero(np.bincount(ids[0], minlength=size) * np.bincount(ids[1], minlength=size))
    shared = 2 * both / (both - 1) * float(np.sum(sums[0] * sums[1])) if both > 1 else 0.0
    return max(within + shared, 0.0)


# A framework decides which images are in-distribution and which are OOD: two expressions on the ``ood``
# rows of the table.


UNTOUCHED = pl.col("shift") == CLEAN
UNKNOWN_CLASS = (
    pl.col("known").not_() | (pl.col("label").is_null() & (pl.col("split") == "unknown"))
).fill_null(False)
UNLABELLED = pl.col("label").is_null() & pl.col("known").is_null()
KNOWN_CLASS = (pl.col("known").fill_null(False) | UNLABELLED) & ~UNKNOWN_CLASS
RIGHT, WRONG = pl.col("correct").fill_null(False), pl.col("correct").not_().fill_null(False)
HAS_LEVELS = pl.col("sem_level").is_not_null() & pl.col("cov_level").is_not_null()

# The expressions (in-distribution, OOD) by the name of the framework; a row that is neither is left
# out.
FRAMEWORKS = {
    "semantic": (KNOWN_CLASS, UNKNOWN_CLASS),
    "model-specific": (RIGHT, WRONG),
    "combined": (RIGHT & UNTOUCHED, UNKNOWN_CLASS | (WRONG & ~UNTOUCHED)),
    "graded": (KNOWN_CLASS & UNTOUCHED, HAS_LEVELS & ~(KNOWN_CLASS & UNTOUCHED)),
    "drift": (KNOWN_CLASS & UNTOUCHED, KNOWN_CLASS & ~UNTOUCHED),
}

HAS_SCORE = pl.col("error").is_null() & pl.col("score").is_finite().fill_null(False)
BY_SCORER = ("model", "scorer")
# Columns that say how an image was shifted and judged, in which the two pools of a group agree;
# the rest say what it shows.
CONDITIONS = frozenset({*BY_SCORER, "run_id", "seed", "family", "shift", "severity", "level", "params"})

GROUP_VALUES = pl.col("attrs").list.eval(
    pl.element().filter(pl.element().struct.field("key") == "group").struct.field("value")
)
KIND = (
    pl.when(UNKNOWN_CLASS)
    .then(pl.lit("S-OOD"))
    .when(KNOWN_CLASS & ~UNTOUCHED)
    .then(pl.lit("C-OOD"))
    .when(KNOWN_CLASS)
    .then(pl.lit("ID"))
)


@dataclass(frozen=True, eq=False)
class Group:
    """The two pools of one group, either of which may be empty, and the number of its rows that
    have no score.
    """

    key: tuple[Any, ...]
    in_distribution: Pool
    ood: Pool
    missing: int

    @property
    def pair(self) -> Pair | None:
        """The two pools, or None where one of them is empty."""
        return Pair(self.in_distribution, self.ood) if len(self.in_distribution) and len(self.ood) else None

    @property
    def counts(self) -> dict[str, int]:
        """The columns of an answer that count images."""
        in_distribution, ood = len(self.in_distribution), len(self.ood)
        return {"n": in_distribution + ood, "id": in_distribution, "ood": ood, "missing": self.missing}


def scored_rows(table: Table, by: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """Return the ``ood`` rows without probes, and the columns to group them by.

    Scores of two models or scorers have no unit in common, so both columns are added to ``by``
    where they are left out. The column ``sample`` is a number that differs between samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    in_sets = with_sets(table) if SET in wanted else table.lazy()
    named = in_sets.with_columns(kind=KIND, group=GROUP_VALUES.list.first())
    rows, keys = select_rows(named, [*wanted, *BY_SCORER], output="ood")
    return rows.filter(ON_GRID).with_columns(sample=pl.struct(SAMPLE_KEY).hash()), keys


def groups(
    table: Table, by: Sequence[str], framework: str, against: str = "same"
) -> tuple[list[str], Iterator[Group]]:
    """Return the group columns and the pools of each group, with one model and scorer at a time in memory.

    ``against`` chooses the in-distribution images that the OOD ones of a group are compared with:
    ``same`` takes those that were shifted and judged in the same way; ``clean`` takes the clean
    ones of the model, one pool for all groups.
    """
    rows, keys = scored_rows(table, by)
    in_distribution, ood = framework_named(framework)
    if against not in ("same", "clean"):
        raise SoritesError(f'against wants "same" or "clean", got {against!r}')
    if against == "clean":
        in_distribution = in_distribution & UNTOUCHED
    side = pl.when(ood).then(True).when(in_distribution).then(False)
    slim = rows.select(*keys, "sample", score=pl.when(HAS_SCORE).then("score"), side=side).filter(
        pl.col("side").is_not_null() | pl.col("score").is_null()
    )
    matched, schema = _matched(keys, framework, against), rows.collect_schema()
    if lists := [key for key in matched if schema[key].is_nested()]:
        raise SoritesError(
            f"cannot group by {lists[0]!r}: it holds lists, by which the two pools cannot be matched. Leave"
            " it out."
        )
    return keys, (group for part in by_model_and_scorer(slim) for group in _groups_of(part, keys, matched))


def _matched(keys: Sequence[str], framework: str, against: str) -> list[str]:
    """Return the columns in which the two pools of a group agree.

    No in-distribution image shows what an OOD one shows, so columns about content match only in the
    model-specific framework.
    """
    if against == "clean" or framework in ("combined", "graded", "drift"):
        return [key for key in keys if key in BY_SCORER]
    return [key for key in keys if key in CONDITIONS or framework == "model-specific"]


def framework_named(name: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the expressions (in-distribution, OOD) of a framework; an unknown name is an error."""
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, f"One of {', '.join(FRAMEWORKS)}.")
    return FRAMEWORKS[name]


def by_model_and_scorer(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each model and scorer, one pair after the other."""
    judges = rows.select(BY_SCORER).unique().sort(BY_SCORER).collect(engine="streaming")
    for model, scorer in judges.iter_rows():
        matching = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("scorer").eq_missing(
            pl.lit(scorer, pl.String)
        )
        yield rows.filter(matching).collect(engine="streaming")


def _groups_of(rows: pl.DataFrame, keys: list[str], matched: list[str]) -> Iterator[Group]:
    rows = rows.with_columns(pl.col("sample").rank("dense").cast(pl.Int64) - 1)
    in_distribution_rows = rows.filter(~pl.col("side") & pl.col("score").is_not_null())
    pools = {key: _pool(group) for key, group in in_distribution_rows.group_by(matched)}
    grouped = rows if matched == keys else rows.filter(pl.col("side").fill_null(True))
    places = [keys.index(key) for key in matched]
    for key, group in grouped.group_by(keys):
        ood = group.filter(pl.col("side") & pl.col("score").is_not_null())
        in_distribution = pools.get(
            tuple(key[place] for place in places), _pool(in_distribution_rows.clear())
        )
        yield Group(key, in_distribution, _pool(ood), int(group["score"].null_count()))


def _pool(rows: pl.DataFrame) -> Pool:
    return Pool.of(rows["score"].to_numpy(), rows["sample"].to_numpy())
