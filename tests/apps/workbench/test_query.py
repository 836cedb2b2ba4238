"""Filters of the explorer: the same images as polars gives, as code too; everything else is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import sorites
from sorites.apps.workbench.library import sorted_out
from sorites.apps.workbench.query import parse_query
from sorites.core.errors import SoritesError


@pytest.fixture(scope="module")
def images(finished: Path) -> pl.DataFrame:
    return sorites.images(finished)


def test_images_have_the_answers_of_the_table(images: pl.DataFrame, finished: Path) -> None:
    table = sorites.read(finished).filter(pl.col("output") == "label").collect()
    assert images.height == table["image_id"].n_unique() == 8 * 11
    for model in ("classify", "coarse"):
        long = table.filter(model=model).select("image_id", "correct", "conf", "pred").sort("image_id")
        wide = images.select("image_id", *(f"{name} {model}" for name in ("correct", "conf", "pred")))
        assert wide.sort("image_id").rows() == long.rows()
    differ = table.group_by("image_id").agg(pl.col("pred").n_unique() > 1).sort("image_id")
    assert images.sort("image_id")["models differ"].to_list() == differ["pred"].to_list()
    clean = dict(images.filter(pl.col("shift") == "clean").select("sample_id", "correct coarse").rows())
    broken = images.filter(pl.col("broken coarse"))
    assert broken.height > 0
    assert all(clean[sample] for sample in broken["sample_id"])
    assert not broken["correct coarse"].any()


QUERIES: list[tuple[dict[str, Any], pl.Expr]] = [
    ({"where": [["shift", "is", "defocus_disk"]]}, pl.col("shift") == "defocus_disk"),
    (
        {"where": [["correct coarse", "is", False], ["severity", "at least", 4]]},
        ~pl.col("correct coarse") & (pl.col("severity") >= 4),
    ),
    (
        {"where": [["class", "in", ["tench", "goldfish"]]]},
        pl.col("class").cast(pl.String).is_in(["tench", "goldfish"]),
    ),
    ({"where": [["sample_id", "contains", "p0"]]}, pl.col("sample_id").str.contains("p0")),
    ({"where": [["conf coarse", "at most", 0.9]], "sort": "conf coarse"}, pl.col("conf coarse") <= 0.9),
]


@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_a_filter_selects_what_polars_does(
    query: dict[str, Any], expected: pl.Expr, images: pl.DataFrame, finished: Path
) -> None:
    parsed = parse_query(json.dumps(query))
    rows = parsed.apply(images).to_list()
    wanted = images.filter(expected)
    wanted = wanted.sort(parsed.sort, maintain_order=True) if parsed.sort else wanted
    assert images[rows]["image_id"].to_list() == wanted["image_id"].to_list()
    assert rows
    scope: dict[str, Any] = {}
    exec(parsed.code(str(finished)), scope)
    assert scope["images"]["image_id"].to_list() == wanted["image_id"].to_list()


def test_the_order_of_the_table_can_be_reversed(images: pl.DataFrame, finished: Path) -> None:
    parsed = parse_query('{"where": [["shift", "is", "clean"]], "descending": true}')
    clean = images.filter(pl.col("shift") == "clean")["image_id"].reverse().to_list()
    assert images[parsed.apply(images).to_list()]["image_id"].to_list() == clean
    scope: dict[str, Any] = {}
    exec(parsed.code(str(finished)), scope)
    assert scope["images"]["image_id"].to_list() == clean


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"where": 1}',
        '{"where": [["shift", "is"]]}',
        '{"where": [["shift", "equals", "jpeg"]]}',
        '{"where": [["nothing", "is", "jpeg"]]}',
        '{"where": [["severity", "at least", "four"]]}',
        '{"where": [["severity", "at least", true]]}',
        '{"where": [["correct coarse", "is", "yes"]]}',
        '{"where": [["shift", "is", {"a": 1}]]}',
        '{"sort": "nothing"}',
        '{"sort": 3}',
        "[" * 100_000,
    ],
)
def test_what_is_no_query_is_refused(text: str, images: pl.DataFrame) -> None:
    with pytest.raises(SoritesError):
        parse_query(text).apply(images)


def test_an_argument_that_is_neither_a_folder_nor_a_model_is_refused(tmp_path: Path) -> None:
    assert sorted_out([str(tmp_path), "lite0", "b=onnx:b.onnx"]) == ([tmp_path], ["lite0", "b=onnx:b.onnx"])
    with pytest.raises(SoritesError, match=r"'nowhere' is not a folder, and not a model either: .*'nowhere'"):
        sorted_out(["nowhere"])
    with pytest.raises(SoritesError, match="timm:resnet50"):
        sorted_out(["resnet50"])
