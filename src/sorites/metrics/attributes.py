"""Accuracy on common and uncommon attributes (Kattakinda & Feizi, "FOCUS", ICML 2022, section 4 and
appendix C).

A kind (time, weather, location) is a key of ``attrs`` for which at least one value is marked as
``common`` or uncommon; values without a mark ("none") are left out. The class is the attribute
``class``, or the label number where a source has no such attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.core import add_metric
from sorites.core.errors import InvalidOption, SoritesError, UnknownName
from sorites.core.messages import parameter
from sorites.core.table import Table
from sorites.metrics.intervals import clustered_difference_bounds, clustered_share
from sorites.metrics.rows import (
    ON_GRID,
    SAMPLE,
    SAMPLE_HASH,
    answer_frame,
    count_samples,
    judged_rows,
    select_rows,
)

CLASS = "class"
# The kind that compares images without uncommon attributes with all other images.
ANY = "any"

_IMAGE = ("(row)", SAMPLE, "(class)", "correct")


@add_metric
def partition_accuracy(table: Table, by: Sequence[str] = ("model",), top: int = 1) -> pl.DataFrame:
    """Accuracy by the number of kinds that are ``uncommon`` (0, 1, 2, ...) and by which ``kinds`` these
    are; the interval is over samples.

    ``kinds`` is null for all images with that number. An image counts once per kind, and the kind is
    uncommon if any of its values is. With ``top=5``, an image is correct if any of the five most likely
    labels is.
    """
    rows, keys = select_rows(table, by)
    marked = _attribute_rows(rows, keys, top)
    kinds = pl.col("key").filter(~pl.col("common")).unique().sort().str.join("+")
    images = marked.group_by(*keys, *_IMAGE).agg(
        kinds=kinds, uncommon=pl.col("key").filter(~pl.col("common")).n_unique().cast(pl.Int64)
    )
    pooled = images.with_columns(kinds=pl.lit(None, pl.String))
    both = pl.concat([pooled, images.filter(pl.col("uncommon") > 0)])
    then = ("uncommon", "kinds")
    counts = count_samples(both, [*keys, *then], pl.col("correct"), pl.col(SAMPLE))
    return answer_frame(clustered_share(counts, [*keys, *then]), keys, "value", "n", "low", "high", then=then)


@add_metric
def attribute_accuracy(table: Table, by: Sequence[str] = ("model",), top: int = 1) -> pl.DataFrame:
    """Accuracy by ``kind``, ``attribute`` and ``class`` (null for all classes): the class x attribute
    table; the interval is over samples.

    An image with several values of a kind counts once for each of them. ``common`` is null in the rows
    of all classes.
    """
    rows, keys = select_rows(table, by)
    cells = (
        _attribute_rows(rows, keys, top)
        .filter("stated")
        .rename({"(class)": "class", "key": "kind", "value": "attribute"})
    )
    pooled = cells.with_columns(
        pl.lit(None, pl.String).alias("class"), pl.lit(None, pl.Boolean).alias("common")
    )
    both = pl.concat([pooled, cells])
    then = ("kind", "attribute", "class")
    return _cell_shares(both, keys, then, pl.col("correct"))


def _cell_shares(cells: pl.LazyFrame, keys: list[str], then: tuple[str, ...], hit: pl.Expr) -> pl.DataFrame:
    """Return the share of ``hit`` in each cell and whether the cell is common, with the interval over
    samples.
    """
    columns = [*keys, *then]
    shares = clustered_share(count_samples(cells, columns, hit, pl.col(SAMPLE)), columns)
    common = cells.group_by(columns).agg(pl.col("common").min())
    joined = shares.join(common, on=columns, nulls_equal=True)
    return answer_frame(joined, keys, "value", "n", "low", "high", "common", then=then)


@add_metric
def attribute_gap(
    table: Table, by: Sequence[str] = ("model",), pool: str = "images", top: int = 1
) -> pl.DataFrame:
    """Accuracy where a kind is common minus where it is uncommon (FOCUS, equation 1), by ``kind`` and
    ``class`` (null for all).

    ``pool="images"`` counts an image once per kind; ``"cells"``, used in the published tables, counts
    it once for each of its values. The kind ``any`` compares images without uncommon attributes with
    all others. The value is null where one side is empty. ``n`` counts images; the interval
    combines those of the two accuracies, which are over samples, and allows for samples on both sides (Zou &
    Donner 2008).
    """
    if pool not in ("images", "cells"):
        raise InvalidOption(
            "pool", f"attribute_gap: {parameter('pool')} must be images or cells, got {pool!r}"
        )
    rows, keys = select_rows(table, by)
    images = _sides(_attribute_rows(rows, keys, top), keys, pool).collect(engine="streaming")
    both = pl.concat([images.with_columns(pl.lit(None, pl.String).alias("class")), images])
    records = [
        {**dict(zip((*keys, "kind", "class"), values, strict=True)), **_gap(group)}
        for values, group in both.group_by(*keys, "kind", "class", maintain_order=True)
    ]
    numbers = dict.fromkeys(("value", "low", "high", "common", "uncommon"), pl.Float64)
    schema: dict[str, pl.DataType | type[pl.DataType]] = {
        **{values: both.schema[values] for values in (*keys, "kind", "class")},
        **numbers,
        **dict.fromkeys(_COUNTS, pl.Int64),
    }
    columns = ("value", "n", "low", "high", "common", "uncommon", "n_common", "n_uncommon")
    return answer_frame(pl.DataFrame(records, schema=schema), keys, *columns, then=("kind", "class"))


_COUNTS = ("n", "n_common", "n_uncommon")
_SIDES = ("rows_common", "hits_common", "rows_uncommon", "hits_uncommon")


def _gap(group: pl.DataFrame) -> dict[str, float | int | None]:
    # In the order of samples, on which the last digits of sums depend.
    of_samples = group.group_by(SAMPLE).agg(pl.col(_SIDES).sum()).sort(SAMPLE)
    rows, hits, other_rows, other_hits = of_samples.select(_SIDES).to_numpy().astype(np.float64).T
    numbers = {"n": len(group), "n_common": int(rows.sum()), "n_uncommon": int(other_rows.sum())}
    common = hits.sum() / rows.sum() if rows.any() else None
    uncommon = other_hits.sum() / other_rows.sum() if other_rows.any() else None
    sides = {"common": common, "uncommon": uncommon}
    if common is None or uncommon is None:
        return {"value": None, "low": None, "high": None, **sides, **numbers}
    low, high = clustered_difference_bounds((hits, rows), (other_hits, other_rows))
    return {"value": common - uncommon, "low": low, "high": high, **sides, **numbers}


def _sides(marked: pl.LazyFrame, keys: Sequence[str], pool: str) -> pl.LazyFrame:
    """Return one row per image and kind: its number of common and uncommon values, and of correct ones of
    each.
    """
    stated = marked.filter("stated").rename({"(class)": "class"})
    counts = {"rows_common": pl.col("common").sum(), "rows_uncommon": pl.col("common").not_().sum()}
    image_columns = [*keys, "(row)", SAMPLE, "class", "correct"]
    kinds = stated.group_by(*image_columns, kind="key").agg(**counts)
    any_kind = (
        marked.rename({"(class)": "class"})
        .group_by(image_columns)
        .agg(**counts)
        .with_columns(kind=pl.lit(ANY))
    )
    all_kinds = pl.concat([kinds, any_kind.select(kinds.collect_schema().names())])
    has_uncommon = pl.col("rows_uncommon") > 0
    once_per_kind = all_kinds.with_columns(
        rows_common=has_uncommon.not_().cast(pl.UInt32), rows_uncommon=has_uncommon.cast(pl.UInt32)
    )
    counted = (
        once_per_kind if pool == "images" else pl.concat([kinds, once_per_kind.filter(pl.col("kind") == ANY)])
    )
    correct = pl.col("correct").cast(pl.UInt32)
    return counted.with_columns(
        hits_common=pl.col("rows_common") * correct, hits_uncommon=pl.col("rows_uncommon") * correct
    )


def _attribute_rows(rows: pl.LazyFrame, keys: Sequence[str], top: int) -> pl.LazyFrame:
    """Return one row per image and value of its kinds: key, value, ``common`` and ``stated``.

    ``stated`` is false where the source does not mark the value as common or uncommon ("none").
    """
    if top not in (1, 5):
        why = "the table stores the five most likely labels"
        raise InvalidOption("top", f"{parameter('top')} must be 1 or 5 ({why}), got {top}")
    images = judged_rows(rows).with_row_index("(row)")
    correct = pl.col("correct") if top == 1 else pl.col("top5").list.set_intersection("accept").list.len() > 0
    class_attribute = (
        pl.col("attrs").list.eval(pl.element().filter(pl.element().struct.field("key") == CLASS)).list.first()
    )
    class_name = pl.coalesce(class_attribute.struct.field("value"), pl.col("label").cast(pl.String)).alias(
        "(class)"
    )
    long = (
        images.select(*keys, "(row)", SAMPLE_HASH.alias(SAMPLE), class_name, "attrs", correct=correct)
        .explode("attrs")
        .unnest("attrs")
    )
    kinds = long.filter(pl.col("common").is_not_null()).select(pl.col("key").unique())
    return long.join(kinds, on="key", how="semi").with_columns(
        stated=pl.col("common").is_not_null(), common=pl.col("common").fill_null(True)
    )


# The share of in-distribution images at or below the OOD threshold.
TPR = 0.95


@add_metric
def ood_share(
    table: Table,
    by: Sequence[str] = ("model", "scorer"),
    source: str | None = None,
    split: str | None = None,
    kind: str = "location",
) -> pl.DataFrame:
    """Share of images that score above 95 % of the in-distribution images, by ``class`` and ``attribute``
    of a ``kind``; the interval is over samples and includes that of the threshold.

    This is table 2 of FOCUS, which used Gram-matrix deviations and ImageNet's validation set; here any
    scorer of the run can be used. ``source`` names the in-distribution images, and ``split`` a split of it;
    images with an attribute of the kind are judged and cannot be among them. ``common`` is true where the
    source marks the attribute as common for the class. There is no interval with fewer than about 75
    independent in-distribution images, whose threshold may be above them all.
    """
    rows, keys = select_rows(table, by, output="ood")
    for needed in ("model", "scorer"):
        if needed not in keys:
            raise SoritesError(
                "scores of different models and scorers have no common threshold: add"
                f" {needed} to {parameter('by')}"
            )
    scored = rows.filter(ON_GRID & pl.col("error").is_null() & pl.col("score").is_not_null())
    chosen = [
        pl.col(name) == pl.lit(value, pl.String)
        for name, value in (("source", source), ("split", split))
        if value is not None
    ]
    in_distribution = scored.filter(chosen) if chosen else scored.clear()
    cells = _cells(scored, keys, kind).collect(engine="streaming")
    if cells.height:
        _check_in_distribution(scored, in_distribution, kind, source, split)
    limits = _limits(in_distribution, keys)
    then = ("attribute", "class")
    above = cells.join(limits, on=keys, nulls_equal=True).lazy()
    columns, score = [*keys, *then], pl.col("score")
    shares = _cell_shares(above, keys, then, score > pl.col("limit"))
    moved = above.group_by(columns).agg(
        fewest=(score > pl.col("highest")).mean(), most=(score >= pl.col("lowest")).mean()
    )
    joined = shares.join(moved.collect(engine="streaming"), on=columns, nulls_equal=True)
    value, low, high = pl.col("value"), pl.col("low"), pl.col("high")
    down, up = (
        (value - low) ** 2 + (value - pl.col("fewest")) ** 2,
        (high - value) ** 2 + (pl.col("most") - value) ** 2,
    )
    bounds = {"low": (value - down.sqrt()).clip(0), "high": (value + up.sqrt()).clip(None, 1)}
    return answer_frame(joined.with_columns(**bounds), keys, "value", "n", "low", "high", "common", then=then)


def _limits(in_distribution: pl.LazyFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the threshold of each group (``limit``) with the ``lowest`` and the ``highest`` that its
    in-distribution images allow.

    The bounds are null where the highest may be above all of these images.
    """
    images = in_distribution.select(*keys, SAMPLE_HASH.alias(SAMPLE), "score")
    limits = images.group_by(keys).agg(limit=pl.col("score").quantile(TPR, "linear"))
    joined = images.join(limits, on=keys, nulls_equal=True)
    counts = count_samples(joined, [*keys, "limit"], pl.col("score") > pl.col("limit"), pl.col(SAMPLE))
    ends = clustered_share(counts, [*keys, "limit"]).collect(engine="streaming")
    known = pl.col("low") * pl.col("n") >= 1
    ends = ends.select(*keys, "limit", *(pl.when(known).then(name).alias(name) for name in ("low", "high")))
    at = (
        joined.join(ends.lazy(), on=[*keys, "limit"], nulls_equal=True)
        .group_by(*keys, "limit")
        .agg(
            highest=pl.col("score")
            .sort(descending=True)
            .get((pl.col("low").first() * pl.len()).floor().cast(pl.Int64) - 1, null_on_oob=True),
            lowest=pl.col("score")
            .sort(descending=True)
            .get((pl.col("high").first() * pl.len()).floor().cast(pl.Int64), null_on_oob=True),
        )
    )
    return at.collect(engine="streaming")


def _check_in_distribution(
    scored: pl.LazyFrame, in_distribution: pl.LazyFrame, kind: str, source: str | None, split: str | None
) -> None:
    """Raise an error if there are no in-distribution images, or if some of them are judged."""
    judged = pl.col("attrs").list.eval(
        (pl.element().struct.field("key") == kind) & pl.element().struct.field("common").is_not_null()
    )
    counts = in_distribution.select("source", judged=judged.list.any().fill_null(False)).collect()
    if not counts.height:
        named, value = ("split", split) if source is None and split is not None else ("source", source)
        every = scored.select(pl.col(named).unique().sort()).collect()[named].drop_nulls().to_list()
        names = [name for name in every if name]
        known = f"one of {', '.join(names)}" if names else f"but this run has no {named} with a name"
        if value is None:
            raise SoritesError(f"Name the in-distribution images with {parameter(named, 'NAME')}, {known}.")
        how = f"Name the in-distribution images with {parameter(named, 'NAME')}, {known}."
        raise UnknownName(named, value, names, how)
    if overlap := int(counts["judged"].sum()):
        sources = ", ".join(sorted(set(counts.filter("judged")["source"].to_list())))
        raise SoritesError(
            f"{overlap} of {counts.height} in-distribution rows (of {sources}) have an attribute of the kind"
            f" {kind!r} and are judged themselves. Name another set with {parameter('source', 'NAME')}."
        )


def _cells(scored: pl.LazyFrame, keys: Sequence[str], kind: str) -> pl.LazyFrame:
    """Return one row per image and attribute of the kind that is marked as common or uncommon."""
    class_attribute = (
        pl.col("attrs").list.eval(pl.element().filter(pl.element().struct.field("key") == CLASS)).list.first()
    )
    class_name = pl.coalesce(class_attribute.struct.field("value"), pl.col("label").cast(pl.String)).alias(
        "class"
    )
    long = (
        scored.select(*keys, SAMPLE_HASH.alias(SAMPLE), "score", class_name, "attrs")
        .explode("attrs")
        .unnest("attrs")
    )
    marked = long.filter((pl.col("key") == kind) & pl.col("common").is_not_null())
    return marked.rename({"value": "attribute"})
