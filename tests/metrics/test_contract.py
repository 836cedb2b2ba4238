"""Properties of every registered metric."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import sorites.metrics
from sorites.core import METRICS, Metric
from sorites.core.errors import SoritesError

NAMES = METRICS.names()


def options(ask: Metric) -> dict[str, Any]:
    facts = {name: {"parameters": size} for name, size in (("weak", 1e6), ("mid", 5e6), ("strong", 9e6))}
    needed = {"reference": "weak", "split": "val", "facts": facts, "resamples": 24}
    if ask.__name__ == "ood_share":  # images with an attribute are judged, and not in-distribution
        needed["split"] = "reference"
    return {name: value for name, value in needed.items() if name in inspect.signature(ask).parameters}


def default_by(ask: Metric) -> tuple[str, ...]:
    by: tuple[str, ...] = inspect.signature(ask).parameters["by"].default
    return by


@pytest.fixture(scope="module", name="world")
def _world(world: pl.DataFrame, gridded: pl.DataFrame) -> pl.DataFrame:
    """The world, the same samples under two shifts at once, OOD scores of the boxes of detectors and of images
    without attributes, and near and far OOD images.
    """
    label, conf = (pl.element().struct.field(name) for name in ("label", "conf"))
    classes = pl.element().struct.with_fields(known=label > 0)
    known = world.with_columns(pl.col("ground_truth").list.eval(classes))
    score = pl.element().struct.with_fields(score=-conf.cast(pl.Float64))
    scored = known.filter(pl.col("output") == "boxes").with_columns(
        pl.col("boxes").list.eval(score),
        output=pl.lit("ood"),
        scorer=pl.lit("boxes"),
        score=-pl.col("boxes").list.len().cast(pl.Float64),
    )
    plain = known.filter(
        (pl.col("output") == "ood") & (pl.col("split") == "val") & (pl.col("shift") == "clean")
    )
    reference = plain.filter("known").with_columns(
        sample_id=pl.format("r-{}", "sample_id"),
        image_id=pl.format("r-{}", "image_id"),
        split=pl.lit("reference"),
        attrs=pl.lit(None, world.schema["attrs"]),
    )
    rows = pl.concat([known, scored, gridded, reference])
    near = pl.when(pl.col("sem_level") < 2).then(pl.lit("near")).otherwise(pl.lit("far"))
    group = pl.struct(key=pl.lit("group"), value=near, common=pl.lit(None, pl.Boolean))
    of_group = pl.concat_list(group).cast(world.schema["attrs"])
    return rows.with_columns(attrs=pl.when(~pl.col("known")).then(of_group).otherwise("attrs"))


@pytest.fixture(scope="module", name="shuffled")
def _shuffled(world: pl.DataFrame) -> pl.DataFrame:
    return world.sample(fraction=1.0, shuffle=True, seed=3)


@pytest.fixture(scope="module")
def answer_of(world: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """Each metric's answer on the world, asked once; the world must be as it was."""

    @functools.cache
    def answer(name: str) -> pl.DataFrame:
        before, ask = world.clone(), METRICS.get(name)
        found = ask(world, **options(ask))
        assert_frame_equal(world, before)
        return found

    return answer


@pytest.mark.parametrize("name", NAMES)
def test_answers_with_by_value_and_n_and_leaves_the_table_as_it_was(
    name: str, answer_of: Callable[[str], pl.DataFrame]
) -> None:
    answer, by = answer_of(name), default_by(METRICS.get(name))
    assert answer.columns[: len(by)] == list(by)
    assert {"value", "n"} <= set(answer.columns)
    assert answer.height > 0
    assert answer["n"].dtype.is_integer()
    assert answer["n"].min() > 0
    assert answer.select(by).equals(answer.select(by).sort(by))


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_rows_does_not_matter(
    name: str, answer_of: Callable[[str], pl.DataFrame], shuffled: pl.DataFrame
) -> None:
    ask = METRICS.get(name)
    assert_frame_equal(answer_of(name), ask(shuffled.lazy(), **options(ask)), rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_empty_table_gives_an_empty_frame_of_the_same_columns(
    name: str, answer_of: Callable[[str], pl.DataFrame], world: pl.DataFrame
) -> None:
    empty = METRICS.get(name)(world.clear())
    assert empty.height == 0
    assert empty.schema == answer_of(name).schema


@pytest.mark.parametrize("name", NAMES)
def test_unknown_column_is_named_with_a_near_one(name: str, world: pl.DataFrame) -> None:
    ask = METRICS.get(name)
    with pytest.raises(SoritesError, match="'modle'. Did you mean model"):
        ask(world, by=("modle", "shift"), **options(ask))


@pytest.mark.parametrize("name", NAMES)
def test_bounds_hold_the_value(name: str, answer_of: Callable[[str], pl.DataFrame]) -> None:
    answer = answer_of(name)
    if "low" in answer.columns:
        bounded = answer.drop_nulls(["low", "high", "value"])
        assert (
            (bounded["low"] <= bounded["value"] + 1e-12) & (bounded["value"] <= bounded["high"] + 1e-12)
        ).all()


@pytest.mark.parametrize("name", NAMES)
def test_is_exported_by_its_name(name: str) -> None:
    assert getattr(sorites.metrics, name) is METRICS.get(name)
    assert name in sorites.metrics.__all__


def test_one_column_may_be_a_plain_string_and_none_pools_everything(world: pl.DataFrame) -> None:
    assert sorites.metrics.accuracy(world, by="model")["model"].to_list() == ["mid", "strong", "weak"]
    pooled = sorites.metrics.accuracy(world, by=())
    assert pooled.columns == ["value", "n", "low", "high", "missing"]
    assert pooled["n"].to_list() == [3 * 40 * (1 + 8 + 1 + 3 + 8)]
    assert sorites.metrics.failure_severity(world, by=(), relative=True)["n"].to_list() == [3 * 40 * 2]


SHARES_ITS_POOL = {
    name for name in NAMES if "framework" in inspect.signature(METRICS.get(name)).parameters
} - {"score_histogram"} | {"level_map", "level_curve", "correlation", "sensitivity"}
"""Metrics that compare the OOD images of a source with the in-distribution images of all sources."""
OF_RANKS = {"auroc", "fpr95_ood_pos", "fpr95_id_pos"}
"""Those of them that do not depend on the share of OOD images, so that a copy of the pool changes nothing."""


# Bootstraps of mAP over a table of twice the size take seconds.
OF_MAPS = {name for name in NAMES if "map" in name.split("_") or "tide" in name}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in OF_MAPS else name
        for name in NAMES
        if name not in SHARES_ITS_POOL - OF_RANKS
    ],
)
def test_another_source_with_the_same_sample_names_changes_no_number(name: str, world: pl.DataFrame) -> None:
    ask = METRICS.get(name)
    named = {**options(ask), "by": (*default_by(ask), "source")}
    first = world.with_columns(source=pl.lit("first"))
    flipped = pl.col("correct") if name in SHARES_ITS_POOL else pl.col("correct").not_()
    twin = first.with_columns(
        source=pl.lit("second"), image_id=pl.format("second-{}", "image_id"), correct=flipped
    )
    alone = ask(first, **named)
    both = ask(pl.concat([twin, first]), **named).filter(pl.col("source") == "first")
    if name in SHARES_ITS_POOL:
        both, alone = (one.select(*default_by(ask), "value") for one in (both, alone))
    assert_frame_equal(both, alone, rel_tol=1e-12, abs_tol=1e-12)
