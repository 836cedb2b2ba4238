"""The scores themselves: how they are spread, and whether they rise where accuracy falls, setting by setting (ImageNet-ES)."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import add_metric
from sorites.errors import SoritesError
from sorites.metrics._intervals import Z, normal, wilson
from sorites.metrics._pools import JUDGE, SOUND, framework_named, scored
from sorites.metrics._rows import answer
from sorites.table import Table

SETTING = ("shift", "severity", "params")


@add_metric
def mean_score(table: Table, by: Sequence[str] = (*JUDGE, *SETTING)) -> pl.DataFrame:
    """Mean score of the judged pictures, beside their ``accuracy``; normal interval over samples; null bounds for a single one.

    The unit is the scorer's own; larger is stranger. ``n`` counts samples, each with the mean over its pictures.
    """
    rows, keys = scored(table, by)
    held = rows.filter(SOUND & pl.col("correct").is_not_null())
    score, right = pl.col("score").cast(pl.Float64), pl.col("correct").cast(pl.Float64)
    samples = held.group_by(*keys, "sample").agg(score=score.mean(), right=right.mean())
    means = samples.group_by(keys).agg(
        value=pl.col("score").mean(),
        n=pl.len().cast(pl.Int64),
        variance=pl.col("score").var() / pl.len(),
        accuracy=pl.col("right").mean(),
    )
    bounded = means.with_columns(**normal(pl.col("value"), pl.col("variance")))
    return answer(bounded, keys, "value", "n", "low", "high", "accuracy")


@add_metric
def score_accuracy(table: Table, by: Sequence[str] = JUDGE) -> pl.DataFrame:
    """Correlation over settings of the mean score with the accuracy, Pearson's and Spearman's; near -1 the score knows.

    A setting is a shift, severity and params. ``n`` counts settings; null with fewer than 3, or where one side does not vary.
    The interval is Fisher's, with Bonett and Wright's (2000) variance for ranks, from 4 settings on; it takes settings as
    independent, though they show the same samples.
    """
    wanted = [by] if isinstance(by, str) else list(by)
    keys = list(dict.fromkeys([*wanted, *JUDGE]))
    points = mean_score(table, [*keys, *SETTING]).rename({"value": "score"})
    kinds = {"pearson": pl.corr("score", "accuracy"), "spearman": pl.corr("score", "accuracy", method="spearman")}
    numbers = {name: pl.when(pl.len() >= 3).then(number) for name, number in kinds.items()}
    wide = points.group_by(keys).agg(n=pl.len().cast(pl.Int64), **numbers)
    found = wide.unpivot(list(kinds), index=[*keys, "n"], variable_name="kind")
    value = pl.when(pl.col("value").is_finite()).then(pl.col("value").clip(-1, 1))
    bounded = found.with_columns(value=value).with_columns(**_fisher())
    return answer(bounded, keys, "value", "n", "low", "high", then=["kind"])


@add_metric
def score_histogram(table: Table, by: Sequence[str] = JUDGE, framework: str = "kind", bins: int = 40) -> pl.DataFrame:
    """Share of each pool's pictures in each of ``bins`` equal steps of the score (``bin`` from 0, ``left``, ``right``).

    The pools are those of a framework, familiar and strange; or, by ``kind``, ID, C-OOD and S-OOD. The steps are the same for all
    pools of a group and go from its 0.5 % to its 99.5 % point; the first and the last hold what lies beyond. Wilson interval by
    pictures; ``n`` counts the pool. A bin without a picture is absent.
    """
    if bins < 1:
        raise SoritesError(f"bins is a number of bins from 1 up, got {bins}")
    rows, keys = scored(table, by)
    held = rows.select(*keys, pool=_pool(framework), score=pl.when(SOUND).then(pl.col("score").cast(pl.Float64))).drop_nulls(
        ["pool", "score"]
    )
    score, first, step = pl.col("score"), pl.col("first"), pl.col("step")
    ends = held.group_by(keys).agg(first=score.quantile(0.005), step=(score.quantile(0.995) - score.quantile(0.005)) / bins)
    place = pl.when(step > 0).then(((score - first) / step).floor().clip(0, bins - 1)).otherwise(0).cast(pl.Int32)
    binned = held.join(ends, on=keys, nulls_equal=True).with_columns(bin=place)
    counts = binned.group_by(*keys, "pool", "bin").agg(first.first(), step.first(), many=pl.len().cast(pl.Int64))
    shares = counts.with_columns(n=pl.col("many").sum().over(*keys, "pool"), left=first + pl.col("bin") * step)
    values = shares.with_columns(value=pl.col("many") / pl.col("n"), right=pl.col("left") + step)
    bounded = values.with_columns(**wilson(pl.col("value"), pl.col("n")))
    return answer(bounded, keys, "value", "n", "low", "high", "left", "right", then=["pool", "bin"])


def _pool(framework: str) -> pl.Expr:
    if framework == "kind":
        return pl.col("kind")
    familiar, strange = framework_named(framework)
    return pl.when(strange).then(pl.lit("strange")).when(familiar).then(pl.lit("familiar"))


def _fisher() -> dict[str, pl.Expr]:
    """Bounds on the scale of atanh, null where the correlation is perfect or has too few settings."""
    value, n = pl.col("value"), pl.col("n")
    wider = pl.when(pl.col("kind") == "spearman").then((1 + value**2 / 2).sqrt()).otherwise(1.0)
    half = pl.when((n > 3) & (value.abs() < 1)).then(Z * wider / (n - 3).cast(pl.Float64).sqrt())
    return {"low": (value.arctanh() - half).tanh(), "high": (value.arctanh() + half).tanh()}
