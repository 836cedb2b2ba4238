"""Accuracy over a grid of camera settings: per setting, best, worst, and under policies that choose a
setting.

The splits of a dataset (ImageNet-ES has other settings in its validation split) are separate groups unless
``by`` leaves them out; a notice then says that they are pooled. A camera setting is ISO, shutter and aperture
under one light. Shots with automatic exposure are a separate group (``exposure`` "auto") whatever values the
camera chose. See Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, tables
7-17.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import polars as pl
from scipy.special import ndtri

from sorites.core import CLEAN, add_metric
from sorites.core.errors import Notice, tell
from sorites.core.rng import digest
from sorites.core.table import Table
from sorites.metrics.accuracy import accuracy, mean_accuracy
from sorites.metrics.intervals import (
    Z,
    cluster_sums,
    clustered_share,
    clustered_wilson_interval,
    paired_interval,
    share_intervals,
)
from sorites.metrics.rows import (
    REAL_SAMPLES,
    SAMPLE,
    SAMPLE_HASH,
    SAMPLE_KEY,
    WHOLE,
    answer_frame,
    count_samples,
    judged_rows,
    select_rows,
)

DIALS = ("iso", "shutter", "aperture")
SETTING = ("light", "exposure", *DIALS)
AUTO = pl.col("exposure") == "auto"
SPLIT = "split"
# Groups of samples; settings that are learnt for one are learnt on the others.
FOLDS = 5
# The share of cases that are above, or below, a two-sided 95 % interval.
TAIL = 0.025


def with_settings(table: Table) -> pl.LazyFrame:
    """Return the rows of camera grids with their params as columns; ISO, shutter and aperture of automatic
    shots are null.
    """

    def field(name: str) -> pl.Expr:
        return pl.col("params").str.json_path_match(f"$.{name}")

    rows = table.lazy().filter((pl.col("shift") != CLEAN) & pl.col("severity").is_null())
    parsed = (
        rows.select(pl.col("params").unique())
        .with_columns(
            light=field("light"),
            exposure=field("mode"),
            **{name: field(name).cast(pl.Float64) for name in DIALS},
        )
        .filter(AUTO | pl.col("iso").is_not_null())
        .with_columns(pl.col("exposure").fill_null("manual"))
        .with_columns(pl.when(~AUTO).then(name).alias(name) for name in DIALS)
    )
    return rows.join(parsed, on="params", maintain_order="left")


def fold_of(sample: str) -> int:
    """Return the fold of a sample, by its name: what is learnt on other folds is judged on this one."""
    return int.from_bytes(digest(sample, "control policies", size=4), "big") % FOLDS


def _folds(samples: pl.Series) -> pl.Series:
    names = samples.unique()
    return samples.replace_strict(names, [fold_of(name) for name in names], return_dtype=pl.Int64)


def splits_of(table: Table) -> list[str]:
    """Return the splits of the rows of camera grids, sorted; samples without one have the name ""."""
    rows = with_settings(table)
    names = rows.select(pl.col(SPLIT).fill_null("").unique()).collect(engine="streaming")[SPLIT]
    return sorted(names)


def tell_pooled(table: Table, by: Sequence[str]) -> None:
    """Issue a notice if a metric of camera grids, grouped by ``by``, pools several splits."""
    identifying = {SPLIT, "sample_id", "image_id"}
    if identifying.isdisjoint([by] if isinstance(by, str) else by) and len(names := splits_of(table)) > 1:
        quoted = ", ".join(map(repr, names))
        tell(
            Notice(
                f"the splits {quoted} are pooled, which have different images and perhaps settings; group by"
                " split too",
                code="splits_pooled",
                splits=names,
            ),
            3,
        )


@add_metric
def setting_accuracy(table: Table, by: Sequence[str] = ("model", SPLIT, *SETTING)) -> pl.DataFrame:
    """Accuracy at each setting of a camera grid, with automatic shots pooled; Wilson interval."""
    tell_pooled(table, by)
    return accuracy(with_settings(table), by)


@add_metric
def setting_table(table: Table, by: Sequence[str] = ("model", SPLIT)) -> pl.DataFrame:
    """Accuracy of the best, worst and average camera setting and of automatic exposure (``what``), by
    ``light``.

    ``light`` is each light, ``both`` or ``difference``. The difference is |on - off| at the same
    setting: its best is the minimum over settings, its worst the maximum. The interval of a best or
    worst setting allows for the choice among all of them.
    """
    _, keys = select_rows(table, by)
    group_columns = [key for key in keys if key != WHOLE]
    by_setting = setting_accuracy(table, [*group_columns, *SETTING]).filter(pl.col("n") > 0)
    lights = _bounded(table, group_columns)
    chosen = [_chosen(lights, [*group_columns, "light"], what) for what in ("best", "worst")]
    combined = pl.concat(
        [*chosen, *_means(table, group_columns), *_differences(by_setting, group_columns)], how="diagonal"
    )
    return answer_frame(combined, group_columns, "value", "n", "low", "high", *DIALS, then=("light", "what"))


def _bounded(table: Table, group_columns: list[str]) -> pl.DataFrame:
    """Return the accuracy of each manual setting with its bounds (``low``, ``high``) and, as ``least`` and
    ``most``, those that hold jointly for all settings of a light (Bonferroni).
    """
    cells = [*group_columns, *SETTING]
    rows, _ = select_rows(with_settings(table).filter(~AUTO), cells)
    counts = count_samples(judged_rows(rows), cells, pl.col("correct"))
    sums = cluster_sums(counts, cells).collect(engine="streaming")
    lights = pl.concat([sums, sums.with_columns(light=pl.lit("both", pl.String))])
    settings = lights.select(pl.len().over([*group_columns, "light"])).to_series().to_numpy()
    jointly = pl.lit(pl.Series(ndtri(1 - TAIL / settings)))
    own, joint = (share_intervals(lights.lazy(), cells, z=z).collect() for z in (Z, jointly))
    return own.with_columns(least=joint["low"], most=joint["high"])


def _chosen(settings: pl.DataFrame, keys: list[str], what: str) -> pl.DataFrame:
    """Return the best or worst of the settings of ``_bounded``, with an interval that allows for the choice.

    The best accuracy is that of some setting, and at least that of every setting: it is below the highest of
    their upper bounds, and above the highest of the lower bounds that hold jointly.
    """
    best = what == "best"
    bounds = {"low": pl.max("least"), "high": pl.max("high")} if best else {
        "low": pl.min("low"), "high": pl.min("most")
    }  # fmt: skip
    ends = settings.group_by(keys).agg(**bounds)
    return _extreme(settings, keys, what).drop("low", "high").join(ends, on=keys, nulls_equal=True)


def _extreme(settings: pl.DataFrame, keys: list[str], what: str) -> pl.DataFrame:
    """Return the best or worst setting of each group; ties are ordered by the setting."""
    ordered = settings.sort("value", *SETTING, descending=[what == "best", *(False for _ in SETTING)])
    first = ordered.unique(keys, keep="first", maintain_order=True)
    return first.select(*keys, "value", "n", "low", "high", *DIALS, what=pl.lit(what))


def _means(table: Table, group_columns: list[str]) -> list[pl.DataFrame]:
    rows = with_settings(table)
    lights = pl.concat([rows, rows.with_columns(light=pl.lit("both", pl.String))])
    parts = {"average": lights.filter(~AUTO), "auto": lights.filter(AUTO)}
    return [
        mean_accuracy(part, [*group_columns, "light"]).with_columns(what=pl.lit(what))
        for what, part in parts.items()
    ]


def _differences(by_setting: pl.DataFrame, group_columns: list[str]) -> list[pl.DataFrame]:
    """Summarise |on - off| over settings and of the automatic shots: best, worst, average, auto."""
    sides = (
        by_setting.filter(pl.col("light") == light).select(*group_columns, "exposure", *DIALS, "value", "n")
        for light in ("on", "off")
    )
    on, off = sides
    both = on.join(off, on=[*group_columns, "exposure", *DIALS], nulls_equal=True, suffix="_off")
    gaps = both.select(
        *group_columns,
        *SETTING[1:],
        light=pl.lit("difference"),
        value=(pl.col("value") - pl.col("value_off")).abs(),
        n=pl.col("n"),
    ).with_columns(low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64))
    manual, keys = gaps.filter(~AUTO), [*group_columns, "light"]
    mean = (
        manual.group_by(keys)
        .agg(pl.col("value").mean(), pl.col("n").sum())
        .with_columns(what=pl.lit("average"))
    )
    auto = gaps.filter(AUTO).select(*keys, "value", "n", what=pl.lit("auto"))
    ends = [
        _extreme(manual, keys, "worst").with_columns(what=pl.lit("best")),
        _extreme(manual, keys, "best").with_columns(what=pl.lit("worst")),
    ]
    return [*ends, mean, auto]


@add_metric
def setting_share(table: Table, by: Sequence[str] = ("model", "sample_id")) -> pl.DataFrame:
    """Share of the manual camera settings at which the model is correct; by sample, how easy the sample is
    to photograph.
    """
    shares = accuracy(with_settings(table).filter(~AUTO, REAL_SAMPLES), by).filter(pl.col("n") > 0)
    return shares.drop("missing")


@add_metric
def camera_control(table: Table, by: Sequence[str] = ("model", SPLIT)) -> pl.DataFrame:
    """Accuracy under each ``policy`` of choosing the camera setting, averaged over the lights of a sample,
    then over samples.

    ``auto`` is the camera's automatic exposure. ``average`` is a random setting. ``fixed`` is the
    single setting with the highest accuracy for all samples and lights, learnt on other samples than those
    it is judged on (five folds, those of ``control_policies``); it is absent if no group has other samples.
    ``oracle`` chooses a correct setting for each sample and light where there is one, an upper bound.
    ``gain`` is the improvement over ``auto`` on the same samples, with its interval.
    """
    tell_pooled(table, by)
    rows, keys = select_rows(with_settings(table), by)
    shots = judged_rows(rows).filter(REAL_SAMPLES)
    scenes = _scenes(shots, keys)
    of_sample = [*keys, *(key for key in SAMPLE_KEY if key not in keys)]
    parts = [
        scenes.group_by(of_sample).agg(
            policy=pl.lit(name),
            share=pl.col(name).mean(),
            start=pl.col("auto").mean(),
            weights=effective_weight(pl.col(f"shots of {name}").filter(pl.col(name).is_not_null())),
        )
        for name in POLICIES
    ]
    gain, share, n = pl.col("share") - pl.col("start"), pl.col("share"), pl.col("n")
    sums = pl.concat(parts).drop_nulls("share").group_by(*keys, "policy").agg(
        value=share.mean(), spread=share.var(ddof=0), n=pl.len().cast(pl.Int64),
        rows=pl.len().cast(pl.Float64) ** 2 / pl.col("weights").sum(),
        gain=gain.mean(), square=(gain**2).mean(), apart=gain.abs().mean(), pairs=gain.count(),
    )  # fmt: skip
    has_gain = pl.when((pl.col("policy") != "auto") & pl.col("gain").is_not_null())
    interval = paired_interval(pl.col("gain"), pl.col("square"), pl.col("apart"), pl.col("pairs"))
    bounds = {f"gain_{name}": has_gain.then(bound) for name, bound in interval.items()}
    shares = clustered_wilson_interval(pl.col("value"), pl.col("spread"), n, pl.col("rows"))
    combined = sums.with_columns(**shares, **bounds, gain=has_gain.then(pl.col("gain")))
    return answer_frame(
        combined, keys, "value", "n", "low", "high", "gain", "gain_low", "gain_high", then=("policy",)
    )


def effective_weight(shots: pl.Expr) -> pl.Expr:
    """Return the sum of the squared weights of the shots of a sample, given their number at each light.

    Lights have the same weight, as do the shots of a light.
    """
    return (1 / shots.cast(pl.Float64)).sum() / shots.count().cast(pl.Float64) ** 2


POLICIES = ("auto", "average", "fixed", "oracle")


def _scenes(shots: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return one row per sample and light, with the accuracy of each policy and the shots it is a mean of."""
    correct = pl.col("correct").cast(pl.Float64)
    folded = shots.with_columns(fold=pl.col("sample_id").map_batches(_folds, pl.Int64, is_elementwise=True))
    best = _best_of_others(folded.filter(~AUTO), keys)
    marked = folded.join(best, on=[*keys, "fold", *DIALS], how="left", nulls_equal=True)
    manual = correct.filter(~AUTO)
    chosen = {
        "auto": correct.filter(AUTO),
        "average": manual,
        "fixed": correct.filter(~AUTO & pl.col("chosen")),
    }
    counts = {f"shots of {name}": part.count() for name, part in chosen.items()}
    return marked.group_by(*keys, *(key for key in (*SAMPLE_KEY, "light") if key not in keys)).agg(
        **{name: part.mean() for name, part in chosen.items()},
        oracle=manual.max(),
        **counts,
        **{"shots of oracle": pl.lit(1)},
    )


def _best_of_others(manual: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return, per group and fold, the setting of highest accuracy on the other folds; ties are ordered by the
    setting.
    """
    of_fold = manual.group_by(*keys, *DIALS, "fold").agg(
        right=pl.col("correct").cast(pl.Float64).sum(), shots=pl.len().cast(pl.Int64)
    )
    folds = of_fold.select(*keys, "fold").unique()
    settings = of_fold.group_by(*keys, *DIALS).agg(pl.col("right", "shots").sum())
    pairs = folds.join(settings, on=keys, nulls_equal=True).join(
        of_fold, on=[*keys, *DIALS, "fold"], how="left", nulls_equal=True, suffix="_own"
    )
    right, shots = (pl.col(name) - pl.col(f"{name}_own").fill_null(0) for name in ("right", "shots"))
    shares = pairs.filter(shots > 0).select(*keys, "fold", *DIALS, share=right / shots)
    ordered = shares.sort("share", *DIALS, descending=[True, *(False for _ in DIALS)])
    first = ordered.unique([*keys, "fold"], keep="first", maintain_order=True)
    return first.select(*keys, "fold", *DIALS, chosen=pl.lit(True))


# The solution space of a camera: the settings at which a sample is classified correctly.

OUTCOMES = ("both", "model only", "other only", "none")


@add_metric
def solution_space(table: Table, by: Sequence[str] = ("model", SPLIT, "light")) -> pl.DataFrame:
    """Share of samples that are correct at exactly ``right`` of the manual camera settings; ``settings``
    is their number.

    ``n`` counts the samples that were judged at that many settings, once per model and, where ``by``
    names it, per light. Numbers of settings without samples are absent. The interval is Wilson's with their
    effective number, because a sample counts several times where models or lights are pooled.
    """
    tell_pooled(table, by)
    rows, keys = select_rows(with_settings(table).filter(~AUTO), by)
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY, "model"]))
    counted = (
        judged_rows(rows)
        .group_by(of_sample)
        .agg(settings=pl.len().cast(pl.Int64), right=pl.col("correct").sum().cast(pl.Int64))
    )
    alike = [*keys, "settings", SAMPLE]
    hits = counted.group_by(*keys, "settings", "right", SAMPLE_HASH.alias(SAMPLE)).agg(
        hits=pl.len().cast(pl.Int64)
    )
    of_settings = hits.group_by(alike).agg(rows=pl.col("hits").sum())
    outcomes = hits.select(*keys, "settings", "right").unique()
    counts = of_settings.join(outcomes, on=[*keys, "settings"], nulls_equal=True).join(
        hits, on=[*alike, "right"], how="left", nulls_equal=True
    )
    columns = [*keys, "settings", "right"]
    shares = clustered_share(counts.with_columns(pl.col("hits").fill_null(0)), columns)
    return answer_frame(shares, keys, "value", "n", "low", "high", then=("settings", "right"))


@add_metric
def solution_overlap(table: Table, by: Sequence[str] = ("model", SPLIT)) -> pl.DataFrame:
    """Share of (sample, manual camera setting) pairs that are correct for both of two models, for one of
    them, or for none.

    ``outcome`` is ``both``, ``model only``, ``other only`` or ``none``; a pair counts where both models
    were judged. ``n`` counts samples and ``pairs`` their settings. The interval is Wilson's with the
    effective number of pairs, because settings of one sample are not independent. Further columns in
    ``by`` form separate groups.
    """
    tell_pooled(table, by)
    rows, columns = select_rows(with_settings(table).filter(~AUTO), by)
    keys = [key for key in columns if key not in ("model", WHOLE)]
    pair_key = [*keys, *(key for key in (*SAMPLE_KEY, "image_id", "light", *DIALS) if key not in keys)]
    judged = judged_rows(rows).select(*pair_key, "model", "correct").collect(engine="streaming")
    models = sorted(judged["model"].drop_nulls().unique())
    one_model = {model: judged.filter(pl.col("model") == model).drop("model") for model in models}
    parts = [
        _overlap(one_model[first], one_model[second], pair_key, keys).with_columns(
            model=pl.lit(first), other=pl.lit(second)
        )
        for first, second in combinations(models, 2)
    ]
    empty = judged.clear().drop("model")
    frames = parts or [
        _overlap(empty, empty, pair_key, keys).with_columns(
            model=pl.lit("", pl.String), other=pl.lit("", pl.String)
        )
    ]
    asked = [key for key in columns if key != WHOLE]
    order = [*asked, *(() if "model" in asked else ("model",)), "other"]
    return answer_frame(pl.concat(frames), order, "value", "n", "low", "high", "pairs", then=("outcome",))


def _overlap(model: pl.DataFrame, other: pl.DataFrame, pair_key: list[str], keys: list[str]) -> pl.DataFrame:
    both = model.lazy().join(other.lazy(), on=pair_key, nulls_equal=True, suffix="_other")
    first, second = pl.col("correct"), pl.col("correct_other")
    outcomes = dict(
        zip(OUTCOMES, (first & second, first & ~second, ~first & second, ~first & ~second), strict=True)
    )
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY]))
    sums = both.group_by(of_sample).agg(
        pairs=pl.len(), **{name: outcome.sum() for name, outcome in outcomes.items()}
    )
    # Residuals of the ratio estimator hits / pairs give the variance between samples.
    long = sums.unpivot(OUTCOMES, index=[*of_sample, "pairs"], variable_name="outcome", value_name="hits")
    groups = [*keys, "outcome"]
    hits, pairs = pl.col("hits").cast(pl.Float64), pl.col("pairs").cast(pl.Float64)
    share = (hits.sum() / pairs.sum()).over(groups)
    residual = long.with_columns(value=share).with_columns(
        left=(hits - pl.col("value") * pairs) / pairs.mean().over(groups)
    )
    pooled = residual.group_by(groups).agg(
        pl.col("value").first(), n=pl.len().cast(pl.Int64), pairs=pl.col("pairs").sum().cast(pl.Int64),
        spread=(pl.col("left") ** 2).mean(),
    )  # fmt: skip
    bounds = clustered_wilson_interval(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("pairs"))
    return pooled.with_columns(**bounds).drop("spread").collect(engine="streaming")


@add_metric
def disagreement(table: Table, by: Sequence[str] = ("shift", "sample_id")) -> pl.DataFrame:
    """Share of model pairs of which exactly one is correct on an image, averaged over images.

    By sample, it identifies the images that discriminate between models. Images that only one model was
    judged on are left out. ``n`` counts images where ``by`` names the sample, otherwise samples; the
    interval is Wilson's with their effective number.
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
        pl.col("rows").sum(),
        value=pl.col("share").mean(),
        spread=pl.col("share").var(ddof=0),
        n=pl.len().cast(pl.Int64),
    )
    bounds = clustered_wilson_interval(pl.col("value"), pl.col("spread"), pl.col("n"), pl.col("rows"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high")
