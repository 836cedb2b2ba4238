"""OOD frameworks, and exact measures of how well scores separate OOD from in-distribution images.

Higher scores are more OOD. Ties count half in the AUROC. Elsewhere a threshold flags every score at or
above it (OOD is positive) or at or below it (in-distribution is positive), so that tied scores stay
together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import CLEAN
from sorites.core.errors import InvalidOption, SoritesError, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.rows import ON_GRID, SAMPLE_KEY, SET, select_rows, with_sets

Floats = NDArray[np.floating]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pool:
    """Scores in ascending order.

    Attributes:
        scores: The scores.
        sample: The index of each image's sample, or None where every image has another sample.
    """

    scores: Floats
    sample: Counts | None = None

    @classmethod
    def of(cls, scores: Floats, sample: Counts | None = None) -> Pool:
        """Return a pool of scores in any order; raise an error if a score is NaN."""
        if np.isnan(scores).any():
            raise SoritesError(f"expected scores, got {int(np.isnan(scores).sum())} NaN among {len(scores)}")
        if sample is None:
            return cls(np.sort(scores))
        order = np.argsort(scores)
        return cls(scores[order], sample[order])

    def __len__(self) -> int:
        return len(self.scores)

    def by_sample(self, values: NDArray[Any], size: int = 0) -> NDArray[np.float64]:
        """Return the sums of the values of each sample; a sample of index ``size`` or more extends the
        result.
        """
        codes = np.arange(len(self)) if self.sample is None else self.sample
        sums: NDArray[np.float64] = np.bincount(codes, values, max(size, 1)).astype(np.float64, copy=False)
        return sums

    @functools.cached_property
    def samples(self) -> int:
        """The number of different samples, used as n of intervals that respect clusters."""
        return len(self) if self.sample is None else int(np.count_nonzero(np.bincount(self.sample)))

    @functools.cached_property
    def firsts(self) -> Counts:
        """For each score, the number of scores of the pool strictly below it."""
        indexes = np.arange(len(self))
        # Compared rather than subtracted, because the difference of two infinite scores is not 0.
        tied = np.concatenate([[False], self.scores[1:] == self.scores[:-1]])
        return np.maximum.accumulate(np.where(tied, 0, indexes))


def sample_count(*pools: Pool) -> int:
    """Return the number of sample indexes that the pools use."""
    used = (len(pool) if pool.sample is None else int(pool.sample.max()) + 1 for pool in pools if len(pool))
    return max(used, default=0)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two non-empty pools."""

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
        counts = self.below.copy()
        counts[tied] = np.searchsorted(in_distribution, ood[tied], "right")
        return counts

    @functools.cached_property
    def flipped(self) -> Pair:
        """The pair with in-distribution as the positive class: scores are negated and the pools swapped."""
        pools = (
            Pool(-p.scores[::-1], None if p.sample is None else p.sample[::-1])
            for p in (self.ood, self.in_distribution)
        )
        return Pair(*pools)


def pair(in_distribution: Floats, ood: Floats) -> Pair:
    """Return a pair of two arrays of scores."""
    if not len(in_distribution) or not len(ood):
        raise SoritesError(
            f"expected in-distribution and OOD scores, got {len(in_distribution)} and {len(ood)}"
        )
    return Pair(Pool.of(np.asarray(in_distribution)), Pool.of(np.asarray(ood)))


def auroc(two: Pair) -> float:
    """Return the probability that an OOD image scores above an in-distribution one; ties count half (Mann
    and Whitney 1947).
    """
    wins = int(two.below.sum()) + int(two.up_to.sum())
    return wins / (2 * len(two.in_distribution) * len(two.ood))


def average_precision(two: Pair) -> float:
    """Return the mean precision at the scores of the OOD images: the step area under the precision-recall
    curve.
    """
    flagged = len(two.ood) - two.ood.firsts
    return float(np.mean(flagged / (flagged + len(two.in_distribution) - two.below)))


def precision_variance(two: Pair) -> float:
    """Return the variance of the average precision, clustered by sample, for given numbers of OOD and
    in-distribution images.

    It is the sum of squared influences: an image changes the precision at every OOD score up to its own,
    and an OOD image adds the precision at its own score.
    """
    flagged, alarms = len(two.ood) - two.ood.firsts, len(two.in_distribution) - two.below
    gain = np.cumsum(alarms / (flagged + alarms) ** 2)
    loss = np.concatenate([[0.0], np.cumsum(flagged / (flagged + alarms) ** 2)])
    last_tied = np.searchsorted(two.ood.scores, two.ood.scores, "right") - 1
    own = flagged / (flagged + alarms) + gain[last_tied]
    other = -loss[np.searchsorted(two.ood.scores, two.in_distribution.scores, "right")]
    size = sample_count(two.ood, two.in_distribution)
    total = two.ood.by_sample((own - own.mean()) / len(two.ood), size)
    alarms_total = two.in_distribution.by_sample((other - other.mean()) / len(two.ood), size)
    clusters = max(two.ood.samples, 2)
    if two.ood.sample is None or two.in_distribution.sample is None:
        return clusters / (clusters - 1) * float(np.sum(total**2) + np.sum(alarms_total**2))
    return clusters / (clusters - 1) * float(np.sum((total + alarms_total) ** 2))


def trapezoid_precision(two: Pair) -> float:
    """Return the area under the linearly interpolated precision-recall curve, from precision 1 at recall
    0.

    This area is biased high; it exists for comparison with tools that use it.
    """
    tied = np.unique(two.ood.scores, return_counts=True)[1]
    last = np.cumsum(tied) - 1
    above = len(two.ood) - 1 - last
    precision = (above + tied) / (above + tied + len(two.in_distribution) - two.below[last])
    flagged_above = above + len(two.in_distribution) - two.up_to[last]
    precision_above = np.where(flagged_above > 0, above / np.maximum(flagged_above, 1), 1.0)
    return float(np.sum(tied * (precision + precision_above)) / (2 * len(two.ood)))


def false_alarms(two: Pair, caught: float = 0.95) -> tuple[float, float]:
    """Return the share of in-distribution images flagged at the highest threshold that flags ``caught`` of
    the OOD images.

    Returns:
        The share and the threshold.
    """
    needed = int(np.ceil(caught * len(two.ood) - 1e-9))
    index = len(two.ood) - needed
    return 1 - float(two.below[index]) / len(two.in_distribution), float(two.ood.scores[index])


def alarms_between(two: Pair, missed: tuple[float | None, float | None]) -> tuple[float | None, float | None]:
    """Return the shares of flagged in-distribution images at two thresholds, the smaller share first.

    Args:
        two: The pools.
        missed: The shares of OOD images that the thresholds miss. The result is (None, None) where one
            of the thresholds is below every OOD score, because its position is then unknown.
    """
    low, high = missed
    if low is None or high is None:
        return None, None
    indexes = int(np.floor(high * len(two.ood))), int(np.floor(low * len(two.ood))) - 1
    if indexes[1] < 0:
        return None, None
    smaller = 1 - float(two.below[min(indexes[0], len(two.ood) - 1)]) / len(two.in_distribution)
    return smaller, 1 - float(two.below[indexes[1]]) / len(two.in_distribution)


def density_ratio(known: Pool, other: Pool, threshold: float) -> float:
    """Return the number of ``other`` scores per ``known`` score near a threshold.

    The neighbourhood contains a number of known scores that grows with the pool more slowly than the
    pool itself.
    """
    reach = max(math.ceil(len(known) ** 0.6 / 2), 3)
    index = int(np.searchsorted(known.scores, threshold, "right"))
    start, end = max(index - reach, 0), min(index + reach, len(known)) - 1
    if end <= start:
        return 0.0
    low, high = known.scores[start], known.scores[end]
    between = np.searchsorted(other.scores, high, "right") - np.searchsorted(other.scores, low, "right")
    return float(between / (end - start))


def placements(two: Pair) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return DeLong's structural components, both of which have the AUROC as their mean.

    These are the share of in-distribution scores below each OOD score, and the share of OOD scores
    above each in-distribution score; ties count half.
    """
    ood_count, id_count = len(two.ood), len(two.in_distribution)
    below_count = np.cumsum(np.bincount(two.up_to, minlength=id_count + 1))[:id_count]
    up_to_count = np.cumsum(np.bincount(two.below, minlength=id_count + 1))[:id_count]
    return (two.below + two.up_to) / (2 * id_count), 1 - (below_count + up_to_count) / (2 * ood_count)


def auroc_variance(two: Pair) -> float:
    """Return DeLong's variance of the AUROC (1988), clustered by sample (Obuchowski 1997); NaN below two
    samples per pool.
    """
    samples = (two.ood.samples, two.in_distribution.samples)
    if min(samples) < 2:
        return float("nan")
    value = auroc(two)
    parts = [(part - value) / len(part) for part in placements(two)]
    if two.ood.sample is None or two.in_distribution.sample is None:
        return sum(n / (n - 1) * float(np.sum(part * part)) for n, part in zip(samples, parts, strict=True))
    ids = (two.ood.sample, two.in_distribution.sample)
    size = max(int(index.max()) for index in ids) + 1
    sums = [np.bincount(index, part, size) for index, part in zip(ids, parts, strict=True)]
    within = sum(n / (n - 1) * float(np.sum(total * total)) for n, total in zip(samples, sums, strict=True))
    both = np.count_nonzero(np.bincount(ids[0], minlength=size) * np.bincount(ids[1], minlength=size))
    shared = 2 * both / (both - 1) * float(np.sum(sums[0] * sums[1])) if both > 1 else 0.0
    return max(within + shared, 0.0)


# Frameworks decide which images are in-distribution and which are OOD, by two expressions on ``ood`` rows.

UNTOUCHED = pl.col("shift") == CLEAN
UNKNOWN_CLASS = (
    pl.col("known").not_() | (pl.col("label").is_null() & (pl.col("split") == "unknown"))
).fill_null(False)
UNLABELLED = pl.col("label").is_null() & pl.col("known").is_null()
KNOWN_CLASS = (pl.col("known").fill_null(False) | UNLABELLED) & ~UNKNOWN_CLASS
RIGHT, WRONG = pl.col("correct").fill_null(False), pl.col("correct").not_().fill_null(False)
HAS_LEVELS = pl.col("sem_level").is_not_null() & pl.col("cov_level").is_not_null()

FULL_SPECTRUM = "full_spectrum"
# The expressions (in-distribution, OOD) of each framework; rows that match neither are left out.
FRAMEWORKS = {
    "semantic": (KNOWN_CLASS, UNKNOWN_CLASS),
    "model-specific": (RIGHT, WRONG),
    "combined": (RIGHT & UNTOUCHED, UNKNOWN_CLASS | (WRONG & ~UNTOUCHED)),
    "graded": (KNOWN_CLASS & UNTOUCHED, HAS_LEVELS & ~(KNOWN_CLASS & UNTOUCHED)),
    "drift": (KNOWN_CLASS & UNTOUCHED, KNOWN_CLASS & ~UNTOUCHED),
    FULL_SPECTRUM: (KNOWN_CLASS, UNKNOWN_CLASS),
}

# Infinite scores are values: +inf is more OOD than every other score. Only null and NaN are missing.
HAS_SCORE = pl.col("error").is_null() & pl.col("score").is_not_nan().fill_null(False)
BY_SCORER = ("model", "scorer")
# Columns about how an image was shifted and evaluated, which the two pools of a group share. All other
# columns are about its content.
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
    """The two pools of a group, either of which may be empty, and its number of rows without a score."""

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

    Scores of two models or scorers are not comparable, so both columns are added to ``by`` where they
    are left out. The column ``sample`` is a hash of the sample's key.
    """
    columns = [by] if isinstance(by, str) else list(by)
    in_sets = with_sets(table) if SET in columns else table.lazy()
    annotated = in_sets.with_columns(kind=KIND, group=GROUP_VALUES.list.first())
    rows, keys = select_rows(annotated, [*columns, *BY_SCORER], output="ood")
    return rows.filter(ON_GRID).with_columns(sample=pl.struct(SAMPLE_KEY).hash()), keys


def groups(
    table: Table, by: Sequence[str], framework: str, against: str = "same"
) -> tuple[list[str], Iterator[Group]]:
    """Return the group columns and the pools of each group, with one model and scorer in memory at a time.

    Args:
        table: The table.
        by: The columns to group by.
        framework: The name of a framework, which decides what is in-distribution and OOD.
        against: The in-distribution images to compare with: "same" uses those with the same shift
            and setting, "clean" the clean images of the model for all groups. In the full spectrum
            all shifted and clean images are in-distribution for all groups.
    """
    rows, keys = scored_rows(table, by)
    in_distribution, ood = framework_named(framework)
    if against not in ("same", "clean"):
        raise InvalidOption("against", f'{parameter("against")} must be "same" or "clean", got {against!r}')
    if against == "clean" and framework != FULL_SPECTRUM:
        in_distribution = in_distribution & UNTOUCHED
    side = pl.when(ood).then(True).when(in_distribution).then(False)
    slim = rows.select(*keys, "sample", score=pl.when(HAS_SCORE).then("score"), side=side).filter(
        pl.col("side").is_not_null() | pl.col("score").is_null()
    )
    matched, schema = _shared_columns(keys, framework, against), rows.collect_schema()
    if lists := [key for key in matched if schema[key].is_nested()]:
        raise SoritesError(
            f"cannot group by {lists[0]!r}: it contains lists, by which the two pools cannot be matched."
            " Remove it from by."
        )
    return keys, (group for part in by_model_and_scorer(slim) for group in _groups_of(part, keys, matched))


def _shared_columns(keys: Sequence[str], framework: str, against: str) -> list[str]:
    """Return the columns that the two pools of a group share.

    In-distribution and OOD images never have the same content, so content columns are shared only in
    the model-specific framework. Images of other runs are never shared if the groups are runs.
    """
    if against == "clean" or framework in ("combined", "graded", "drift", FULL_SPECTRUM):
        return [key for key in keys if key in (*BY_SCORER, "run_id", "seed")]
    return [key for key in keys if key in CONDITIONS or framework == "model-specific"]


def framework_named(name: str) -> tuple[pl.Expr, pl.Expr]:
    """Return the expressions (in-distribution, OOD) of a framework; raise an error for unknown names."""
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, FRAMEWORKS, f"One of {', '.join(FRAMEWORKS)}.")
    return FRAMEWORKS[name]


def by_model_and_scorer(rows: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of each model and scorer, one pair at a time."""
    pairs = rows.select(BY_SCORER).unique().sort(BY_SCORER).collect(engine="streaming")
    for model, scorer in pairs.iter_rows():
        matching = pl.col("model").eq_missing(pl.lit(model, pl.String)) & pl.col("scorer").eq_missing(
            pl.lit(scorer, pl.String)
        )
        yield rows.filter(matching).collect(engine="streaming")


def _groups_of(rows: pl.DataFrame, keys: list[str], matched: list[str]) -> Iterator[Group]:
    rows = rows.with_columns(pl.col("sample").rank("dense").cast(pl.Int64) - 1)
    in_distribution_rows = rows.filter(~pl.col("side") & pl.col("score").is_not_null())
    pools = {key: _pool(group) for key, group in in_distribution_rows.group_by(matched)}
    grouped = rows if matched == keys else rows.filter(pl.col("side").fill_null(True))
    indexes = [keys.index(key) for key in matched]
    for key, group in grouped.group_by(keys):
        ood = group.filter(pl.col("side") & pl.col("score").is_not_null())
        in_distribution = pools.get(
            tuple(key[index] for index in indexes), _pool(in_distribution_rows.clear())
        )
        yield Group(key, in_distribution, _pool(ood), int(group["score"].null_count()))


def _pool(rows: pl.DataFrame) -> Pool:
    return Pool.of(rows["score"].to_numpy(), rows["sample"].to_numpy())
