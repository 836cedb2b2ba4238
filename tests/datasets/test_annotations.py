"""A built dataset holds COCO's annotation file, and a detector gives the same boxes for it by every
way of reading.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image as Pillow

import sorites
from sorites.core import Box, Model, Outputs
from sorites.core.labels import coco, labels
from sorites.datasets.build import category_ids
from sorites.suites.suite import parse

GROUND_TRUTH = (
    Box((1, 2, 21, 30), 0, area=300.0),
    Box((5.5, 6.25, 9, 12), 16),
    Box((0, 0, 40, 30), 0, area=1000.0, crowd=True),
)


def finder() -> Model:
    """A detector whose boxes follow from the pixels."""

    def forward(images: list[Any]) -> Outputs:
        means = [float(np.mean(image)) for image in images]
        return Outputs(
            boxes=[
                (Box((mean / 10, 1, mean / 10 + 7, 9), 16, mean / 256), Box((0, 0, 5, 5), 0, 0.5))
                for mean in means
            ]
        )

    return Model("finder", forward, labels=coco().ids, output="boxes", version="1")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A COCO folder: one image with objects, one without."""
    rng = np.random.default_rng(0)
    (tmp_path / "set").mkdir()
    for name in ("a", "b"):
        Pillow.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).save(tmp_path / f"set/{name}.png")
    numbers = category_ids(coco())
    rows = [
        {
            "id": i + 1,
            "image_id": 1,
            "category_id": numbers[coco().ids[b.label]],
            "area": b.area,
            "iscrowd": int(b.crowd),
            "bbox": [b.xyxy[0], b.xyxy[1], b.xyxy[2] - b.xyxy[0], b.xyxy[3] - b.xyxy[1]],
        }
        for i, b in enumerate(GROUND_TRUTH)
    ]
    images = [
        {"id": i + 1, "file_name": f"{name}.png", "width": 40, "height": 30} for i, name in enumerate("ab")
    ]
    categories = [{"id": numbers[name], "name": name} for name in coco().ids]
    (tmp_path / "set/a.json").write_text(
        json.dumps({"images": images, "annotations": rows, "categories": categories})
    )
    return tmp_path / "set/a.json"


def suite(source: str, **more: Any) -> Any:
    shifts = [{"name": "defocus_disk", "levels": [1, 3]}]
    return parse(
        {"name": "s", "source": source, "labels": "coco", "models": ["finder"], "shifts": shifts, **more}, "t"
    )


def test_reading_what_was_built_gives_the_same_predictions(images: Path, tmp_path: Path) -> None:
    model = [finder()]
    recipe = suite(f"coco:{images}")
    written, errors = sorites.build(recipe, tmp_path / "built")
    assert (written, errors) == (6, [])
    fly = sorites.run(recipe, models=model, out=tmp_path / "fly").collect()
    folder = sorites.run(
        suite(f"folder:{tmp_path / 'built'}"), models=model, out=tmp_path / "folder"
    ).collect()
    same = ["image_id", "sample_id", "shift", "severity", "ground_truth", "boxes"]
    assert fly.select(same).sort("image_id").equals(folder.select(same).sort("image_id"))
    plain = sorites.run(
        suite(f"coco:{tmp_path / 'built' / 'annotations.json'}", shifts=[]),
        models=model,
        out=tmp_path / "coco",
    ).collect()
    paths = pl.read_parquet(tmp_path / "built/sorites.parquet").select(
        "image_id", pl.col("path").alias("sample_id")
    )
    both = fly.drop("sample_id").join(paths, on="image_id").select("sample_id", "boxes").sort("sample_id")
    assert both.equals(plain.select("sample_id", "boxes").sort("sample_id"))
    assert fly["error"].null_count() == len(fly)


def test_the_file_is_cocos(images: Path, tmp_path: Path) -> None:
    sorites.build(suite(f"coco:{images}"), tmp_path / "built")
    data = json.loads((tmp_path / "built/annotations.json").read_text())
    assert [len(data[key]) for key in ("images", "annotations", "categories")] == [6, 9, 80]
    assert {row["id"] for row in data["images"]} == set(range(1, 7))
    assert min(row["id"] for row in data["annotations"]) == 1
    assert {(row["width"], row["height"]) for row in data["images"]} == {(40, 30)}
    assert all((tmp_path / "built" / row["file_name"]).is_file() for row in data["images"])
    first = [row for row in data["annotations"] if row["image_id"] == data["annotations"][0]["image_id"]]
    assert [row["bbox"] for row in first] == [[1, 2, 20, 28], [5.5, 6.25, 3.5, 5.75], [0, 0, 40, 30]]
    assert [row["area"] for row in first] == [300, 3.5 * 5.75, 1000]
    assert [row["iscrowd"] for row in first] == [0, 0, 1]
    assert [row["category_id"] for row in first] == [1, 18, 1]
    assert data["categories"][-1] == {"id": 90, "name": "toothbrush"}


def test_a_frame_moves_the_written_boxes(images: Path, tmp_path: Path) -> None:
    sorites.build(suite(f"coco:{images}", frame={"resize": 60, "crop": 60}, shifts=[]), tmp_path / "built")
    data = json.loads((tmp_path / "built/annotations.json").read_text())
    assert {(row["width"], row["height"]) for row in data["images"]} == {(60, 60)}
    crowd = next(row for row in data["annotations"] if row["iscrowd"])
    assert crowd["bbox"] == [0, 0, 60, 60]


def test_images_without_known_boxes_have_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    Pillow.new("RGB", (20, 20)).save(tmp_path / "p/a.png")
    sorites.build(parse({"name": "s", "source": f"folder:{tmp_path / 'p'}"}, "t"), tmp_path / "built")
    assert not (tmp_path / "built/annotations.json").exists()
    assert "boxes" not in pl.read_parquet_schema(tmp_path / "built/sorites.parquet")


def test_classes_of_ones_own_are_numbered_from_one() -> None:
    assert category_ids(labels(["dog", "cat"])) == {"dog": 1, "cat": 2}
