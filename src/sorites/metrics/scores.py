"""Scores and their distribution, and whether they rise where accuracy falls, over settings (ImageNet-ES)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._intervals import Z, normal_interval, wilson_interval
from sorites.metrics._pools import BY_SCORER, HAS_SCORE, framework_named, scored_rows
from sorites.metrics._rows import answer_frame
from sorites.metrics._stops import STOP, with_stops
from sorites.table import Table

SETTING = ("shift", "severity", "params")


@add_metric
def mean_score(table: Table, by: Sequence[str] = (*BY_SCORER, *SETTING)) -> pl.DataFrame:
    """Mean score of the judged pictures, with their ``accuracy``; normal interval over samples.

    The unit is that of the scorer; a larger score is stranger. ``n`` counts samples, each with the mean over its pictures. The
    bounds are null for a single sample.
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
    """Correlation (Pearson's and Spearman's) over settings of mean score and accuracy; near -1 the score predicts failure.

    A setting is a shift with a severity, or with the params that were asked for. ``n`` counts settings; the value is null with
    fewer than 3, or where one side does not vary. The interval is Fisher's, with Bonett and Wright's (2000) variance for ranks,
    from 4 settings on; it treats settings as independent, though they show the same samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    keys = list(dict.fromkeys([*wanted, *BY_SCORER]))
    points = mean_score(with_stops(table), [*keys, *STOP]).rename({"value": "score"})
    kinds = {"pearson": pl.corr("score", "accuracy"), "spearman": pl.corr("score", "accuracy", method="spearman")}
    numbers = {name: pl.when(pl.len() >= 3).then(number) for name, number in kinds.items()}
    wide = points.group_by(keys).agg(n=pl.len().cast(pl.Int64), **numbers)
    found = wide.unpivot(list(kinds), index=[*keys, "n"], variable_name="kind")
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value").clip(-1, 1))
    bounded = found.with_columns(value=value).with_columns(**_fisher())
    return answer_frame(bounded, keys, "value", "n", "low", "high", then=["kind"])


@add_metric
def score_histogram(table: Table, by: Sequence[str] = BY_SCORER, framework: str = "kind", bins: int = 40) -> pl.DataFrame:
    """Share of each pool's pictures in each of ``bins`` equal steps of the score (``bin`` from 0, ``left``, ``right``).

    The pools are the familiar and the strange pictures of a framework or, with ``framework="kind"``, ID, C-OOD and S-OOD. The
    steps are the same for all pools of a group and go from its 0.5 % to its 99.5 % point; the first and the last also hold the
    scores beyond. The interval is Wilson's by pictures; ``n`` counts the pool. A bin without a picture is absent.
    """
    if bins < 1:
        raise SoritesError(f"bins is a number of bins from 1 up, got {bins}")
    rows, keys = scored_rows(table, by)
    finite = pl.when(HAS_SCORE).then(pl.col("score").cast(pl.Float64))
    usable = rows.select(*keys, pool=_pool(framework), score=finite).drop_nulls(["pool", "score"])
    score, first, step = pl.col("score"), pl.col("first"), pl.col("step")
    ends = usable.group_by(keys).agg(first=score.quantile(0.005), step=(score.quantile(0.995) - score.quantile(0.005)) / bins)
    place = pl.when(step > 0).then(((score - first) / step).floor().clip(0, bins - 1)).otherwise(0).cast(pl.Int32)
    binned = usable.join(ends, on=keys, nulls_equal=True).with_columns(bin=place)
    counts = binned.group_by(*keys, "pool", "bin").agg(first.first(), step.first(), many=pl.len().cast(pl.Int64))
    shares = counts.with_columns(n=pl.col("many").sum().over(*keys, "pool"), left=first + pl.col("bin") * step)
    values = shares.with_columns(value=pl.col("many") / pl.col("n"), right=pl.col("left") + step)
    bounded = values.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", "left", "right", then=["pool", "bin"])


def _pool(framework: str) -> pl.Expr:
    if framework == "kind":
        return pl.col("kind")
    familiar, strange = framework_named(framework)
    return pl.when(strange).then(pl.lit("strange")).when(familiar).then(pl.lit("familiar"))


def _fisher() -> dict[str, pl.Expr]:
    """Return bounds computed on the scale of atanh, null where the correlation is perfect or has too few settings."""
    value, n = pl.col("value"), pl.col("n")
    wider = pl.when(pl.col("kind") == "spearman").then((1 + value**2 / 2).sqrt()).otherwise(1.0)
    half = pl.when((n > 3) & (value.abs() < 1)).then(Z * wider / (n - 3).cast(pl.Float64).sqrt())
    return {"low": (value.arctanh() - half).tanh(), "high": (value.arctanh() + half).tanh()}
