"""Accuracy and its drop under shifts.

Where several images of a sample are pooled, the sample is the unit: outcomes are averaged over the
settings of each shift, then over shifts, then over samples. Every shift has the same weight however
many settings it has, and intervals do not treat images of one sample as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command
from sorites.core.table import Table
from sorites.io.paths import path_of
from sorites.io.tables import sheet
from sorites.metrics.intervals import (
    clustered_wilson_interval,
    normal_interval,
    paired_interval,
    wilson_interval,
)
from sorites.metrics.rows import (
    CLEAN_KEY,
    ON_GRID,
    REAL_SAMPLES,
    SAMPLE_KEY,
    WHOLE,
    answer_frame,
    judged_rows,
    model_by_model,
    select_rows,
    with_clean,
)


@add_metric
def accuracy(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Share of judged rows that are correct; Wilson interval; ``missing`` counts rows with an error
    instead.

    A group with only errors has a null value. Every row has the same weight. Where ``by`` pools several
    settings of one sample, the interval is over samples; use ``mean_accuracy`` to weight every shift
    equally.
    """
    rows, keys = select_rows(table, by)
    on_grid = rows.filter(ON_GRID)
    sums = _count(on_grid, keys, [*keys, SAMPLE] if _pools(on_grid, keys) else keys)
    n = pl.col("n")
    shares = sums.filter(n + pl.col("missing") > 0).with_columns(
        value=pl.when(n > 0).then(pl.col("right") / n)
    )
    p = pl.col("value")
    spread = pl.col("samples") * (pl.col("rr") - 2 * p * pl.col("rn") + p**2 * pl.col("nn")) / n**2
    pooled = clustered_wilson_interval(p, spread, pl.col("samples"), n)
    plain = wilson_interval(p, n)
    bounds = {end: pl.when(pl.col("samples") == n).then(plain[end]).otherwise(pooled[end]) for end in plain}
    return answer_frame(shares.with_columns(**bounds), keys, "value", "n", "low", "high", "missing")


# A temporary column: the hash of a sample's key.
SAMPLE = "(sample)"


def _pools(rows: pl.LazyFrame, keys: list[str]) -> bool:
    """Return whether a group may contain several rows of one sample."""
    if "image_id" in keys and "model" in keys:
        return False
    if not {"model", "shift", "severity"} <= set(keys):
        return True
    several_runs_or_seeds = pl.struct("run_id", "seed").n_unique() > 1
    unordered = (pl.col("severity").is_null() & pl.col("correct").is_not_null()).any()
    return bool(rows.select(several_runs_or_seeds | unordered).collect(engine="streaming").item())


def _count(rows: pl.LazyFrame, keys: list[str], unit: list[str]) -> pl.LazyFrame:
    """Count rows, correct rows and missing rows, with the sums that the variance between samples needs.

    If ``unit`` equals ``keys``, every row counts as a separate sample.
    """
    succeeded = pl.col("error").is_null()
    n, correct = pl.col("n"), pl.col("right")
    counts = rows.with_columns(pl.struct(SAMPLE_KEY).hash().alias(SAMPLE)) if SAMPLE in unit else rows
    per_unit = counts.group_by(unit).agg(
        n=(succeeded & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
        right=(succeeded & pl.col("correct")).sum().cast(pl.Int64),
        missing=succeeded.not_().sum().cast(pl.Int64),
    )
    if SAMPLE not in unit:
        return per_unit.with_columns(samples=n, nn=n, rn=correct, rr=correct)
    return per_unit.group_by(keys).agg(
        n.sum(), correct.sum(), pl.col("missing").sum(), samples=(n > 0).sum().cast(pl.Int64),
        nn=(n * n).sum(), rn=(correct * n).sum(), rr=(correct * correct).sum(),
    )  # fmt: skip


@add_metric
def mean_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over the settings of each shift, then over shifts and samples, without clean images;
    ``n`` counts samples.

    The interval is Wilson's with the effective number of images. A sample without some setting or shift
    is averaged over the rest.
    """
    rows, keys = select_rows(table, by)
    shifted = judged_rows(rows).filter(pl.col("shift") != CLEAN)
    sums = over_samples(shifted, keys, value=pl.col("correct").cast(pl.Float64))
    value, n = pl.col("value"), pl.col("n")
    spread = pl.col("value_squared") - value**2
    bounded = sums.with_columns(**clustered_wilson_interval(value, spread, n, pl.col("rows")))
    return answer_frame(bounded, keys, "value", "n", "low", "high")


@add_metric
def accuracy_drop(table: Table, by: Sequence[str] = ("model", "shift", "severity")) -> pl.DataFrame:
    """Clean accuracy minus shifted accuracy of the same samples, as a fraction; ``clean`` and ``shifted``
    contain the two.

    The comparison is paired: an image counts only where the clean image of its sample was judged too,
    by the same model and run. ``n`` counts samples. The interval is that of the paired differences,
    with half a pair added to each of the four outcomes (Agresti & Min 2005), so that it does not
    collapse where no outcome changed.
    """
    rows, keys = select_rows(table, by)
    verdicts = judged_rows(rows)
    clean = verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=pl.col("correct").mean())
    shifted = verdicts.filter(pl.col("shift") != CLEAN).join(clean, on=CLEAN_KEY, nulls_equal=True)
    correct = pl.col("correct").cast(pl.Float64)
    drop = pl.col("clean") - correct
    parts = {"value": drop, "clean": pl.col("clean"), "shifted": correct, "apart": drop.abs()}
    sums = model_by_model(shifted, keys, lambda rows: over_samples(rows, keys, **parts))
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("apart"), pl.col("n"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high", "clean", "shifted")


def over_samples(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Average ``parts`` over settings, then shifts, then samples; add the mean square of ``value``, ``n``
    and ``rows``.
    """
    names = list(parts)
    of_sample = list(dict.fromkeys([*keys, *SAMPLE_KEY]))
    of_shift = list(dict.fromkeys([*of_sample, "shift"]))
    means = rows.group_by(of_shift).agg(rows=pl.len(), **{name: part.mean() for name, part in parts.items()})
    if "shift" not in keys:
        means = means.group_by(of_sample).agg(pl.col("rows").sum(), *(pl.col(name).mean() for name in names))
    return means.group_by(keys).agg(
        *(pl.col(name).mean() for name in names),
        value_squared=(pl.col("value") ** 2).mean(),
        n=pl.len().cast(pl.Int64),
        rows=pl.col("rows").sum(),
    )


# Averages over all severities of a shift including 0, as in table 5 of CNS-Bench.


@add_metric
def dial_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over all severities of a shift including 0, then over shifts and samples as in
    ``mean_accuracy``.
    """
    return mean_accuracy(with_clean(table).filter(REAL_SAMPLES), by)


@add_metric
def dial_drop(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy drop over all severities of a shift including 0, where the drop is 0; paired as in
    ``accuracy_drop``.
    """
    return accuracy_drop(with_clean(table), by)


# The effect of filters on accuracy.

# A CSV or parquet file or a frame with ``image_id`` and one column per filter, true for the images it keeps.
Verdicts = str | Path | pl.DataFrame


@add_metric
def filtered_accuracy(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), verdicts: Verdicts | None = None
) -> pl.DataFrame:
    """Accuracy by ``version``: ``all`` images, ``filtered`` (valid in the table), and one per column of
    ``verdicts``.

    This is figure 3 of CNS-Bench: the curve of a good filter matches that of images labelled by hand.
    The interval is Wilson's, and every shift starts with the clean images at severity 0.
    """
    rows = with_clean(table)
    everything = rows.with_columns(valid=pl.lit(True))
    versions = {"all": everything, "filtered": rows.filter(pl.col("valid").fill_null(True))}
    if verdicts is not None:
        frame = _read(verdicts)
        for name in (column for column in frame.columns if column != "image_id"):
            kept_ids = frame.filter(pl.col(name)).select("image_id").lazy()
            versions[name] = everything.join(kept_ids, on="image_id", how="semi")
    keys = [by] if isinstance(by, str) else list(by)
    frames = [accuracy(rows, keys).with_columns(version=pl.lit(name)) for name, rows in versions.items()]
    return answer_frame(
        pl.concat(frames).filter(pl.col("n") > 0), keys, "value", "n", "low", "high", then=("version",)
    )


def _read(verdicts: Verdicts) -> pl.DataFrame:
    if isinstance(verdicts, pl.DataFrame):
        frame = verdicts
    else:
        frame = sheet(path_of(verdicts), "verdicts as a CSV or parquet file", infer_schema=True)
    other_columns = [name for name, kind in frame.schema.items() if name != "image_id" and kind != pl.Boolean]
    if "image_id" not in frame.columns or frame.schema["image_id"] != pl.String or other_columns:
        raise SoritesError(f"verdicts: expected image_id and Boolean columns, got {', '.join(frame.columns)}")
    return frame


# Accuracy under lenses: by lens, by field position, and against the sharpness of the lens.

LENS_COLUMNS = {"field": "lens_field", "mtf50": "mtf50", "quality": "quality"}


def with_lenses(table: Table) -> pl.LazyFrame:
    """Return the rows of lens shifts with their params as columns ``lens``, ``lens_field``, ``mtf50`` and
    ``quality``.
    """

    def part(name: str) -> pl.Expr:
        return pl.col("params").str.json_path_match(f"$.{name}")

    rows = table.lazy().filter(pl.col("shift").is_in(["lens", "lens_whole"]))
    numbers = {column: part(name).cast(pl.Float64) for name, column in LENS_COLUMNS.items()}
    return rows.with_columns(lens=part("lens"), **numbers).filter(pl.col("lens").is_not_null())


@add_metric
def lens_field(table: Table, by: Sequence[str] = ("model", "lens_field")) -> pl.DataFrame:
    """Accuracy at each distance from the image centre, over all lenses; ``n`` counts samples."""
    return mean_accuracy(with_lenses(table).filter(pl.col("lens_field").is_not_null()), by)


@add_metric
def lens_accuracy(table: Table, by: Sequence[str] = ("model", "lens")) -> pl.DataFrame:
    """Accuracy of each lens over its field positions, with its ``quality`` and the standard ``error`` over
    positions.
    """
    rows = with_lenses(table)
    _, keys = select_rows(rows, by)
    group_columns = [key for key in keys if key != WHOLE]
    pooled = mean_accuracy(rows, group_columns)
    by_position = accuracy(rows, [*group_columns, "lens_field"]).filter(pl.col("n") > 0)
    spread = by_position.group_by(group_columns or [pl.lit(0).alias(WHOLE)]).agg(
        error=pl.col("value").std() / pl.len().sqrt()
    )
    quality = (
        rows.select(*group_columns, "quality")
        .collect()
        .group_by(group_columns or [pl.lit(0).alias(WHOLE)])
        .agg(pl.col("quality").mean())
    )
    if not group_columns:
        return pooled.with_columns(quality=quality["quality"].mean(), error=spread["error"].mean())
    joined = pooled.join(quality, on=group_columns, nulls_equal=True, how="left").join(
        spread, on=group_columns, nulls_equal=True, how="left"
    )
    return answer_frame(joined, group_columns, "value", "n", "low", "high", "quality", "error")


@add_metric
def lens_correlation(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Pearson correlation (``value``) and Kendall's tau-b (``tau``) of lens quality and accuracy over
    lenses, with p-values.

    ``n`` counts lenses. The numbers are null with fewer than 3 lenses, or where quality or accuracy
    does not vary.
    """
    _, keys = select_rows(with_lenses(table), by)
    group_columns = [key for key in keys if key not in (WHOLE, "lens")]
    by_lens = lens_accuracy(table, [*group_columns, "lens"])
    groups = (
        by_lens.partition_by(group_columns, as_dict=True)
        if group_columns
        else {(): by_lens}
        if by_lens.height
        else {}
    )
    rows = [
        {**dict(zip(group_columns, key, strict=True)), **_correlate(lenses)} for key, lenses in groups.items()
    ]
    kinds = {"value": pl.Float64, "n": pl.Int64, "p": pl.Float64, "tau": pl.Float64, "tau_p": pl.Float64}
    frame = pl.DataFrame(rows, schema={**{key: by_lens.schema[key] for key in group_columns}, **kinds})
    return answer_frame(frame, group_columns, *kinds) if group_columns else frame


def _correlate(lenses: pl.DataFrame) -> dict[str, float | int | None]:
    from scipy import stats

    complete = lenses.drop_nulls(["quality", "value"])
    varies = len(complete) > 2 and complete["quality"].n_unique() > 1 and complete["value"].n_unique() > 1
    if not varies:
        return {"value": None, "n": len(complete), "p": None, "tau": None, "tau_p": None}
    pearson, kendall = (
        test(complete["quality"], complete["value"]) for test in (stats.pearsonr, stats.kendalltau)
    )
    return {
        "value": float(pearson[0]),
        "n": len(complete),
        "p": float(pearson[1]),
        "tau": float(kendall[0]),
        "tau_p": float(kendall[1]),
    }


# Mean similarity of shifted images to their clean images.


@add_metric
def mean_degree(
    table: Table, by: Sequence[str] = ("shift", "severity"), measure: str = "ssim"
) -> pl.DataFrame:
    """Mean similarity of images by one ``measure``; ``n`` counts samples, and the interval is over
    samples.

    An image counts once however many models evaluated it. Images that were not measured, or are too
    small for the measure, are left out. Where a value is infinite, such as the PSNR of an unchanged
    image, the mean is infinite too and has no interval.
    """
    _refuse_unmeasured(table, measure)
    return _mean_degree(table, by, measure)


def _mean_degree(table: Table, by: Sequence[str], measure: str) -> pl.DataFrame:
    rows, keys = select_rows(table, by, refuse=("degrees",))
    of_image, of_sample = (list(dict.fromkeys([*keys, *SAMPLE_KEY, *more])) for more in (("image_id",), ()))
    images = rows.filter(ON_GRID & pl.col("error").is_null()).select(*of_image, "degrees").unique(of_image)
    entry = pl.col("degrees").struct
    measured = images.explode("degrees").filter(
        (entry.field("measure") == measure) & entry.field("value").is_not_null()
    )
    by_sample = measured.group_by(of_sample).agg(value=entry.field("value").mean())
    value, n = pl.col("value"), pl.len()
    means = by_sample.group_by(keys).agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    bounds = {
        name: pl.when(value.is_finite()).then(bound)
        for name, bound in normal_interval(value, pl.col("variance")).items()
    }
    return answer_frame(means.with_columns(**bounds), keys, "value", "n", "low", "high")


def _refuse_unmeasured(table: Table, measure: str) -> None:
    """Raise an error if no row has this measure although the table has others."""
    entries = table.lazy().select(
        pl.col("degrees").explode().struct.field("measure").drop_nulls().unique().sort()
    )
    available = entries.collect(engine="streaming")["measure"].to_list()
    if available and measure not in available:
        typed = command("similarity", "RUN", measure=measure)
        advice = f"It has {', '.join(available)}: name one of these as the option measure, or run {typed}."
        raise UnknownName("measure in this table", measure, available, advice)


@add_metric
def lens_degree(table: Table, by: Sequence[str] = ("lens_field",), measure: str = "ssim") -> pl.DataFrame:
    """Mean similarity at each distance from the image centre, over all lenses; ``n`` counts samples."""
    return _mean_degree(with_lenses(table), by, measure)
