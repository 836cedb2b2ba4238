"""Out-of-distribution detection: does a score separate OOD images from in-distribution ones?

A larger score is more OOD.

Every metric here takes ``framework`` and ``against`` (see ``_pools``). ``n`` counts ``in-distribution``
and ``OOD`` images together, ``missing`` counts the rows of the group with an error or no
finite score. A group in which one of the two pools is empty has a null value. ``model`` and
``scorer`` are added to ``by`` where they are left out. Intervals are clustered by sample: that of
the AUROC is Newcombe's with DeLong's variance (see ``_bounds.area``), the others are Wilson's with
the number of different samples in the pool that the share is of; that of an FPR adds the interval
of its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics import intervals as bounds
from sorites.metrics import separation
from sorites.metrics.intervals import Z, normal_interval, wilson_interval
from sorites.metrics.rows import SETTING_KEY, answer_frame, with_settings_key
from sorites.metrics.separation import BY_SCORER, HAS_SCORE, Group, Pair, framework_named, groups, scored_rows

Estimate = tuple[float, float | None, float | None]
COLUMNS = ("value", "n", "low", "high", "id", "ood", "missing")
_FLOATS = dict.fromkeys(("value", "low", "high"), pl.Float64())
_COUNTS = dict.fromkeys(("n", "id", "ood", "missing"), pl.Int64())


def _auroc(two: Pair) -> Estimate:
    value = separation.auroc(two)
    many = len(two.in_distribution), len(two.ood)
    size = sum(many) / (two.in_distribution.samples + two.ood.samples)
    return value, *bounds.area(value, *many, separation.auroc_variance(two), size)


def _share(number: Callable[[Pair], float]) -> Callable[[Pair], Estimate]:
    """Turn a share of the OOD pool into an estimate with its interval."""

    def estimate(two: Pair) -> Estimate:
        value = number(two)
        return value, *bounds.share(value, two.ood.samples)

    return estimate


def _alarms(two: Pair) -> Estimate:
    """Return the share of false alarms; its interval adds what is not known of the threshold, which
    OOD images set.
    """
    value, _ = separation.false_alarms(two)
    at_threshold = separation.alarms_between(two, bounds.share(0.05, two.ood.samples))
    return value, *bounds.square_and_add(
        value, bounds.share(value, two.in_distribution.samples), at_threshold
    )


NUMBERS: dict[str, Callable[[Pair], Estimate]] = {
    "auroc": _auroc,
    "aupr_in": lambda two: _share(separation.average_precision)(two.flipped),
    "aupr_out": _share(separation.average_precision),
    "fpr95_ood_pos": _alarms,
    "fpr95_id_pos": lambda two: _alarms(two.flipped),
    "aupr_in_trapz": lambda two: _share(separation.trapezoid_precision)(two.flipped),
    "aupr_out_trapz": _share(separation.trapezoid_precision),
}
MAIN = ("auroc", "aupr_in", "aupr_out", "fpr95_ood_pos", "fpr95_id_pos")


@add_metric
def ood(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """AUROC, AUPR with either class as positive and FPR at 95 % in both conventions, one row each,
    named in ``metric``.
    """
    return ood_numbers(table, by, framework, against, MAIN)


@add_metric
def auroc(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Chance that an OOD image scores above an in-distribution one, with ties counted half; 0.5 is no
    better than chance.
    """
    return _one(table, by, framework, against, "auroc")


@add_metric
def aupr_out(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Average precision with OOD as the positive class; a random score gets the OOD share
    of the images.
    """
    return _one(table, by, framework, against, "aupr_out")


@add_metric
def aupr_in(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Average precision with in-distribution as the positive class; a random score gets the in-distribution share
    of the images.
    """
    return _one(table, by, framework, against, "aupr_in")


@add_metric
def aupr_out_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Same as ``aupr_out`` by the trapezoid rule, which is too optimistic; for parity with tools
    that use it.
    """
    return _one(table, by, framework, against, "aupr_out_trapz")


@add_metric
def aupr_in_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Same as ``aupr_in`` by the trapezoid rule, which is too optimistic; for parity with tools
    that use it.
    """
    return _one(table, by, framework, against, "aupr_in_trapz")


@add_metric
def fpr95_ood_pos(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Share of in-distribution images flagged at the threshold that flags at least 95 % of the OOD
    ones (OpenOOD's convention).
    """
    return _one(table, by, framework, against, "fpr95_ood_pos")


@add_metric
def fpr95_id_pos(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Share of OOD images not flagged where at least 95 % of the in-distribution ones are not (the
    ODIN paper's convention).
    """
    return _one(table, by, framework, against, "fpr95_id_pos")


def _one(table: Table, by: Sequence[str], framework: str, against: str, name: str) -> pl.DataFrame:
    return ood_numbers(table, by, framework, against, [name]).drop("metric")


def ood_numbers(
    table: Table, by: Sequence[str], framework: str, against: str, names: Iterable[str]
) -> pl.DataFrame:
    """Return one row per group and number, for the numbers in ``names``."""
    keys, found = groups(table, by, framework, against)
    lines = [line for group in found for line in _lines(keys, group, names)]
    kinds = {**key_types(table, keys), "metric": pl.String(), **_FLOATS, **_COUNTS}
    return answer_frame(pl.DataFrame(lines, schema=kinds), keys, *COLUMNS, then=["metric"])


def _lines(keys: Sequence[str], group: Group, names: Iterable[str]) -> list[dict[str, object]]:
    two, shared = group.pair, {**dict(zip(keys, group.key, strict=True)), **group.counts}
    estimates = {name: (None, None, None) if two is None else NUMBERS[name](two) for name in names}
    return [
        {**shared, "metric": name, "value": v, "low": low, "high": high}
        for name, (v, low, high) in estimates.items()
    ]


def key_types(table: Table, keys: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types of the columns to group by, whatever values came; those that the table does
    not hold are texts.
    """
    held = table.lazy().collect_schema()
    return {key: held.get(key, pl.String()) for key in keys}


# Scores and their distribution, and whether they rise where accuracy falls, over settings (ImageNet-ES).


SETTING = ("shift", "severity", "params")


@add_metric
def mean_score(table: Table, by: Sequence[str] = (*BY_SCORER, *SETTING)) -> pl.DataFrame:
    """Mean score of the judged images, with their ``accuracy``; normal interval over samples.

    The unit is that of the scorer; a larger score is more OOD. ``n`` counts samples, each with the
    mean over its images. The bounds are null for a single sample.
    """
    rows, keys = scored_rows(table, by)
    usable = rows.filter(HAS_SCORE & pl.col("correct").is_not_null())
    score, right = pl.col("score").cast(pl.Float64), pl.col("correct").cast(pl.Float64)
    samples = usable.group_by(*keys, "sample").agg(score=score.mean(), right=right.mean())
    means = samples.group_by(keys).agg(
        value=pl.col("score").mean(),
        n=pl.len().cast(pl.Int64),
        variance=pl.col("score").var() / pl.len(),
        accuracy=pl.col("right").mean(),
    )
    bounded = means.with_columns(**normal_interval(pl.col("value"), pl.col("variance")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", "accuracy")


@add_metric
def score_accuracy(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Correlation (Pearson's and Spearman's) over settings of mean score and accuracy; near -1 the
    score predicts failure.

    A setting is a shift with a severity, or with the params that were asked for. ``n`` counts
    settings; the value is null with fewer than 3, or where one side does not vary. The interval is
    Fisher's, with Bonett and Wright's (2000) variance for ranks, from 4 settings on; it treats
    settings as independent, though they show the same samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    keys = list(dict.fromkeys([*wanted, *BY_SCORER]))
    points = mean_score(with_settings_key(table), [*keys, *SETTING_KEY]).rename({"value": "score"})
    kinds = {
        "pearson": pl.corr("score", "accuracy"),
        "spearman": pl.corr("score", "accuracy", method="spearman"),
    }
    numbers = {name: pl.when(pl.len() >= 3).then(number) for name, number in kinds.items()}
    wide = points.group_by(keys).agg(n=pl.len().cast(pl.Int64), **numbers)
    found = wide.unpivot(list(kinds), index=[*keys, "n"], variable_name="kind")
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value").clip(-1, 1))
    bounded = found.with_columns(value=value).with_columns(**_fisher())
    return answer_frame(bounded, keys, "value", "n", "low", "high", then=["kind"])


@add_metric
def score_histogram(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "kind", bins: int = 40
) -> pl.DataFrame:
    """Share of each pool's images in each of ``bins`` equal steps of the score (``bin`` from 0,
    ``left``, ``right``).

    The pools are the in-distribution images and the OOD images of a framework or, with
    ``framework="kind"``, ID, C-OOD and S-OOD. The steps are the same for all pools of a group and
    go from its 0.5 % to its 99.5 % point; the first and the last also hold the scores beyond. The
    interval is Wilson's by images; ``n`` counts the pool. A bin without an image is absent.
    """
    if bins < 1:
        raise SoritesError(f"bins is a number of bins from 1 up, got {bins}")
    rows, keys = scored_rows(table, by)
    finite = pl.when(HAS_SCORE).then(pl.col("score").cast(pl.Float64))
    usable = rows.select(*keys, pool=_pool(framework), score=finite).drop_nulls(["pool", "score"])
    score, first, step = pl.col("score"), pl.col("first"), pl.col("step")
    ends = usable.group_by(keys).agg(
        first=score.quantile(0.005), step=(score.quantile(0.995) - score.quantile(0.005)) / bins
    )
    place = (
        pl.when(step > 0).then(((score - first) / step).floor().clip(0, bins - 1)).otherwise(0).cast(pl.Int32)
    )
    binned = usable.join(ends, on=keys, nulls_equal=True).with_columns(bin=place)
    counts = binned.group_by(*keys, "pool", "bin").agg(
        first.first(), step.first(), many=pl.len().cast(pl.Int64)
    )
    shares = counts.with_columns(
        n=pl.col("many").sum().over(*keys, "pool"), left=first + pl.col("bin") * step
    )
    values = shares.with_columns(value=pl.col("many") / pl.col("n"), right=pl.col("left") + step)
    bounded = values.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", "left", "right", then=["pool", "bin"])


def _pool(framework: str) -> pl.Expr:
    if framework == "kind":
        return pl.col("kind")
    in_distribution, ood = framework_named(framework)
    return pl.when(ood).then(pl.lit("ood")).when(in_distribution).then(pl.lit("id"))


def _fisher() -> dict[str, pl.Expr]:
    """Return bounds computed on the scale of atanh, null where the correlation is perfect or has
    too few settings.
    """
    value, n = pl.col("value"), pl.col("n")
    wider = pl.when(pl.col("kind") == "spearman").then((1 + value**2 / 2).sqrt()).otherwise(1.0)
    half = pl.when((n > 3) & (value.abs() < 1)).then(Z * wider / (n - 3).cast(pl.Float64).sqrt())
    return {"low": (value.arctanh() - half).tanh(), "high": (value.arctanh() + half).tanh()}


# F1 at a threshold, in two definitions that answer two questions.


# The share of the in-distribution images that pass the threshold of ``f1_at_tpr95``.
TPR = 0.95


@add_metric
def f1(
    table: Table,
    by: Sequence[str] = BY_SCORER,
    framework: str = "semantic",
    against: str = "same",
    split: str | None = None,
) -> pl.DataFrame:
    """F1 of flagging OOD images at the threshold that is best on the rows of ``split``; those
    rows are not judged.

    An image is flagged at the threshold or above it. Each model and scorer has one threshold,
    given in the last column; of equally good ones it is the highest. F1 is null where ``split``
    lacks one of the two pools. The interval is Wilson's of J = TP / (TP + FP + FN), converted by F1
    = 2 J / (1 + J), with as many cases as there are different samples.
    """
    splits = _splits(table, split)
    thresholds = dict(_thresholds(table, framework, split)) if splits else {}
    rest = table.lazy().filter(pl.col("split").ne_missing(pl.lit(split, pl.String)))
    keys, found = groups(rest, by, framework, against)
    judge = [keys.index(key) for key in BY_SCORER]
    lines = [
        _line(keys, group, thresholds.get(tuple(group.key[place] for place in judge))) for group in found
    ]
    return _answer(table, lines, keys)


@add_metric
def f1_at_tpr95(
    table: Table,
    by: Sequence[str] = (*BY_SCORER, *SETTING),
    framework: str = "model-specific",
    against: str = "same",
) -> pl.DataFrame:
    """F1 of passing in-distribution images at the threshold that 95 % of each setting's in-distribution
    images pass (ImageNet-ES).

    In the framework of that paper in-distribution is what the model gets right: TP is right and passed, FP
    wrong and passed, FN right and not passed, and F1 = 2 TP / (2 TP + FP + FN). An image passes at
    the ``threshold`` or below it; the threshold is the lowest that at least 95 % pass. It falls
    with accuracy even where the score separates equally well, because wrong images outnumber
    right ones. It is null without an in-distribution image; a setting without any score is absent. The
    interval is that of ``f1``, with the threshold held fixed. (The released code takes the point of
    the ROC curve whose TPR is nearest to 95 %.)
    """
    keys, found = groups(table, by, framework, against)
    return _answer(table, [_passing_line(keys, group) for group in found if group.counts["n"]], keys)


def _answer(table: Table, lines: Sequence[dict[str, object]], keys: Sequence[str]) -> pl.DataFrame:
    numbers = dict.fromkeys(("value", "low", "high", "threshold"), pl.Float64())
    counts = dict.fromkeys(("n", "id", "ood", "missing"), pl.Int64())
    frame = pl.DataFrame(lines, schema={**key_types(table, keys), **numbers, **counts})
    return answer_frame(frame, keys, *COLUMNS, "threshold")


def _passing_line(keys: Sequence[str], group: Group) -> dict[str, object]:
    line = {**dict(zip(keys, group.key, strict=True)), **group.counts}
    in_distribution = group.in_distribution.scores
    if not len(in_distribution):
        return {**line, "value": None, "low": None, "high": None, "threshold": None}
    threshold = float(in_distribution[math.ceil(TPR * len(in_distribution) - 1e-9) - 1])
    return {**line, "threshold": threshold, **_f1(Pair(group.in_distribution, group.ood).flipped, -threshold)}


def _splits(table: Table, split: str | None) -> list[str]:
    """Return the splits that have scores; it is an error if ``split`` is not one of them."""
    found = (
        table.lazy()
        .filter(pl.col("output") == "ood")
        .select(pl.col("split").unique())
        .collect(engine="streaming")
    )
    names = sorted({name or "" for name in found["split"]})
    wanted = "F1 needs a threshold, and a threshold a validation split of its own"
    if names == [""] and split != "":
        raise SoritesError(
            f"{wanted}, and the images of this table belong to no split. Ask f1_at_tpr95, which needs none."
        )
    if names and (split is None or split not in names):
        came = "no split was named" if split is None else f"there is no {split!r}"
        raise SoritesError(
            f"{wanted}: {came}. Type split=NAME, with a NAME of {', '.join(map(repr, names))}."
        )
    return names


def _thresholds(table: Table, framework: str, split: str | None) -> list[tuple[tuple[str, ...], float]]:
    """Return the best threshold of each model and scorer on the rows of ``split``."""
    _, found = groups(table.lazy().filter(pl.col("split") == pl.lit(split, pl.String)), BY_SCORER, framework)
    return [(group.key, best_threshold(group.pair)) for group in found if group.pair is not None]


def best_threshold(two: Pair) -> float:
    """Return the threshold with the best F1 on these pools; it is always the score of an OOD image."""
    caught = len(two.ood) - two.ood.firsts
    flagged = caught + len(two.in_distribution) - two.below
    worth = 2 * caught / (flagged + len(two.ood))
    return float(two.ood.scores[len(worth) - 1 - int(np.argmax(worth[::-1]))])


def _line(keys: Sequence[str], group: Group, threshold: float | None) -> dict[str, object]:
    line = {**dict(zip(keys, group.key, strict=True)), **group.counts, "threshold": threshold}
    if group.pair is None or threshold is None:
        return {**line, "value": None, "low": None, "high": None}
    return {**line, **_f1(group.pair, threshold)}


def _f1(two: Pair, threshold: float) -> dict[str, float | None]:
    ood, in_distribution = two.ood, two.in_distribution
    caught = int((ood.scores >= threshold).sum())
    cases = len(ood) + int((in_distribution.scores >= threshold).sum())
    apart = (ood.samples + in_distribution.samples) / (len(ood) + len(in_distribution))
    low, high = bounds.share(caught / cases, cases * apart)
    return {"value": _from_jaccard(caught / cases), "low": _from_jaccard(low), "high": _from_jaccard(high)}


def _from_jaccard(share: float | None) -> float | None:
    return None if share is None else 2 * share / (1 + share)
