"""Accuracy and its drop under shifts.

Where several images of a sample are pooled, the sample is the unit of the interval, because its images are
not independent. Outcomes are averaged over the settings of each sample, then over the samples of each shift,
then over shifts: every shift has the same weight however many settings and samples it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.messages import command
from sorites.core.table import Table
from sorites.io.paths import path_of
from sorites.io.tables import sheet
from sorites.metrics.intervals import (
    cluster_sums,
    clustered_wilson_interval,
    paired_interval,
    share_intervals,
    with_mean_interval,
)
from sorites.metrics.rows import (
    CLEAN_KEY,
    ON_GRID,
    REAL_SAMPLES,
    SAMPLE,
    SAMPLE_HASH,
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
    """Share of judged rows that are correct; ``missing`` counts rows with an error instead.

    A group with only errors has a null value. Every row has the same weight; use ``mean_accuracy`` to
    weight every shift equally. The interval is Wilson's with the effective number of rows: a group with
    several rows of one sample counts for less than as many samples.
    """
    rows, keys = select_rows(table, by)
    on_grid = rows.filter(ON_GRID)
    parts = -(-row_count(table) // ROWS_PER_PART)
    sums = pl.concat([_sums(on_grid, keys, part, parts) for part in range(max(parts, 1))])
    totals = sums.lazy().group_by(keys).agg(pl.all().sum()).filter(pl.col("n") + pl.col("missing") > 0)
    return answer_frame(
        share_intervals(totals, keys, "missing"), keys, "value", "n", "low", "high", "missing"
    )


# Rows that are grouped by sample at a time, to limit memory.
ROWS_PER_PART = 2_000_000


def row_count(table: Table) -> int:
    """Return the number of rows of a table."""
    return int(table.lazy().select(pl.len()).collect(engine="streaming").item())


def _sums(rows: pl.LazyFrame, keys: list[str], part: int, parts: int) -> pl.DataFrame:
    """Return the sums over the samples of one part."""
    succeeded = pl.col("error").is_null()
    chosen = rows.filter(pl.col("sample_id").hash(0) % parts == part) if parts > 1 else rows
    counts = chosen.group_by(*keys, SAMPLE_HASH.alias(SAMPLE)).agg(
        rows=(succeeded & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
        hits=(succeeded & pl.col("correct")).sum().cast(pl.Int64),
        missing=succeeded.not_().sum().cast(pl.Int64),
    )
    return cluster_sums(counts, keys, "hits", "rows", "missing").collect(engine="streaming")


@add_metric
def mean_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over the settings of each shift, then over its samples, then over shifts, without clean
    images; ``n`` counts samples.

    Every shift has the same weight, also where shifts have samples of their own. The interval is Wilson's
    with the effective number of images. A sample without some setting is averaged over the rest.
    """
    rows, keys = select_rows(table, by)
    shifted = judged_rows(rows).filter(pl.col("shift") != CLEAN)
    sums = over_samples(shifted, keys, value=pl.col("correct").cast(pl.Float64))
    value, n = pl.col("value"), pl.col("n")
    spread = pl.col("value_squared") - value**2
    # Samples of a small shift weigh more, and their outcomes may vary more than the mean over shifts says.
    varies, largest = value * (1 - value), pl.col("largest")
    unequal = (n * largest / pl.col("rows") > 1 + 1e-9) & (varies > 0)
    most = pl.when(unequal).then(pl.max_horizontal(largest, pl.col("varied") / varies)).otherwise(largest)
    interval = clustered_wilson_interval(value, spread, n, pl.col("rows"), most)
    bounded = sums.with_columns(**interval)
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
    sums = model_by_model(judged_rows(rows), keys, lambda rows: _drops(rows, keys))
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("apart"), pl.col("n"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high", "clean", "shifted")


def _drops(rows: pl.LazyFrame, keys: list[str]) -> pl.LazyFrame:
    """Return the mean drop of each group, by ``over_samples``."""
    start, correct = pl.struct(CLEAN_KEY).hash().alias("(start)"), pl.col("correct").cast(pl.Float64)
    clean = rows.filter(pl.col("shift") == CLEAN).group_by(start).agg(clean=correct.mean())
    shifted = rows.filter(pl.col("shift") != CLEAN).with_columns(start).join(clean, on="(start)")
    drop = pl.col("clean") - correct
    parts = {"value": drop, "clean": pl.col("clean"), "shifted": correct, "apart": drop.abs()}
    return over_samples(shifted, keys, **parts)


def sample_contributions(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Return one line per group and sample: what it adds to the means of ``over_samples``.

    Returns:
        The hash of the sample (``SAMPLE``); the weighted ``parts``, which sum to their means over the samples
            of a group; ``(influence)`` of the sample on the mean of ``value``; its total ``(weight)``, and
            the same times the standard deviation of an outcome under each shift (``(varied)``); and
            ``(squares)``, the sum of the squared weights of its images.
    """
    names = list(parts)
    of_shift = list(dict.fromkeys([*keys, "shift"]))
    means = _sample_means(rows, of_shift, **parts)
    shifts = means.group_by(of_shift).agg(pl.len().alias("(samples)"), pl.col("value").mean().alias("(mean)"))
    groups = shifts.group_by(keys).agg(pl.len().alias("(shifts)"))
    weighted = means.join(shifts, on=of_shift, nulls_equal=True).join(groups, on=keys, nulls_equal=True)
    weight, samples = 1 / (pl.col("(samples)") * pl.col("(shifts)")), pl.col("(samples)")
    # Laplace's estimate, which is not 0 where all outcomes of a small shift are equal.
    chance = (pl.col("(mean)").clip(0, 1) * samples + 1) / (samples + 2)
    return weighted.group_by(*keys, SAMPLE).agg(
        *((pl.col(name) * weight).sum() for name in names),
        ((pl.col("value") - pl.col("(mean)")) * weight).sum().alias("(influence)"),
        weight.sum().alias("(weight)"),
        (weight * (chance * (1 - chance)).sqrt()).sum().alias("(varied)"),
        (weight**2 / pl.col("(images)")).sum().alias("(squares)"),
    )


def _sample_means(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Return the mean of each part over the ``(images)`` of each group and sample."""
    return rows.group_by(*keys, SAMPLE_HASH.alias(SAMPLE)).agg(
        pl.len().alias("(images)"), *(part.mean().alias(name) for name, part in parts.items())
    )


def over_samples(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Average ``parts`` over the settings of each sample, then over the samples of each shift, then over
    shifts, so that every shift has the same weight however many samples it has.

    Returns:
        The means; ``n``, the number of samples; ``value_squared``, the square of the mean of ``value`` plus
            the variance of a sample's contribution (with all samples under all shifts: the mean square of
            the samples' means); ``rows``, the effective number of images given their weights;
            ``largest``, the design effect if the images of a sample were identical; and ``varied``, the same
            with the variance of each shift, which is to be divided by that of the mean.
    """
    names, n = list(parts), pl.len()
    if "shift" in keys:
        # All samples of a group have the same weight.
        once = (1 / pl.col("(images)")).sum()
        return (
            _sample_means(rows, keys, **parts)
            .group_by(keys)
            .agg(
                *(pl.col(name).mean().round(12) for name in names),
                value_squared=(pl.col("value") ** 2).mean().round(12),
                n=n.cast(pl.Int64),
                rows=(n.cast(pl.Float64) ** 2 / once).round_sig_figs(12),
                largest=(n / once).round_sig_figs(12),
                varied=pl.lit(0.0),
            )
        )
    by_sample = sample_contributions(rows, keys, **parts)
    squares = pl.col("(squares)").sum()
    return by_sample.group_by(keys).agg(
        # The last digits depend on the order of summation; without them, equal means compare equal.
        *(pl.col(name).sum().round(12) for name in names),
        value_squared=(pl.col("value").sum() ** 2 + n * (pl.col("(influence)") ** 2).sum()).round(12),
        n=n.cast(pl.Int64),
        rows=(1 / squares).round_sig_figs(12),
        largest=((pl.col("(weight)") ** 2).sum() / squares).round_sig_figs(12),
        varied=((pl.col("(varied)") ** 2).sum() / squares).round_sig_figs(12),
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
    # Sorted, because the last digits depend on the order of summation.
    means = (
        by_sample.sort(of_sample)
        .group_by(keys)
        .agg(value=value.mean(), n=n.cast(pl.Int64), error=value.std() / n.sqrt(), skew=value.skew())
    )
    bounded = with_mean_interval(means.collect(engine="streaming"))
    return answer_frame(bounded, keys, "value", "n", "low", "high")


def _refuse_unmeasured(table: Table, measure: str) -> None:
    """Raise an error if no row has this measure although the table has others."""
    entries = table.lazy().select(
        pl.col("degrees").explode().struct.field("measure").drop_nulls().unique().sort()
    )
    available = entries.collect(engine="streaming")["measure"].to_list()
    if available and measure not in available:
        typed = command("similarity", "RUN", measures=[measure])
        advice = f"It has {', '.join(available)}: name one of these as the option measure, or run {typed}."
        raise UnknownName("measure in this table", measure, available, advice)


@add_metric
def lens_degree(table: Table, by: Sequence[str] = ("lens_field",), measure: str = "ssim") -> pl.DataFrame:
    """Mean similarity at each distance from the image centre, over all lenses; ``n`` counts samples."""
    return _mean_degree(with_lenses(table), by, measure)


# Accuracy on edited photographs, with what the edit did to them.

# The shift whose images a generator made of photographs without an edit.
RECONSTRUCTION = "reconstruction"
SIMILARITIES = ("psnr", "lpips", "joint_image")


@add_metric
def edited_accuracy(
    table: Table,
    by: Sequence[str] = ("model", "shift", "severity"),
    similarities: Sequence[str] = SIMILARITIES,
) -> pl.DataFrame:
    """Accuracy with what edits did to the images: their median similarity to the photographs, the share that
    kept its class, and the error of the reconstruction.

    ``similarities`` are measures of ``sorites similarity`` and of the out-of-class filter; a column is null
    where a measure is missing. ``kept`` is the share of images that the filter keeps, of those it judged;
    accuracy counts those that it did not remove. ``reconstruction_psnr`` is the median PSNR in dB of the
    photographs that went through the generator without an edit (the shift ``reconstruction``).
    """
    found, names = accuracy(table, by), list(dict.fromkeys(similarities))
    keys = [by] if isinstance(by, str) else list(dict.fromkeys(by))
    of_image = list(dict.fromkeys([*keys, *SAMPLE_KEY, "image_id"]))
    images = table.lazy().filter((pl.col("output") == "label") & ON_GRID).unique(of_image)
    beside = {"kept": pl.col("valid").mean(), **{name: _median_degree(name) for name in names}}
    general = [key for key in keys if key not in ("shift", "severity", "level", "family")]
    psnr = {"reconstruction_psnr": _median_degree("psnr")}
    joined = _with_columns(found.lazy(), images, keys, beside)
    joined = _with_columns(joined, images.filter(pl.col("shift") == RECONSTRUCTION), general, psnr)
    return answer_frame(joined, keys, *found.columns[len(keys) :], *beside, *psnr)


def _median_degree(measure: str) -> pl.Expr:
    """Return the median over images of one of their degrees."""
    chosen = pl.element().filter(pl.element().struct.field("measure") == measure)
    return pl.col("degrees").list.eval(chosen).list.first().struct.field("value").median()


def _with_columns(
    frame: pl.LazyFrame, images: pl.LazyFrame, keys: Sequence[str], columns: Mapping[str, pl.Expr]
) -> pl.LazyFrame:
    """Add numbers of the images of each group to a frame."""
    if not keys:
        return frame.join(images.select(**columns), how="cross")
    return frame.join(images.group_by(keys).agg(**columns), on=list(keys), how="left", nulls_equal=True)
