"""What a grid of camera settings does to accuracy: the table of settings, its best and worst, and what control would gain.

A setting is ISO, shutter and aperture under one light; shots with automatic exposure stand apart (``exposure`` "auto"), whatever
values the camera chose. Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, tables 7-17.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.metrics._intervals import clustered_wilson, normal
from sorites.metrics._rows import SAMPLE, WHOLE, answer, ask, judged
from sorites.metrics.accuracy import accuracy, mean_accuracy
from sorites.table import Table

DIALS = ("iso", "shutter", "aperture")
SETTING = ("light", "exposure", *DIALS)
AUTO = pl.col("exposure") == "auto"


def with_settings(table: Table) -> pl.LazyFrame:
    """The rows of camera grids, with their params as columns; the dials of an automatic shot are null."""

    def field(name: str) -> pl.Expr:
        return pl.col("params").str.json_path_match(f"$.{name}")

    rows = table.lazy().filter((pl.col("shift") != CLEAN) & pl.col("severity").is_null())
    told = (
        rows.select(pl.col("params").unique())
        .with_columns(light=field("light"), exposure=field("mode"), **{name: field(name).cast(pl.Float64) for name in DIALS})
        .filter(AUTO | pl.col("iso").is_not_null())
        .with_columns(pl.col("exposure").fill_null("manual"))
        .with_columns(pl.when(~AUTO).then(name).alias(name) for name in DIALS)
    )
    return rows.join(told, on="params", maintain_order="left")


@add_metric
def setting_accuracy(table: Table, by: Sequence[str] = ("model", *SETTING)) -> pl.DataFrame:
    """Accuracy at each setting of a camera grid, automatic shots pooled; Wilson interval."""
    return accuracy(with_settings(table), by)


@add_metric
def setting_table(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """The ``best``, ``worst`` and ``average`` setting and the ``auto`` shots, by ``light``: each light, ``both``, ``difference``.

    ``difference`` is |on - off| at the same setting: its best is the least over settings, its worst the greatest. The dials
    of a best or worst setting stand beside it, and its interval is that of the one setting, chosen after looking.
    """
    _, keys = ask(table, by)
    where = [key for key in keys if key != WHOLE]
    each = setting_accuracy(table, [*where, *SETTING]).filter(pl.col("n") > 0)
    manual = each.filter(~AUTO)
    lights = pl.concat([manual, manual.with_columns(light=pl.lit("both", pl.String))])
    chosen = [_end(lights, [*where, "light"], what) for what in ("best", "worst")]
    found = pl.concat([*chosen, *_means(table, where), *_differences(each, where)], how="diagonal")
    return answer(found, where, "value", "n", "low", "high", *DIALS, then=("light", "what"))


def _end(settings: pl.DataFrame, keys: list[str], what: str) -> pl.DataFrame:
    ordered = settings.sort("value", *SETTING, descending=[what == "best", *(False for _ in SETTING)])
    first = ordered.unique(keys, keep="first", maintain_order=True)
    return first.select(*keys, "value", "n", "low", "high", *DIALS, what=pl.lit(what))


def _means(table: Table, where: list[str]) -> list[pl.DataFrame]:
    rows = with_settings(table)
    lights = pl.concat([rows, rows.with_columns(light=pl.lit("both", pl.String))])
    parts = {"average": lights.filter(~AUTO), "auto": lights.filter(AUTO)}
    return [mean_accuracy(part, [*where, "light"]).with_columns(what=pl.lit(what)) for what, part in parts.items()]


def _differences(each: pl.DataFrame, where: list[str]) -> list[pl.DataFrame]:
    """|on - off| of every setting and of the automatic shots, summed up."""
    sides = (each.filter(pl.col("light") == light).select(*where, "exposure", *DIALS, "value", "n") for light in ("on", "off"))
    on, off = sides
    both = on.join(off, on=[*where, "exposure", *DIALS], nulls_equal=True, suffix="_off")
    apart = both.select(
        *where, *SETTING[1:], light=pl.lit("difference"), value=(pl.col("value") - pl.col("value_off")).abs(), n=pl.col("n")
    ).with_columns(low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64))
    manual, keys = apart.filter(~AUTO), [*where, "light"]
    mean = manual.group_by(keys).agg(pl.col("value").mean(), pl.col("n").sum()).with_columns(what=pl.lit("average"))
    auto = apart.filter(AUTO).select(*keys, "value", "n", what=pl.lit("auto"))
    ends = [
        _end(manual, keys, "worst").with_columns(what=pl.lit("best")),
        _end(manual, keys, "best").with_columns(what=pl.lit("worst")),
    ]
    return [*ends, mean, auto]


@add_metric
def setting_share(table: Table, by: Sequence[str] = ("model", "sample_id")) -> pl.DataFrame:
    """Of the manual settings tried, the share at which the model is right; asked by sample, how easy a picture is to take."""
    shares = accuracy(with_settings(table).filter(~AUTO), by).filter(pl.col("n") > 0)
    return shares.drop("missing")


@add_metric
def camera_control(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """What choosing the setting for the model would give, by ``policy``, over samples, each a mean over its lights.

    ``auto``: the camera's own exposure. ``average``: a setting at random. ``fixed``: the one setting of most right answers, for
    all samples and lights. ``oracle``: for each sample and light a setting that is right, where there is one. ``gain`` is the
    rise over ``auto`` of the same samples, with its interval. Both choices are made on the rows they are judged on.
    """
    rows, keys = ask(with_settings(table), by)
    shots = judged(rows)
    scenes = _scenes(shots, keys)
    of_sample = scenes.group_by(*keys, *(key for key in SAMPLE if key not in keys)).agg(pl.col(POLICIES).mean())
    long = of_sample.with_columns(start=pl.col("auto")).unpivot(
        POLICIES, index=[*keys, "start"], variable_name="policy", value_name="share"
    )
    risen = pl.col("share") - pl.col("start")
    sums = long.drop_nulls("share").group_by(*keys, "policy").agg(
        value=pl.col("share").mean(), spread=pl.col("share").var(ddof=0), n=pl.len().cast(pl.Int64),
        gain=risen.mean(), vary=risen.var(ddof=0) / pl.len(),
    )  # fmt: skip
    known = pl.when((pl.col("policy") != "auto") & pl.col("gain").is_not_null())
    bounds = {f"gain_{name}": known.then(bound.clip(-1, 1)) for name, bound in normal(pl.col("gain"), pl.col("vary")).items()}
    whole = sums.with_columns(
        **clustered_wilson(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("n")), **bounds, gain=known.then(pl.col("gain"))
    )
    return answer(whole, keys, "value", "n", "low", "high", "gain", "gain_low", "gain_high", then=("policy",))


POLICIES = ("auto", "average", "fixed", "oracle")


def _scenes(shots: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """One row a sample and light, with what each policy gets there."""
    right = pl.col("correct").cast(pl.Float64)
    manual = shots.filter(~AUTO)
    order = [*(pl.col(name) for name in DIALS)]
    best = (
        manual.group_by(*keys, *DIALS)
        .agg(share=right.mean())
        .sort(pl.col("share"), *order, descending=[True, False, False, False])
        .unique(keys, keep="first", maintain_order=True)
        .select(*keys, *DIALS, chosen=pl.lit(True))
    )
    marked = shots.join(best, on=[*keys, *DIALS], how="left", nulls_equal=True)
    hand = right.filter(~AUTO)
    policies = {
        "auto": right.filter(AUTO).mean(),
        "average": hand.mean(),
        "fixed": right.filter(~AUTO & pl.col("chosen")).mean(),
        "oracle": hand.max(),
    }
    return marked.group_by(*keys, *(key for key in (*SAMPLE, "light") if key not in keys)).agg(**policies)
