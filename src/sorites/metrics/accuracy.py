"""Accuracy: how often a model is right, and how much of that a shift takes away.

The sample is the unit wherever several of its images are pooled: its verdicts are averaged over
the settings of each shift, then over shifts, and only then over samples. Every shift counts the
same however many settings it has, and the interval does not treat the images of one sample as
independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sorites.core import CLEAN, add_metric
from sorites.core.errors import SoritesError, UnknownName
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
    """Share of judged rows that are right; Wilson interval; ``missing`` counts the rows that have
    an error instead.

    A group with nothing but errors has a null value. Every row counts the same; where ``by`` pools
    several settings of one sample the interval is over samples, and ``mean_accuracy`` is the mean
    in which every shift counts the same.
    """
    rows, keys = select_rows(table, by)
    on_grid = rows.filter(ON_GRID)
    sums = _counted(on_grid, keys, [*keys, SAMPLE] if _pools(on_grid, keys) else keys)
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


# A number that differs between samples.
SAMPLE = "(sample)"


def _pools(rows: pl.LazyFrame, keys: list[str]) -> bool:
    """Return whether a group may hold several rows of one sample; it cannot where ``keys`` tell all
    its images apart.
    """
    if "image_id" in keys and "model" in keys:
        return False
    if not {"model", "shift", "severity"} <= set(keys):
        return True
    several = pl.struct("run_id", "seed").n_unique() > 1
    unordered = (pl.col("severity").is_null() & pl.col("correct").is_not_null()).any()
    return bool(rows.select(several | unordered).collect(engine="streaming").item())


def _counted(rows: pl.LazyFrame, keys: list[str], unit: list[str]) -> pl.LazyFrame:
    """Count rows, right ones and those that are missing, with the sums over units that the spread
    between samples follows from.

    Where a unit is the group itself, every row is a sample of its own.
    """
    sound = pl.col("error").is_null()
    n, right = pl.col("n"), pl.col("right")
    counts = rows.with_columns(pl.struct(SAMPLE_KEY).hash().alias(SAMPLE)) if SAMPLE in unit else rows
    each = counts.group_by(unit).agg(
        n=(sound & pl.col("correct").is_not_null()).sum().cast(pl.Int64),
        right=(sound & pl.col("correct")).sum().cast(pl.Int64),
        missing=sound.not_().sum().cast(pl.Int64),
    )
    if SAMPLE not in unit:
        return each.with_columns(samples=n, nn=n, rn=right, rr=right)
    return each.group_by(keys).agg(
        n.sum(), right.sum(), pl.col("missing").sum(), samples=(n > 0).sum().cast(pl.Int64),
        nn=(n * n).sum(), rn=(right * n).sum(), rr=(right * right).sum(),
    )  # fmt: skip


@add_metric
def mean_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over the settings of each shift, then over shifts and samples, without clean
    images; ``n`` counts samples.

    The interval is Wilson's with the effective number of verdicts. A sample that lacks a setting or
    a shift is averaged over the rest.
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
    """Clean accuracy minus shifted accuracy of the same samples, as a fraction; ``clean`` and
    ``shifted`` hold the two.

    The comparison is paired: an image counts only where its sample's clean image was judged too,
    by the same model and run. ``n`` counts samples. The interval comes from the samples'
    differences, with half a pair added to each of the four ways two verdicts can fall (Agresti &
    Min 2005), so that it does not collapse where no verdict changed.
    """
    rows, keys = select_rows(table, by)
    verdicts = judged_rows(rows)
    clean = verdicts.filter(pl.col("shift") == CLEAN).group_by(CLEAN_KEY).agg(clean=pl.col("correct").mean())
    shifted = verdicts.filter(pl.col("shift") != CLEAN).join(clean, on=CLEAN_KEY, nulls_equal=True)
    right = pl.col("correct").cast(pl.Float64)
    apart = pl.col("clean") - right
    parts = {"value": apart, "clean": pl.col("clean"), "shifted": right, "apart": apart.abs()}
    sums = model_by_model(shifted, keys, lambda rows: over_samples(rows, keys, **parts))
    bounds = paired_interval(pl.col("value"), pl.col("value_squared"), pl.col("apart"), pl.col("n"))
    return answer_frame(sums.with_columns(**bounds), keys, "value", "n", "low", "high", "clean", "shifted")


def over_samples(rows: pl.LazyFrame, keys: list[str], **parts: pl.Expr) -> pl.LazyFrame:
    """Average ``parts`` over settings, then shifts, then samples; add the mean square of ``value``,
    ``n`` and ``rows``.
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


# Averages over all severities of a shift, severity 0 included, as CNS-Bench prints them (table 5).


@add_metric
def dial_accuracy(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy over all severities of a shift, 0 included, then over shifts and samples like
    ``mean_accuracy``.
    """
    return mean_accuracy(with_clean(table).filter(REAL_SAMPLES), by)


@add_metric
def dial_drop(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Mean accuracy drop over all severities of a shift, 0 (where the drop is 0) included; paired
    like ``accuracy_drop``.
    """
    return accuracy_drop(with_clean(table), by)


# The effect of a filter: accuracy with all images, with those it keeps, and with those that other
# filters keep.


# A CSV or parquet file, or a frame: ``image_id`` and one column per filter, true where the image
# stays.
Verdicts = str | Path | pl.DataFrame


@add_metric
def filtered_accuracy(
    table: Table, by: Sequence[str] = ("model", "shift", "severity"), verdicts: Verdicts | None = None
) -> pl.DataFrame:
    """Accuracy by ``version``: ``all`` images, ``filtered`` (valid in the table), and one per
    column of ``verdicts``.

    This is figure 3 of CNS-Bench, where the curve of a good filter lies on that of images
    labelled by hand. The interval is Wilson's, and every shift starts from the clean images at
    severity 0.
    """
    rows = with_clean(table)
    everything = rows.with_columns(valid=pl.lit(True))
    versions = {"all": everything, "filtered": rows.filter(pl.col("valid").fill_null(True))}
    if verdicts is not None:
        frame = _read(verdicts)
        for name in (column for column in frame.columns if column != "image_id"):
            kept = frame.filter(pl.col(name)).select("image_id").lazy()
            versions[name] = everything.join(kept, on="image_id", how="semi")
    keys = [by] if isinstance(by, str) else list(by)
    found = [accuracy(rows, keys).with_columns(version=pl.lit(name)) for name, rows in versions.items()]
    return answer_frame(
        pl.concat(found).filter(pl.col("n") > 0), keys, "value", "n", "low", "high", then=("version",)
    )


def _read(verdicts: Verdicts) -> pl.DataFrame:
    if isinstance(verdicts, pl.DataFrame):
        frame = verdicts
    else:
        frame = sheet(path_of(verdicts), "verdicts as a CSV or parquet file", infer_schema=True)
    wrong = [name for name, kind in frame.schema.items() if name != "image_id" and kind != pl.Boolean]
    if "image_id" not in frame.columns or frame.schema["image_id"] != pl.String or wrong:
        raise SoritesError(
            f"verdicts: expected image_id and columns of true and false, got {', '.join(frame.columns)}"
        )
    return frame


# Accuracy under lenses: by lens, by distance from the middle of the image, and against the measured
# sharpness of the lens.


NUMBERS = {"field": "lens_field", "mtf50": "mtf50", "quality": "quality"}


def with_lenses(table: Table) -> pl.LazyFrame:
    """Return the rows of lenses with their params as columns ``lens``, ``lens_field``, ``mtf50``
    and ``quality``.
    """

    def part(name: str) -> pl.Expr:
        return pl.col("params").str.json_path_match(f"$.{name}")

    rows = table.lazy().filter(pl.col("shift").is_in(["lens", "lens_whole"]))
    numbers = {column: part(name).cast(pl.Float64) for name, column in NUMBERS.items()}
    return rows.with_columns(lens=part("lens"), **numbers).filter(pl.col("lens").is_not_null())


@add_metric
def lens_field(table: Table, by: Sequence[str] = ("model", "lens_field")) -> pl.DataFrame:
    """Accuracy at each distance from the middle of the image, over all lenses; ``n`` counts samples."""
    return mean_accuracy(with_lenses(table).filter(pl.col("lens_field").is_not_null()), by)


@add_metric
def lens_accuracy(table: Table, by: Sequence[str] = ("model", "lens")) -> pl.DataFrame:
    """Accuracy of each lens over its field positions, with its ``quality`` and the standard
    ``error`` over those positions.
    """
    rows = with_lenses(table)
    _, keys = select_rows(rows, by)
    where = [key for key in keys if key != WHOLE]
    whole = mean_accuracy(rows, where)
    each = accuracy(rows, [*where, "lens_field"]).filter(pl.col("n") > 0)
    spread = each.group_by(where or [pl.lit(0).alias(WHOLE)]).agg(
        error=pl.col("value").std() / pl.len().sqrt()
    )
    quality = (
        rows.select(*where, "quality")
        .collect()
        .group_by(where or [pl.lit(0).alias(WHOLE)])
        .agg(pl.col("quality").mean())
    )
    if not where:
        return whole.with_columns(quality=quality["quality"].mean(), error=spread["error"].mean())
    joined = whole.join(quality, on=where, nulls_equal=True, how="left").join(
        spread, on=where, nulls_equal=True, how="left"
    )
    return answer_frame(joined, where, "value", "n", "low", "high", "quality", "error")


@add_metric
def lens_correlation(table: Table, by: Sequence[str] = ("model",)) -> pl.DataFrame:
    """Pearson correlation (``value``) and Kendall's tau-b (``tau``) of lens quality and accuracy
    over lenses, with p-values.

    ``n`` counts lenses; the numbers are null with fewer than 3 lenses, or where quality or accuracy
    does not vary.
    """
    _, keys = select_rows(with_lenses(table), by)
    where = [key for key in keys if key not in (WHOLE, "lens")]
    each = lens_accuracy(table, [*where, "lens"])
    groups = each.partition_by(where, as_dict=True) if where else {(): each} if each.height else {}
    rows = [{**dict(zip(where, key, strict=True)), **_related(some)} for key, some in groups.items()]
    kinds = {"value": pl.Float64, "n": pl.Int64, "p": pl.Float64, "tau": pl.Float64, "tau_p": pl.Float64}
    frame = pl.DataFrame(rows, schema={**{key: each.schema[key] for key in where}, **kinds})
    return answer_frame(frame, where, *kinds) if where else frame


def _related(some: pl.DataFrame) -> dict[str, float | int | None]:
    from scipy import stats

    complete = some.drop_nulls(["quality", "value"])
    varies = len(complete) > 2 and complete["quality"].n_unique() > 1 and complete["value"].n_unique() > 1
    if not varies:
        return {"value": None, "n": len(complete), "p": None, "tau": None, "tau_p": None}
    line, rank = (test(complete["quality"], complete["value"]) for test in (stats.pearsonr, stats.kendalltau))
    return {
        "value": float(line[0]),
        "n": len(complete),
        "p": float(line[1]),
        "tau": float(rank[0]),
        "tau_p": float(rank[1]),
    }


# Mean degrees: how far images moved by one measure, averaged over the images of a sample and then over
# samples.


@add_metric
def mean_degree(
    table: Table, by: Sequence[str] = ("shift", "severity"), measure: str = "ssim"
) -> pl.DataFrame:
    """Mean degree of images by one ``measure``; ``n`` counts samples, and the interval is over them.

    An image counts once however many models saw it; one that was not measured, or was too small for
    the measure, is missing. Where a degree is infinite, such as the PSNR of an image that did not
    change, the mean is infinite too and has no interval.
    """
    _refuse_unmeasured(table, measure)
    return _mean(table, by, measure)


def _mean(table: Table, by: Sequence[str], measure: str) -> pl.DataFrame:
    rows, keys = select_rows(table, by, refuse=("degrees",))
    of_image, of_sample = (list(dict.fromkeys([*keys, *SAMPLE_KEY, *more])) for more in (("image_id",), ()))
    images = rows.filter(ON_GRID & pl.col("error").is_null()).select(*of_image, "degrees").unique(of_image)
    entry = pl.col("degrees").struct
    measured = images.explode("degrees").filter(
        (entry.field("measure") == measure) & entry.field("value").is_not_null()
    )
    each = measured.group_by(of_sample).agg(value=entry.field("value").mean())
    value, n = pl.col("value"), pl.len()
    means = each.group_by(keys).agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    bounds = {
        name: pl.when(value.is_finite()).then(bound)
        for name, bound in normal_interval(value, pl.col("variance")).items()
    }
    return answer_frame(means.with_columns(**bounds), keys, "value", "n", "low", "high")


def _refuse_unmeasured(table: Table, measure: str) -> None:
    """Refuse a measure by which nothing here was measured, where something was by others."""
    entries = table.lazy().select(
        pl.col("degrees").explode().struct.field("measure").drop_nulls().unique().sort()
    )
    known = entries.collect(engine="streaming")["measure"].to_list()
    if known and measure not in known:
        typed = f"sorites similarity RUN --measure {measure}"
        advice = f"It has {', '.join(known)}: name one of these as the option measure, or type: {typed}"
        raise UnknownName("measure in this table", measure, known, advice)


@add_metric
def lens_degree(table: Table, by: Sequence[str] = ("lens_field",), measure: str = "ssim") -> pl.DataFrame:
    """Mean degree at each distance from the middle of the image, over all lenses; ``n`` counts samples."""
    return _mean(with_lenses(table), by, measure)
