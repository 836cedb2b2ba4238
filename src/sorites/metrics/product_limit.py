"""Product-limit (Kaplan-Meier) estimates of counted trajectories, and their intervals.

A trajectory is observed until it fails or until its last judged severity, where it is censored. Kaplan and
Meier's estimate uses both; the variance is Greenwood's. Where several trajectories belong to one sample, the
variance is multiplied by their design effect, estimated from the influence of each sample on the estimate
(Williams 1995, Ying & Wei 1994). Intervals are Wilson's with the effective number of trajectories
(Rothman 1978): without censoring and with one trajectory per sample they are Wilson's of a plain share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.metrics.intervals import Z, wilson_interval

Array = NDArray[np.float64]

# The hash of the group columns, and that of the sample that a trajectory belongs to.
GROUP, CLUSTER = "(group)", "(cluster)"
# Estimates are rounded, so that equal ones compare equal.
DECIMALS = 12
# Design effects computed exactly per group; those of further severities are interpolated.
MAX_EFFECTS = 256


@dataclass(frozen=True)
class Points:
    """Trajectories, counted by where they failed or ended."""

    names: pl.DataFrame
    """The values of the group columns, with their hash."""
    severities: pl.DataFrame
    """The severities (``severity``) of each group at which to estimate, including 0 and the highest."""
    counts: pl.DataFrame
    """Trajectories (``count``) by group, ``time`` and ``event``: true if they failed at this severity, false
    if they were last judged there."""
    sizes: pl.DataFrame
    """Trajectories (``rows``) and samples (``clusters``) of each group; see ``sizes_of``."""
    parts: Callable[[], Iterable[pl.DataFrame]]
    """Yields the trajectories counted by group, sample, ``time`` and ``event``, in parts of whole samples."""


def product_limit(points: Points) -> pl.DataFrame:
    """Return the product-limit estimate at each severity of each group.

    Returns:
        Rows sorted by group and ``severity``: trajectories that ``failed`` there and are ``at_risk``, the
            share ``alive`` beyond it, Greenwood's sum (``spread``), all trajectories ``n``, and those that
            were not censored below it (``observed``).
    """
    counts, severities = points.counts, points.severities
    events = counts.group_by(GROUP, severity="time").agg(
        failed=pl.col("count").filter("event").sum(), ended=pl.col("count").filter(~pl.col("event")).sum()
    )
    zeros = severities.select(GROUP, "severity", failed=pl.lit(0, pl.Int64), ended=pl.lit(0, pl.Int64))
    steps = pl.concat([events.select(zeros.columns).cast(zeros.schema), zeros])
    ordered = steps.group_by(GROUP, "severity").agg(pl.col("failed", "ended").sum()).sort(GROUP, "severity")
    left = pl.col("failed") + pl.col("ended")
    counted = ordered.with_columns(n=left.sum().over(GROUP)).with_columns(
        at_risk=pl.col("n") - (left.cum_sum().over(GROUP) - left),
        observed=pl.col("n") - (pl.col("ended").cum_sum().over(GROUP) - pl.col("ended")),
    )
    failed, at_risk = pl.col("failed"), pl.col("at_risk")
    ratio = pl.when(failed > 0).then(1 - failed / at_risk).otherwise(1.0)
    term = pl.when(failed > 0).then(failed / (at_risk * (at_risk - failed))).otherwise(0.0)
    return counted.with_columns(
        alive=ratio.cum_prod().over(GROUP).round(DECIMALS), spread=term.cum_sum().over(GROUP)
    ).filter(pl.col("severity").is_finite())


def median_severities(severity: Array, failed: NDArray[np.bool_], weights: Array) -> Array:
    """Return the medians of the product-limit estimates of several weightings of the same trajectories.

    Args:
        severity: Where each trajectory failed or was last judged.
        failed: Whether it failed there.
        weights: How often it counts, weightings x trajectories.

    Returns:
        For each weighting the severity at which the estimate falls to one half, as in ``failure_severity``;
            infinity where it does not.
    """
    order = np.argsort(severity, kind="stable")
    times, starts = np.unique(severity[order], return_index=True)
    drawn = weights[:, order]
    left = np.add.reduceat(drawn, starts, axis=1)
    lost = np.add.reduceat(drawn * failed[order], starts, axis=1)
    at_risk = np.cumsum(left[:, ::-1], axis=1)[:, ::-1]
    alive = np.cumprod(1 - lost / np.maximum(at_risk, 1e-300), axis=1).round(DECIMALS)
    ends = [np.where(below.any(axis=1), times[below.argmax(axis=1)], np.inf)
            for below in (alive <= 0.5, alive < 0.5)]  # fmt: skip
    return np.asarray((ends[0] + ends[1]) / 2)


def contrasts_of(steps: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Return the share of trajectories that fail between two severities, with its effective number.

    Args:
        steps: The product-limit estimates.
        edges: Rows with a group, ``start`` (null: before severity 0) and ``end`` (null: never fails).

    Returns:
        The rows of ``edges`` with ``value``, ``n`` and ``effective``: the number of independent, uncensored
            trajectories with the same variance.
    """
    estimate = steps.select(GROUP, "severity", "alive", "spread", "observed", "n")
    joined = edges.join(
        estimate.rename({"severity": "start", "alive": "a", "spread": "va", "observed": "oa", "n": "na"}),
        on=[GROUP, "start"], how="left",
    ).join(
        estimate.rename({"severity": "end", "alive": "b", "spread": "vb", "observed": "ob", "n": "nb"}),
        on=[GROUP, "end"], how="left",
    )  # fmt: skip
    filled = joined.with_columns(
        n=pl.coalesce("nb", "na"),
        observed=pl.coalesce("ob", "oa"),
        a=pl.col("a").fill_null(1.0),
        b=pl.col("b").fill_null(0.0),
        va=pl.col("va").fill_null(0.0),
    )
    value, beyond = pl.col("a") - pl.col("b"), pl.col("b")
    later = pl.when(beyond > 0).then(beyond**2 * (pl.col("vb") - pl.col("va"))).otherwise(0.0)
    earlier = pl.when(value > 0).then(value**2 * pl.col("va")).otherwise(0.0)
    shares = filled.with_columns(value=value.round(DECIMALS), variance=earlier + later)
    share, variance = pl.col("value"), pl.col("variance")
    known = (share > 0) & (share < 1) & (variance > 0)
    effective = pl.when(known).then(share * (1 - share) / variance).otherwise(pl.col("observed"))
    return shares.with_columns(effective=effective).select(*edges.columns, "value", "n", "effective")


def with_design_effects(contrasts: pl.DataFrame, points: Points) -> pl.DataFrame:
    """Divide ``effective`` by the design effect in groups where samples have several trajectories.

    The estimated effect is shrunk towards its maximum (the trajectories of a sample agree), with the weight
    of one additional sample that fails throughout, as in ``clustered_wilson_interval``.

    Args:
        contrasts: The answer of ``contrasts_of``.
        points: The trajectories.
    """
    nested = points.sizes.filter(pl.col("rows") > pl.col("clusters"))
    if not nested.height:
        return contrasts
    indexed = contrasts.with_row_index("(row)")
    groups = nested.filter(pl.col("clusters") > 1)
    influences = {
        key[0]: _Influence.of(part, contrast)
        for key, contrast in indexed.join(groups, on=GROUP, how="semi")
        .partition_by(GROUP, as_dict=True)
        .items()
        for part in [points.counts.filter(pl.col(GROUP) == key[0])]
    }
    for part in points.parts() if influences else ():
        for key, rows in part.partition_by(GROUP, as_dict=True).items():
            if key[0] in influences:
                influences[key[0]].add(rows)
    frames = [influence.effects() for influence in influences.values()]
    schema = {"(row)": pl.UInt32, "(effect)": pl.Float64}
    effects = pl.concat(frames) if frames else pl.DataFrame(schema=schema)
    joined = (
        indexed.join(effects.cast({"(row)": pl.UInt32}), on="(row)", how="left")
        .join(nested, on=GROUP, how="left")
        .sort("(row)")
    )
    most = pl.col("squares") / pl.col("rows")
    effect = pl.col("(effect)").fill_nan(None).fill_null(most).clip(1.0, most)
    share = pl.col("value")
    fails = pl.col("effective") * pl.min_horizontal(share, 1 - share) / effect
    shrunk = pl.when(most.is_not_null()).then((fails * effect + most) / (fails + 1)).otherwise(1.0)
    return joined.with_columns(effective=pl.col("effective") / shrunk).select(contrasts.columns)


def sizes_of(part: pl.DataFrame) -> pl.DataFrame:
    """Return the number of trajectories (``rows``) and of samples (``clusters``) of each group, and the sum
    of ``squares`` of the trajectories per sample.
    """
    count = pl.col("count")
    by_sample = part.group_by(GROUP, CLUSTER).agg(count.sum())
    return by_sample.group_by(GROUP).agg(
        rows=count.sum(), clusters=pl.len().cast(pl.Int64), squares=(count * count).sum()
    )


@dataclass
class _Influence:
    """The influence of each trajectory on the contrasts of one group, and sums of its squares."""

    rows: NDArray[np.int64]
    """The rows of the contrasts that are computed."""
    every: NDArray[np.int64]
    """All rows of the contrasts of the group."""
    times: Array
    matrix: Array
    """Trajectories by time and event (even rows: censored) x contrasts."""
    independent: Array
    n: int
    together: Array
    clusters: int = 0

    @staticmethod
    def of(counts: pl.DataFrame, contrasts: pl.DataFrame) -> _Influence:
        times = np.unique(counts["time"].to_numpy())
        slots = _slots(times, counts)
        held = np.bincount(slots, counts["count"].to_numpy(), 2 * len(times)).astype(np.float64)
        every = contrasts["(row)"].to_numpy().astype(np.int64)
        chosen = np.unique(np.linspace(0, len(every) - 1, min(len(every), MAX_EFFECTS)).astype(int))
        start = contrasts["start"].fill_null(-np.inf).to_numpy()[chosen]
        end = contrasts["end"].fill_null(np.inf).to_numpy()[chosen]
        matrix = np.subtract(_influence(times, held, start), _influence(times, held, end))
        independent = held @ matrix**2
        return _Influence(
            every[chosen], every, times, matrix, independent, int(held.sum()), np.zeros(len(chosen))
        )

    def add(self, rows: pl.DataFrame) -> None:
        """Add the sums of the samples of one part."""
        from scipy.sparse import csr_array

        _, sample = np.unique(rows[CLUSTER].to_numpy(), return_inverse=True)
        number = int(sample.max()) + 1
        counts = csr_array(
            (rows["count"].to_numpy().astype(np.float64), (sample, _slots(self.times, rows))),
            shape=(number, len(self.matrix)),
        )
        for first in range(0, len(self.rows), 64):
            block = slice(first, first + 64)
            self.together[block] += ((counts @ self.matrix[:, block]) ** 2).sum(axis=0)
        self.clusters += number

    def effects(self) -> pl.DataFrame:
        """Return the design effect of each contrast; NaN where no trajectory has an influence.

        The factor for few samples replaces the normal quantile by that of Student's t.
        """
        from scipy.special import stdtrit

        few = (float(stdtrit(self.clusters - 1, 0.975)) / Z) ** 2 * self.clusters / (self.clusters - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            effect = few * self.together / (self.independent * self.n / max(self.n - 1, 1))
        effect = np.where(self.independent > 1e-18, effect, np.nan)
        if len(self.rows) < len(self.every):
            effect = np.interp(self.every, self.rows, effect)
        return pl.DataFrame({"(row)": self.every, "(effect)": effect})


def _slots(times: Array, counts: pl.DataFrame) -> NDArray[np.int64]:
    """Return the row of the influence matrix of each count: two per time, the second for failures."""
    place = np.searchsorted(times, counts["time"].to_numpy())
    return np.asarray(2 * place + counts["event"].to_numpy().astype(np.int64), np.int64)


def _influence(times: Array, held: Array, at: Array) -> Array:
    """Return the derivative of the estimate at each severity by the weight of each kind of trajectory."""
    failed, ended = held[1::2], held[::2]
    at_risk = held.sum() - np.concatenate([[0.0], np.cumsum(failed + ended)[:-1]])
    left = at_risk - failed
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where((failed > 0) & (left > 0), failed / (at_risk * left), 0.0)
        alive = np.cumprod(np.where(failed > 0, left / at_risk, 1.0))
    sums = np.cumsum(terms)
    own = np.empty(len(held))
    own[::2], own[1::2] = sums, sums - terms - 1 / at_risk
    last = np.searchsorted(times, at, side="right") - 1
    reached = np.repeat(times, 2)[:, None] <= at[None, :]
    share = np.where(np.isfinite(at), np.where(last >= 0, alive[last], 1.0), 0.0)
    return np.asarray(share * np.where(reached, own[:, None], np.where(last >= 0, sums[last], 0.0)))


def bounded(contrasts: pl.DataFrame) -> pl.DataFrame:
    """Add Wilson's interval with the effective number of trajectories."""
    return contrasts.with_columns(**wilson_interval(pl.col("value"), pl.col("effective")))
