"""COCO's annotation file: boxes, crowds, areas, classes by name, and what is wrong with a file said
plainly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from sorites import core
from sorites.core import Box, Sample
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import labels
from sorites.io import readers

COCO = labels("coco")


def annotation(id_: int, image: int, category: int, bbox: Any, **more: Any) -> dict[str, Any]:
    return {"id": id_, "image_id": image, "category_id": category, "bbox": bbox, "iscrowd": 0, **more}


def content() -> dict[str, Any]:
    """Two images, three objects and a crowd, with COCO's numbers of categories."""
    return {
        "images": [
            {"id": 7, "file_name": "a.png", "width": 40, "height": 30},
            {"id": 9, "file_name": "b.png", "width": 20, "height": 20},
        ],
        "annotations": [
            annotation(1, 7, 1, [2, 3, 10, 20], area=150.5, segmentation=[[2, 3, 12, 3, 12, 23]]),
            annotation(2, 7, 90, [1.5, 2.5, 4, 4], area=16),
            annotation(3, 7, 1, [0, 0, 40, 30], area=900, iscrowd=1, segmentation={"counts": [1], "size": [30, 40]}),
        ],
        "categories": [{"id": 1, "name": "person"}, {"id": 90, "name": "toothbrush"}, {"id": 5, "name": "airplane"}],
    }  # fmt: skip


Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Write the two images and an annotation file; ``change`` may spoil it first."""

    def write(
        change: Callable[[dict[str, Any]], Any] = lambda data: None,
        folder: str = "",
        name: str = "instances.json",
    ) -> Path:
        data = content()
        change(data)
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        Pillow.new("RGB", (40, 30), (9, 9, 9)).save(tmp_path / folder / "a.png")
        Pillow.new("RGB", (20, 20), (90, 9, 9)).save(tmp_path / folder / "b.png")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(data))
        return tmp_path / name

    return write


def read(file: Path, more: str = "") -> list[Sample]:
    return list(core.source(f"coco:{file}{more}", COCO).samples)


def test_boxes_areas_and_crowds_come_as_the_file_has_them(made: Made) -> None:
    first, second = read(made())
    assert first.ground_truth == (
        Box((2, 3, 12, 23), COCO.find("person"), area=150.5),
        Box((1.5, 2.5, 5.5, 6.5), COCO.find("toothbrush"), area=16.0),
        Box((0, 0, 40, 30), COCO.find("person"), area=900.0, crowd=True),
    )
    assert (first.id, second.id, first.label) == ("a.png", "b.png", None)
    assert second.ground_truth == (), "nothing there, which is not the same as not known"
    assert first.load().shape == (30, 40, 3)


@pytest.mark.parametrize(
    ("folder", "name", "more"),
    [
        ("images", "a.json", ""),
        ("val2017", "annotations/instances_val2017.json", ""),
        ("images/val2017", "annotations/instances_val2017.json", ""),
        ("elsewhere/deep", "a.json", ",images={}/elsewhere/deep"),
        ("elsewhere/deep", "a.json", "?images={}/elsewhere/deep"),
    ],
)
def test_images_are_found_where_they_usually_are_or_where_they_are_reported_to_be(
    made: Made, tmp_path: Path, folder: str, name: str, more: str
) -> None:
    file = made(folder=folder, name=name)
    assert [sample.load().shape[1] for sample in read(file, more.format(tmp_path))] == [40, 20]


def test_images_that_are_not_there_are_error_rows_and_none_at_all_is_an_error(
    made: Made, tmp_path: Path
) -> None:
    file = made()
    (tmp_path / "a.png").unlink()
    first, second = read(file)
    with pytest.raises(BadImage, match="image: No such file"):
        first.load()
    assert second.load().shape == (20, 20, 3)
    (tmp_path / "b.png").unlink()
    with pytest.raises(SoritesError, match="none of the 2 images"):
        read(file)


def test_an_image_of_another_size_than_its_annotations_is_an_error_row(made: Made, tmp_path: Path) -> None:
    file = made()
    Pillow.new("RGB", (30, 40)).save(tmp_path / "a.png")
    with pytest.raises(BadImage, match="image has 30 x 40"):
        read(file)[0].load()


def test_classes_go_by_name_and_those_the_suite_lacks_are_counted(made: Made) -> None:
    file = made()
    with pytest.warns(UserWarning, match="first 'toothbrush'"):
        first = core.source(f"coco:{file}", labels(["dog", "Person"])).samples[0]
    assert [box.label for box in first.ground_truth or ()] == [1, 1]
    with pytest.raises(
        SoritesError,
        match="'toothbrush'.*labels.*coco",
    ):
        core.source(f"coco:{file}", labels(["dog"]))


def boxes(*all_of_them: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        data["annotations"] = [annotation(i + 1, 7, 1, bbox) for i, bbox in enumerate(all_of_them)]

    return change


def test_rounding_at_the_edge_is_kept_and_what_reaches_further_is_cut_and_counted(made: Made) -> None:
    with pytest.warns(UserWarning, match="first annotation 2"):
        first = read(made(boxes([-0.4, 5, 41, 5], [-5, 5, 100, 5])))[0]
    assert [box.xyxy for box in first.ground_truth or ()] == [(-0.4, 5, 40.6, 10), (0, 5, 40, 10)]


def test_boxes_without_size_or_wholly_outside_are_left_out_and_counted(made: Made) -> None:
    with pytest.warns(UserWarning, match="3 boxes have no width"):
        first = read(made(boxes([5, 5, 0, 5], [5, 5, 5, 0], [50, 50, 9, 9], [1, 1, 2, 2])))[0]
    assert [box.xyxy for box in first.ground_truth or ()] == [(1, 1, 3, 3)]


@pytest.mark.parametrize(
    ("bbox", "reason"),
    [
        ([math.nan, 1, 2, 2], "box of finite numbers"),
        ([1, 1, math.inf, 2], "box of finite numbers"),
        ([1, 1, -2, 2], "-2 x 2"),
        ([1, 1, 2], "bbox as x, y,"),
        (["a", 1, 2, 2], "bbox as x, y,"),
        (None, "1 has no bbox; masks"),
    ],
)
def test_a_box_that_cannot_be_understood_spoils_its_image_and_no_other(
    made: Made, bbox: Any, reason: str
) -> None:
    first, second = read(made(boxes(bbox)))
    assert first.ground_truth is None
    with pytest.raises(BadImage, match=reason):
        first.load()
    assert second.load().shape == (20, 20, 3)


def test_areas_that_are_none_fall_back_to_the_box(made: Made) -> None:
    def change(data: dict[str, Any]) -> None:
        for row, area in zip(data["annotations"], (-1, math.nan, "much"), strict=True):
            row["area"] = area

    assert [box.area for box in read(made(change))[0].ground_truth or ()] == [None, None, None]


def test_annotations_of_images_that_are_not_listed_are_counted(made: Made) -> None:
    with pytest.warns(UserWarning, match="1 annotation"):
        assert (
            len(read(made(lambda data: data["annotations"].append(annotation(4, 99, 1, [0, 0, 1, 1]))))) == 2
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["images"].append(dict(d["images"][0], file_name="c.png")), "the id 7"),
        (lambda d: d["images"].append(dict(d["images"][0], id=8)), "file_name 'a.png'"),
        (lambda d: d["annotations"].append(d["annotations"][0]), "the id 1"),
        (lambda d: d["categories"].append(d["categories"][0]), "the id 1"),
        (lambda d: d["annotations"][0].update(category_id=4), "4, which the file does"),
        (lambda d: d["images"][0].pop("file_name"), "file_name: None"),
        (lambda d: d["images"].clear(), "lists no images"),
        (lambda d: d.pop("categories"), "keys images, annotations"),
        (lambda d: d["annotations"].append(3), "image_id: a int"),
    ],
)  # fmt: skip
def test_a_file_that_contradicts_itself_is_refused(
    made: Made, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    with pytest.raises(SoritesError, match=message):
        read(made(change))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("images:", "not valid JSON"),
        ("[]", "but a list"),
        (
            '[{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5}]',
            "with scores",
        ),
        ('{"info": {}}', "the keys info"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_not_coco_is_reported(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(SoritesError, match=message):
        read(tmp_path / "a.json")


def test_files_that_are_missing_or_too_large(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SoritesError, match="cannot read"):
        read(tmp_path / "no.json")
    with pytest.raises(SoritesError, match="coco:PATH"):
        core.source("coco", COCO)
    monkeypatch.setattr(readers, "MAX_JSON_BYTES", 100)
    with pytest.raises(SoritesError, match="bytes, more"):
        read(made())


def test_a_name_that_leads_out_of_the_folder_is_an_error_row(made: Made) -> None:
    first = read(made(lambda d: d["images"][0].update(file_name="../../secret.png")))[0]
    with pytest.raises(BadImage, match="name of an image inside"):
        first.load()
    assert not Path(first.id).is_absolute()


def test_categories_without_images_and_boxes_at_random_come_back(made: Made) -> None:
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 15, (50, 4))
    first = read(made(boxes(*([*map(float, row)] for row in corners))))[0]
    found = np.array([box.xyxy for box in first.ground_truth or ()])
    np.testing.assert_allclose(found[:, 2:] - found[:, :2], corners[:, 2:])
