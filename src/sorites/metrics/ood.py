"""OOD detection metrics: how well a score separates OOD images from in-distribution images.

Every metric here takes ``framework`` and ``against`` (see ``separation``). ``n`` counts ``id`` and
``ood`` images together, ``missing`` counts the rows of the group with an error or without a score;
infinite scores count. The value is null where one of the two pools is empty. ``model`` and ``scorer``
are added to ``by`` where they are left out. Intervals are clustered by sample: that of the AUROC is
Newcombe's with DeLong's variance (``intervals.area``), the others are Wilson's with the effective number
of images. The interval of an FPR also includes that of its threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.errors import InvalidOption, SoritesError
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics import intervals as bounds
from sorites.metrics import separation
from sorites.metrics.intervals import normal_interval, share_intervals
from sorites.metrics.rows import SETTING_KEY, answer_frame, with_settings_key
from sorites.metrics.separation import (
    BY_SCORER,
    HAS_SCORE,
    Group,
    Pair,
    Pool,
    framework_named,
    groups,
    scored_rows,
)

Estimate = tuple[float, float | None, float | None]
COLUMNS = ("value", "n", "low", "high", "id", "ood", "missing")
_FLOATS = dict.fromkeys(("value", "low", "high"), pl.Float64())
_COUNTS = dict.fromkeys(("n", "id", "ood", "missing"), pl.Int64())


def _auroc(two: Pair) -> Estimate:
    value = separation.auroc(two)
    sizes = len(two.in_distribution), len(two.ood)
    images_per_sample = sum(sizes) / (two.in_distribution.samples + two.ood.samples)
    return value, *bounds.area(value, *sizes, separation.auroc_variance(two), images_per_sample)


def _precision(number: Callable[[Pair], float]) -> Callable[[Pair], Estimate]:
    """Turn an average precision into an estimate with its interval."""

    def estimate(two: Pair) -> Estimate:
        value, samples = number(two), two.ood.samples
        variance = separation.precision_variance(two)
        varies = value * (1 - value)
        ratio = samples * variance / varies if varies > 0 and variance > 0 else 1.0
        errors = samples * min(value, 1 - value) / max(ratio, 1.0)
        return value, *bounds.share(value, samples / ((errors * ratio + 1) / (errors + 1)))

    return estimate


def _alarms(two: Pair) -> Estimate:
    """Return the FPR; its interval includes the uncertainty of the threshold, which is set by OOD images.

    There is no interval where that threshold may be below every OOD score (fewer than about 75 samples).
    """
    value, threshold = separation.false_alarms(two)
    flagged, missed = (
        bounds.clustered_size(*_of_samples(pool, chosen))
        for pool, chosen in (
            (two.in_distribution, two.in_distribution.scores >= threshold),
            (two.ood, two.ood.scores < threshold),
        )
    )
    at_threshold = separation.alarms_between(two, bounds.share(0.05, missed))
    return value, *bounds.square_and_add(value, bounds.share(value, flagged), at_threshold)


def _of_samples(pool: Pool, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the chosen images and all images of each sample."""
    rows = pool.by_sample(np.ones(len(pool)))
    return pool.by_sample(chosen)[rows > 0], rows[rows > 0]


NUMBERS: dict[str, Callable[[Pair], Estimate]] = {
    "auroc": _auroc,
    "aupr_in": lambda two: _precision(separation.average_precision)(two.flipped),
    "aupr_out": _precision(separation.average_precision),
    "fpr95_ood_pos": _alarms,
    "fpr95_id_pos": lambda two: _alarms(two.flipped),
    "aupr_in_trapz": lambda two: _precision(separation.trapezoid_precision)(two.flipped),
    "aupr_out_trapz": _precision(separation.trapezoid_precision),
}
MAIN = ("auroc", "aupr_in", "aupr_out", "fpr95_ood_pos", "fpr95_id_pos")


@add_metric
def ood(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """AUROC, AUPR with either class as positive, and FPR at 95 % TPR in both conventions, one row each,
    named in ``metric``.
    """
    return ood_numbers(table, by, framework, against, MAIN)


@add_metric
def auroc(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Probability that an OOD image scores above an in-distribution one, with ties counted half; 0.5 is
    chance.
    """
    return _single_number(table, by, framework, against, "auroc")


@add_metric
def aupr_out(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Average precision with OOD as the positive class; a random score gets the share of OOD images."""
    return _single_number(table, by, framework, against, "aupr_out")


@add_metric
def aupr_in(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Average precision with in-distribution as the positive class; a random score gets the share of
    in-distribution images.
    """
    return _single_number(table, by, framework, against, "aupr_in")


@add_metric
def aupr_out_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """``aupr_out`` by the trapezoid rule, which is biased high; for comparison with tools that use it."""
    return _single_number(table, by, framework, against, "aupr_out_trapz")


@add_metric
def aupr_in_trapz(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """``aupr_in`` by the trapezoid rule, which is biased high; for comparison with tools that use it."""
    return _single_number(table, by, framework, against, "aupr_in_trapz")


@add_metric
def fpr95_ood_pos(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Share of in-distribution images flagged at the threshold that flags at least 95 % of the OOD images
    (OpenOOD's convention).
    """
    return _single_number(table, by, framework, against, "fpr95_ood_pos")


@add_metric
def fpr95_id_pos(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "semantic", against: str = "same"
) -> pl.DataFrame:
    """Share of OOD images not flagged at the threshold that passes at least 95 % of the in-distribution
    images (ODIN's convention).
    """
    return _single_number(table, by, framework, against, "fpr95_id_pos")


def _single_number(table: Table, by: Sequence[str], framework: str, against: str, name: str) -> pl.DataFrame:
    return ood_numbers(table, by, framework, against, [name]).drop("metric")


def ood_numbers(
    table: Table, by: Sequence[str], framework: str, against: str, names: Iterable[str]
) -> pl.DataFrame:
    """Return one row per group and number, for the numbers in ``names``."""
    keys, pools = groups(table, by, framework, against)
    records = [record for group in pools for record in _records_of(keys, group, names)]
    kinds = {**key_types(table, keys), "metric": pl.String(), **_FLOATS, **_COUNTS}
    return answer_frame(pl.DataFrame(records, schema=kinds), keys, *COLUMNS, then=["metric"])


def _records_of(keys: Sequence[str], group: Group, names: Iterable[str]) -> list[dict[str, object]]:
    two, shared = group.pair, {**dict(zip(keys, group.key, strict=True)), **group.counts}
    estimates = {name: (None, None, None) if two is None else NUMBERS[name](two) for name in names}
    return [
        {**shared, "metric": name, "value": v, "low": low, "high": high}
        for name, (v, low, high) in estimates.items()
    ]


def key_types(table: Table, keys: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the types of the group columns; columns that are not in the table are strings."""
    schema = table.lazy().collect_schema()
    return {key: schema.get(key, pl.String()) for key in keys}


# Scores by setting, their distribution, and their correlation with accuracy (ImageNet-ES).


SETTING = ("shift", "severity", "params")
CorrelationMethod = Literal["pearson", "spearman"]


@add_metric
def mean_score(table: Table, by: Sequence[str] = (*BY_SCORER, *SETTING)) -> pl.DataFrame:
    """Mean score of the judged images, with their ``accuracy``; normal interval over samples.

    The unit is that of the scorer; higher is more OOD. ``n`` counts samples, each with the mean over
    its images. The bounds are null for a single sample and where a score is infinite.
    """
    rows, keys = scored_rows(table, by)
    samples = _sample_scores(rows, keys)
    means = samples.group_by(keys).agg(
        value=pl.col("score").mean(),
        n=pl.len().cast(pl.Int64),
        variance=pl.col("score").var() / pl.len(),
        accuracy=pl.col("right").mean(),
    )
    bounds = {
        name: pl.when(pl.col("value").is_finite()).then(bound)
        for name, bound in normal_interval(pl.col("value"), pl.col("variance")).items()
    }
    return answer_frame(means.with_columns(**bounds), keys, "value", "n", "low", "high", "accuracy")


def _sample_scores(rows: pl.LazyFrame, keys: Sequence[str]) -> pl.LazyFrame:
    """Return the mean score of each group and sample, and the share of correct images (``right``)."""
    usable = rows.filter(HAS_SCORE & pl.col("correct").is_not_null())
    score, correct = pl.col("score").cast(pl.Float64), pl.col("correct").cast(pl.Float64)
    return usable.group_by(*keys, "sample").agg(score=score.mean(), right=correct.mean())


@add_metric
def score_accuracy(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Correlation (Pearson's and Spearman's) over settings of mean score and accuracy; near -1 the score
    predicts failure.

    A setting is a shift with a severity, or with the requested params. ``n`` counts settings; the value
    is null with fewer than 3, or where one side does not vary. Pearson's interval takes the settings as
    given and is over samples, each of which is in several settings; that of ranks is left out, because
    they jump where two settings change places. It is null too where the differences between settings may be
    sampling errors.
    """
    columns = [by] if isinstance(by, str) else list(by)
    keys = list(dict.fromkeys([*columns, *BY_SCORER]))
    cells = [*keys, *SETTING_KEY]
    samples = _sample_scores(*scored_rows(with_settings_key(table), cells)).collect(engine="streaming")
    records = [
        {**dict(zip(keys, key, strict=True)), **line}
        for key, group in samples.group_by(keys)
        for line in _correlations(group)
    ]
    floats = dict.fromkeys(("value", "low", "high"), pl.Float64())
    kinds = {**key_types(table, keys), "kind": pl.String(), **floats, "n": pl.Int64()}
    return answer_frame(pl.DataFrame(records, schema=kinds), keys, "value", "n", "low", "high", then=["kind"])


def _correlations(samples: pl.DataFrame) -> Iterator[dict[str, object]]:
    """Yield Pearson's and Spearman's correlation over settings of the mean score and accuracy of samples."""
    means = samples.group_by(SETTING_KEY).agg(
        pl.col("score", "right").mean().round_sig_figs(12), images=pl.len()
    )
    kinds: tuple[CorrelationMethod, ...] = ("pearson", "spearman")
    for kind in kinds:
        found = means.select(pl.corr("score", "right", method=kind)).item() if means.height >= 3 else None
        line: dict[str, object] = {"kind": kind, "value": None, "low": None, "high": None, "n": means.height}
        if found is not None and math.isfinite(found):
            line["value"] = value = min(max(float(found), -1.0), 1.0)
            low, high = _pearson_bounds(samples, means) if kind == "pearson" else (None, None)
            if low is not None and high is not None:
                line |= {"low": min(low, value), "high": max(high, value)}
        yield line


def _pearson_bounds(samples: pl.DataFrame, means: pl.DataFrame) -> bounds.Bounds:
    """Return the interval of a correlation over given settings, from the errors of samples.

    Sampling errors add to the variances over settings, and a sample's errors at several settings are
    related. Both are estimated from the samples, and the added ones are subtracted (errors in variables,
    Fuller 1987). The interval is that of the influence of each sample, on Fisher's scale.
    """
    settings = means.with_row_index("k")
    joined = samples.join(settings, on=SETTING_KEY, nulls_equal=True, suffix="_mean")
    k, codes = joined["k"].to_numpy(), joined["sample"].rank("dense").to_numpy().astype(np.int64) - 1
    shape, images = (int(codes.max()) + 1, settings.height), settings["images"].to_numpy()
    errors = [np.zeros(shape) for _ in range(2)]
    for error, name in zip(errors, ("score", "right"), strict=True):
        error[codes, k] = (joined[name] - joined[f"{name}_mean"]).to_numpy() / images[k]
    if shape[0] < 2 or not np.isfinite(errors[0]).all():
        return None, None
    x, y = (settings[name].to_numpy() - settings[name].mean() for name in ("score", "right"))
    centred = [error - error.mean(axis=1, keepdims=True) for error in errors]
    scale = shape[0] / (shape[0] - 1)
    xx, yy, xy = (
        float(one @ two - scale * np.sum(a * b))
        for one, two, a, b in ((x, x, *centred[:1] * 2), (y, y, *centred[1:] * 2), (x, y, *centred))
    )
    if min(xx, yy) <= 0 or xy**2 >= xx * yy:
        return None, None
    value = xy / math.sqrt(xx * yy)
    influence = errors[0] @ (y / math.sqrt(xx * yy) - value * x / xx)
    influence += errors[1] @ (x / math.sqrt(xx * yy) - value * y / yy)
    low, high = bounds.influence_bounds(math.atanh(value), influence / (1 - value**2))
    return (None, None) if low is None or high is None else (math.tanh(low), math.tanh(high))


@add_metric
def score_histogram(
    table: Table, by: Sequence[str] = BY_SCORER, framework: str = "kind", bins: int = 40
) -> pl.DataFrame:
    """Share of each pool's images in each of ``bins`` equal steps of the score (``bin`` from 0, ``left``,
    ``right``).

    The pools are the in-distribution and the OOD images of a framework or, with ``framework="kind"``,
    ID, C-OOD and S-OOD. All pools of a group have the same steps, from its 0.5 % to its 99.5 % point;
    the first and the last also contain the scores beyond. The interval is over samples; ``n`` counts the
    images of the pool. Empty bins are absent.
    """
    if bins < 1:
        raise InvalidOption("bins", f"{parameter('bins')} must be at least 1, got {bins}")
    rows, keys = scored_rows(table, by)
    with_pool = rows.filter(HAS_SCORE).select(*keys, "sample", "score", pool=_pool(framework))
    usable = with_pool.drop_nulls("pool")
    score, first, step = pl.col("score"), pl.col("first"), pl.col("step")
    finite = score.filter(score.is_finite())
    ends = usable.group_by(keys).agg(
        first=finite.quantile(0.005), step=(finite.quantile(0.995) - finite.quantile(0.005)) / bins
    )
    bin_index = (
        pl.when(step > 0).then(((score - first) / step).floor().clip(0, bins - 1)).otherwise(0).cast(pl.Int32)
    )
    binned = usable.join(ends, on=keys, nulls_equal=True).with_columns(bin=bin_index)
    shares = share_intervals(_bin_sums(binned, [*keys, "pool"]), [*keys, "pool", "bin"])
    left = shares.join(ends, on=keys, nulls_equal=True).with_columns(left=first + pl.col("bin") * step)
    bounded = left.with_columns(right=pl.col("left") + step)
    return answer_frame(bounded, keys, "value", "n", "low", "high", "left", "right", then=["pool", "bin"])


def _bin_sums(binned: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return the sums of ``intervals.cluster_sums`` for the share of each bin among the images of a group."""
    counts = binned.group_by(*keys, "sample", "bin").agg(hits=pl.len().cast(pl.Int64))
    hits, rows = pl.col("hits"), pl.col("rows")
    of_samples = counts.group_by(*keys, "sample").agg(rows=hits.sum())
    wholes = of_samples.group_by(keys).agg(
        n=rows.sum(), samples=pl.len().cast(pl.Int64), rr=(rows * rows).sum()
    )
    joined = counts.join(of_samples, on=[*keys, "sample"], nulls_equal=True)
    sums = joined.group_by(*keys, "bin").agg(hits.sum(), hr=(hits * rows).sum(), hh=(hits * hits).sum())
    return sums.join(wholes, on=keys, nulls_equal=True)


def _pool(framework: str) -> pl.Expr:
    if framework == "kind":
        return pl.col("kind")
    in_distribution, ood = framework_named(framework)
    return pl.when(ood).then(pl.lit("ood")).when(in_distribution).then(pl.lit("id"))


# F1 at a threshold, in two definitions.

# The share of in-distribution images that pass the threshold of ``f1_at_tpr95``.
TPR = 0.95


@add_metric
def f1(
    table: Table,
    by: Sequence[str] = BY_SCORER,
    framework: str = "semantic",
    against: str = "same",
    split: str | None = None,
) -> pl.DataFrame:
    """F1 of flagging OOD images at the threshold that is best on the rows of ``split``, which are then
    left out.

    An image is flagged at the threshold or above it. Each model and scorer has one threshold, given in
    the last column; the highest of equally good ones. F1 is null where ``split`` lacks one of the two
    pools. The interval is Wilson's of J = TP / (TP + FP + FN), converted by F1 = 2 J / (1 + J), with
    the effective number of images.
    """
    splits = _splits(table, split)
    thresholds = dict(_thresholds(table, framework, split)) if splits else {}
    rest = table.lazy().filter(pl.col("split").ne_missing(pl.lit(split, pl.String)))
    keys, pools = groups(rest, by, framework, against)
    indexes = [keys.index(key) for key in BY_SCORER]
    records = [
        _f1_record(keys, group, thresholds.get(tuple(group.key[index] for index in indexes)))
        for group in pools
    ]
    return _answer(table, records, keys)


@add_metric
def f1_at_tpr95(
    table: Table,
    by: Sequence[str] = (*BY_SCORER, *SETTING),
    framework: str = "model-specific",
    against: str = "same",
) -> pl.DataFrame:
    """F1 of passing in-distribution images at the threshold that 95 % of each setting's in-distribution
    images pass (ImageNet-ES).

    In the framework of that paper, in-distribution means correctly classified: TP is correct and
    passed, FP wrong and passed, FN correct and not passed, and F1 = 2 TP / (2 TP + FP + FN). An image
    passes at the ``threshold`` or below it; the threshold is the lowest that at least 95 % pass. F1
    falls with accuracy even where the score separates equally well, because misclassified images
    outnumber correct ones. It is null without in-distribution images; settings without scores are
    absent. The interval includes that of the threshold. (The released code uses the point of
    the ROC curve whose TPR is nearest to 95 %.)
    """
    keys, pools = groups(table, by, framework, against)
    return _answer(table, [_f1_at_tpr_record(keys, group) for group in pools if group.counts["n"]], keys)


def _answer(table: Table, records: Sequence[dict[str, object]], keys: Sequence[str]) -> pl.DataFrame:
    numbers = dict.fromkeys(("value", "low", "high", "threshold"), pl.Float64())
    counts = dict.fromkeys(("n", "id", "ood", "missing"), pl.Int64())
    frame = pl.DataFrame(records, schema={**key_types(table, keys), **numbers, **counts})
    return answer_frame(frame, keys, *COLUMNS, "threshold")


def _f1_at_tpr_record(keys: Sequence[str], group: Group) -> dict[str, object]:
    record = {**dict(zip(keys, group.key, strict=True)), **group.counts}
    in_distribution = group.in_distribution.scores
    if not len(in_distribution):
        return {**record, "value": None, "low": None, "high": None, "threshold": None}
    threshold = float(in_distribution[math.ceil(TPR * len(in_distribution) - 1e-9) - 1])
    return {**record, "threshold": threshold, **_f1_passed(group, threshold)}


def _f1_passed(group: Group, threshold: float) -> dict[str, float | None]:
    """Return the F1 of passing in-distribution images, with an interval that includes the threshold's.

    An in-distribution image above the threshold moves it up, so that some OOD images pass: as many as
    there are per in-distribution image near the threshold.
    """
    known, other = group.in_distribution, group.ood
    size = separation.sample_count(known, other)
    passed, alarms = known.scores <= threshold, other.scores <= threshold
    correct, cases = int(passed.sum()), len(known) + int(alarms.sum())
    share = correct / cases
    local = separation.density_ratio(known, other, threshold)
    hits = known.by_sample(np.full(len(known), TPR), size)
    moved = known.by_sample(local * (TPR - passed), size)
    rows = known.by_sample(np.ones(len(known)), size) + (other.by_sample(alarms, size) if len(other) else 0.0)
    clusters = max(int(np.count_nonzero(rows)), 2)
    square = float(np.sum((hits - share * (rows + moved)) ** 2))
    variance = clusters / (clusters - 1) * square / cases**2
    effective = bounds.effective_size(share, variance, cases, float(np.sum(rows**2)) / cases)
    low, high = bounds.share(share, effective)
    return {"value": _from_jaccard(share), "low": _from_jaccard(low), "high": _from_jaccard(high)}


def _splits(table: Table, split: str | None) -> list[str]:
    """Return the splits that have scores; raise an error if ``split`` is not one of them."""
    rows = (
        table.lazy()
        .filter(pl.col("output") == "ood")
        .select(pl.col("split").unique())
        .collect(engine="streaming")
    )
    names = sorted({name or "" for name in rows["split"]})
    reason = "F1 needs a threshold, which is chosen on a separate validation split"
    if names == [""] and split != "":
        raise SoritesError(
            f"{reason}, and the images of this table belong to no split. Use f1_at_tpr95, which needs none."
        )
    if names and (split is None or split not in names):
        problem = "no split was named" if split is None else f"there is no {split!r}"
        pass_one = f"Pass {parameter('split', 'NAME')} with one of {', '.join(map(repr, names))}."
        raise SoritesError(f"{reason}: {problem}. {pass_one}")
    return names


def _thresholds(table: Table, framework: str, split: str | None) -> list[tuple[tuple[str, ...], float]]:
    """Return the best threshold of each model and scorer on the rows of ``split``."""
    _, pools = groups(table.lazy().filter(pl.col("split") == pl.lit(split, pl.String)), BY_SCORER, framework)
    return [(group.key, best_threshold(group.pair)) for group in pools if group.pair is not None]


def best_threshold(two: Pair) -> float:
    """Return the threshold with the best F1 on these pools; it is always the score of an OOD image."""
    detected = len(two.ood) - two.ood.firsts
    flagged = detected + len(two.in_distribution) - two.below
    scores = 2 * detected / (flagged + len(two.ood))
    return float(two.ood.scores[len(scores) - 1 - int(np.argmax(scores[::-1]))])


def _f1_record(keys: Sequence[str], group: Group, threshold: float | None) -> dict[str, object]:
    record = {**dict(zip(keys, group.key, strict=True)), **group.counts, "threshold": threshold}
    if group.pair is None or threshold is None:
        return {**record, "value": None, "low": None, "high": None}
    return {**record, **_f1(group.pair, threshold)}


def _f1(two: Pair, threshold: float) -> dict[str, float | None]:
    detected, flagged = (pool.scores >= threshold for pool in (two.ood, two.in_distribution))
    size = separation.sample_count(two.ood, two.in_distribution)
    hits = two.ood.by_sample(detected, size)
    rows = two.ood.by_sample(np.ones(len(two.ood)), size) + two.in_distribution.by_sample(flagged, size)
    low, high = bounds.clustered_share_bounds(hits[rows > 0], rows[rows > 0])
    share = float(hits.sum() / rows.sum())
    return {"value": _from_jaccard(share), "low": _from_jaccard(low), "high": _from_jaccard(high)}


def _from_jaccard(share: float | None) -> float | None:
    return None if share is None else 2 * share / (1 + share)
