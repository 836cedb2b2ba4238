"""The solution space of a camera: at how many settings each sample is right, and how far two models want the same settings.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figure 13: the settings that are right vary with
the model and with the sample. Automatic shots are no choice of a setting and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import polars as pl

from sorites.core import add_metric
from sorites.metrics._intervals import clustered_wilson_interval, wilson_interval
from sorites.metrics._rows import SAMPLE_KEY, WHOLE, answer_frame, judged_rows, select_rows
from sorites.metrics.camera_settings import AUTO, DIALS, with_settings
from sorites.table import Table

OUTCOMES = ("both", "model only", "other only", "none")


@add_metric
def solution_space(table: Table, by: Sequence[str] = ("model", "light")) -> pl.DataFrame:
    """Share of samples that are right at exactly ``right`` of the manual camera settings; ``settings`` says of how many.

    ``n`` counts the samples that were judged at that many settings, once per model and, where ``by`` names it, per light.
    A number of settings that no sample has is absent. Wilson interval.
    """
    rows, keys = select_rows(with_settings(table).filter(~AUTO), by)
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY, "model"]))
    counted = judged_rows(rows).group_by(of_sample).agg(settings=pl.len().cast(pl.Int64), right=pl.col("correct").sum())
    counted = counted.with_columns(pl.col("right").cast(pl.Int64))
    held = counted.group_by(*keys, "settings", "right").agg(samples=pl.len().cast(pl.Int64))
    shares = held.with_columns(n=pl.col("samples").sum().over(*keys, "settings"))
    shares = shares.with_columns(value=pl.col("samples") / pl.col("n"))
    bounded = shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
    return answer_frame(bounded, keys, "value", "n", "low", "high", then=("settings", "right"))


@add_metric
def solution_overlap(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Share of (sample, manual camera setting) pairs that are right for both of two models, for one of them only, or for none.

    ``outcome`` is ``both``, ``model only``, ``other only`` or ``none``; a pair counts where both models were judged. ``n`` counts
    samples and ``pairs`` their settings. The interval is Wilson's with the effective number of pairs: settings of one sample
    are not independent. Further columns in ``by`` make separate groups.
    """
    rows, named = select_rows(with_settings(table).filter(~AUTO), by)
    keys = [key for key in named if key not in ("model", WHOLE)]
    seen = [*keys, *(key for key in (*SAMPLE_KEY, "image_id", "light", *DIALS) if key not in keys)]
    held = judged_rows(rows).select(*seen, "model", "correct").collect(engine="streaming")
    models = sorted(held["model"].drop_nulls().unique())
    one_model = {model: held.filter(pl.col("model") == model).drop("model") for model in models}
    parts = [
        _pair(one_model[first], one_model[second], seen, keys).with_columns(model=pl.lit(first), other=pl.lit(second))
        for first, second in combinations(models, 2)
    ]
    empty = held.clear().drop("model")
    found = parts or [_pair(empty, empty, seen, keys).with_columns(model=pl.lit("", pl.String), other=pl.lit("", pl.String))]
    return answer_frame(pl.concat(found), [*keys, "model", "other"], "value", "n", "low", "high", "pairs", then=("outcome",))


def _pair(one: pl.DataFrame, other: pl.DataFrame, seen: list[str], keys: list[str]) -> pl.DataFrame:
    both = one.lazy().join(other.lazy(), on=seen, nulls_equal=True, suffix="_other")
    first, second = pl.col("correct"), pl.col("correct_other")
    outcomes = dict(zip(OUTCOMES, (first & second, first & ~second, ~first & second, ~first & ~second), strict=True))
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY]))
    sums = both.group_by(of_sample).agg(pairs=pl.len(), **{name: held.sum() for name, held in outcomes.items()})
    long = sums.unpivot(OUTCOMES, index=[*of_sample, "pairs"], variable_name="outcome", value_name="hits")
    groups = [*keys, "outcome"]
    hits, pairs = pl.col("hits").cast(pl.Float64), pl.col("pairs").cast(pl.Float64)
    share = (hits.sum() / pairs.sum()).over(groups)
    residual = long.with_columns(value=share).with_columns(left=(hits - pl.col("value") * pairs) / pairs.mean().over(groups))
    pooled = residual.group_by(groups).agg(
        pl.col("value").first(), n=pl.len().cast(pl.Int64), pairs=pl.col("pairs").sum().cast(pl.Int64),
        spread=(pl.col("left") ** 2).mean(),
    )  # fmt: skip
    bounds = clustered_wilson_interval(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("pairs"))
    return pooled.with_columns(**bounds).drop("spread").collect(engine="streaming")


@add_metric
def disagreement(table: Table, by: Sequence[str] = ("shift", "sample_id")) -> pl.DataFrame:
    """Share of pairs of models of which one is right and the other wrong on the same image, averaged over images.

    By sample it names the pictures that tell models apart. Images that only one model was judged on are left out. ``n`` counts
    images where ``by`` names the sample, otherwise samples; the interval is Wilson's with their effective number.
    """
    rows, keys = select_rows(table, by)
    of_image = list(dict.fromkeys([*keys, "run_id", *SAMPLE_KEY, "image_id"]))
    k, m = pl.col("right").cast(pl.Float64), pl.col("models").cast(pl.Float64)
    images = (
        judged_rows(rows)
        .group_by(of_image)
        .agg(models=pl.len(), right=pl.col("correct").sum())
        .filter(pl.col("models") > 1)
        .with_columns(share=2 * k * (m - k) / (m * (m - 1)))
    )
    unit = of_image if "sample_id" in keys else list(dict.fromkeys([*keys, *SAMPLE_KEY]))
    units = images.group_by(unit).agg(pl.col("share").mean(), rows=pl.len())
    sums = units.group_by(keys).agg(
        pl.col("rows").sum(), value=pl.col("share").mean(), spread=pl.col("share").var(ddof=0), n=pl.len().cast(pl.Int64)
    )
    bounds = clustered_wilson_interval(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("rows"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high")
