"""Measure what one arm gains over another, picture by picture and seed by seed.

Two trainings with one seed see the same pictures in the same order from the same first weights, and are judged by the same
pictures: their difference is taken there. Its interval has two parts. Over pictures: samples are redrawn, each with all its
shifts and seeds. Over seeds: the means of the seeds scatter, and few seeds say little of how much, so Student's t is taken with
one degree of freedom less than seeds. The two half-widths are added as squares. With one seed the second part is unknown and
left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from sorites.core import CLEAN
from sorites.errors import UnknownName
from sorites.metrics import judged_rows, normal_interval, select_rows
from sorites.metrics._intervals import paired_interval
from sorites.training.arms.members import Member

GROUP = ("family", "severity")
"""The columns within which numbers are averaged over shifts: the OpticsBench aberrations at one severity, for example."""


def verdicts(table: pl.LazyFrame, members: Sequence[Member]) -> pl.DataFrame:
    """Return one row per image and training: arm, seed, shift, its family and severity, and whether the answer was right."""
    rows, _ = select_rows(table, ["model"])
    names = pl.DataFrame(
        {"model": [m.name for m in members], "arm": [m.arm for m in members], "seed": [m.seed for m in members]},
        {"model": pl.String, "arm": pl.String, "seed": pl.Int64},
    )
    judged = judged_rows(rows).drop("seed").join(names.lazy(), on="model")
    clean = pl.col("shift") == CLEAN
    return judged.select(
        "arm", "seed", "shift", "source", "sample_id", "image_id",
        family=pl.when(clean).then(pl.lit(CLEAN)).otherwise(pl.col("family")),
        severity=pl.when(clean).then(0.0).otherwise(pl.col("severity")),
        right=pl.col("correct").cast(pl.Float64),
    ).collect(engine="streaming")  # fmt: skip


def frames(table: pl.LazyFrame, members: Sequence[Member]) -> dict[str, pl.DataFrame]:
    """Return what a page of arms shows of one suite's table: accuracies and gains over the first arm, by family and by shift.

    Where OpticsAugment is among the arms and is not the first, the gains over it are there too (Table IX of the paper).
    """
    rows, arms = verdicts(table, members), list(dict.fromkeys(member.arm for member in members))
    found = {
        "accuracies": accuracies(rows),
        "gains": gains(rows, arms[0]),
        "shift_gains": gains(rows, arms[0], ("shift", "severity")),
    }
    others = [arm for arm in arms[1:] if arm != "optics"]
    if "optics" in arms[1:] and others:
        found["over_optics"] = gains(rows.filter(pl.col("arm").is_in(["optics", *others])), "optics")
    return found


def accuracies(rows: pl.DataFrame, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of each arm by family and severity: value, n (samples), seeds, shifts, low and high."""
    each = _over_samples(rows.with_columns(value="right"), [*by, "arm"])
    spread = (pl.col("square") - pl.col("value") ** 2) / pl.col("n")
    bounds = normal_interval(pl.col("value"), spread)
    return _with_seeds(each.with_columns(**bounds), rows.with_columns(value="right"), [*by, "arm"], (0.0, 1.0))


def gains(rows: pl.DataFrame, over: str, by: Sequence[str] = GROUP) -> pl.DataFrame:
    """Return the accuracy of each other arm minus that of the arm ``over``, on the same pictures with the same seeds."""
    arms = rows["arm"].unique().sort().to_list()
    if over not in arms:
        raise UnknownName("arm", over, arms, f"There are {', '.join(arms)}.")
    theirs = rows.filter(pl.col("arm") == over).select("seed", "image_id", theirs="right")
    pairs = rows.filter(pl.col("arm") != over).join(theirs, on=["seed", "image_id"])
    pairs = pairs.with_columns(value=pl.col("right") - pl.col("theirs"))
    keys = [*by, "arm"]
    each = _over_samples(pairs, keys)
    bounds = paired_interval(pl.col("value"), pl.col("square"), pl.col("apart"), pl.col("n"))
    return _with_seeds(each.with_columns(**bounds), pairs, keys, (-1.0, 1.0)).with_columns(over=pl.lit(over))


def _over_samples(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Return means over samples of each sample's own mean, over its shifts and seeds."""
    own = rows.group_by([*keys, "source", "sample_id"]).agg(pl.col("value").mean(), apart=pl.col("value").abs().mean())
    shifts = rows.group_by(keys).agg(shifts=pl.col("shift").unique().sort())
    means = own.group_by(keys).agg(
        pl.col("value").mean(), square=(pl.col("value") ** 2).mean(), apart=pl.col("apart").mean(), n=pl.len()
    )
    return means.join(shifts, on=keys, nulls_equal=True)


def _with_seeds(each: pl.DataFrame, rows: pl.DataFrame, keys: list[str], limits: tuple[float, float]) -> pl.DataFrame:
    """Widen intervals over pictures by the scatter of the seeds' means, and keep them within the limits."""
    own = rows.group_by([*keys, "seed"]).agg(pl.col("value").mean())
    seeds = own.group_by(keys).agg(seeds=pl.len(), scatter=pl.col("value").std())
    found = each.join(seeds, on=keys, nulls_equal=True)
    widest = {count: _student(count) / math.sqrt(count) for count in found["seeds"].unique()}
    half = pl.col("scatter").fill_null(0) * pl.col("seeds").replace_strict(widest, return_dtype=pl.Float64)
    middle = (pl.col("low") + pl.col("high")) / 2
    whole = (((pl.col("high") - pl.col("low")) / 2) ** 2 + half**2).sqrt()
    bounded = found.with_columns(low=(middle - whole).clip(*limits), high=(middle + whole).clip(*limits))
    return bounded.select(*keys, "shifts", "value", "n", "seeds", "low", "high").sort(keys, nulls_last=True)


def _student(seeds: int) -> float:
    """Return the 97.5 % point of Student's t for the mean of so many seeds; 0 for one, of which no scatter is known."""
    if seeds < 2:
        return 0.0
    from scipy.stats import t

    return float(t.ppf(0.975, seeds - 1))
