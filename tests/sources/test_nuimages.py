"""nuImages' tables as the nuScenes devkit documents them, in a small folder of the published layout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from sorites import core
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import labels
from sorites.sources.detection.nuimages import CLASSES
from sorites.suites.suite import load

Tables = dict[str, list[dict[str, Any]]]


def tables() -> Tables:
    """One annotated image with its frame before, and another without objects."""
    shared = {
        "ego_pose_token": "e",
        "calibrated_sensor_token": "c",
        "fileformat": "jpg",
        "timestamp": 1,
        "next": "",
        "prev": "",
    }
    frames = [("d1", "s1", "samples/CAM_FRONT/1.jpg", True), ("d0", "s1", "sweeps/CAM_FRONT/0.jpg", False)]
    frames += [("d2", "s2", "samples/CAM_BACK/2.jpg", True)]
    return {
        "sample": [
            {"token": s, "timestamp": 1, "log_token": "l", "key_camera_token": d, "key_lidar_token": "x"}
            for s, d in (("s1", "d1"), ("s2", "d2"))
        ],
        "sample_data": [
            {"token": t, "sample_token": s, "filename": f, "width": 64, "height": 36, "is_key_frame": key, **shared}
            for t, s, f, key in frames
        ],
        "category": [
            {"token": f"c{i}", "name": name, "description": "..."} for i, name in enumerate([*CLASSES, "animal", "vehicle.ego"])
        ],
        "object_ann": [
            {"token": "o1", "sample_data_token": "d1", "category_token": "c4", "attribute_tokens": [], "bbox": [1, 2, 11, 22],
             "mask": {"size": [900, 1600], "counts": "UVZrdjQ="}},
            {"token": "o2", "sample_data_token": "d1", "category_token": "c7", "attribute_tokens": [], "bbox": [30, 4, 40, 30],
             "mask": None},
        ],
    }  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    def write(change: Callable[[Tables], Any] = lambda found: None, version: str = "v1.0-val") -> Path:
        found = tables()
        change(found)
        (tmp_path / version).mkdir(exist_ok=True)
        for name, rows in found.items():
            (tmp_path / version / f"{name}.json").write_text(json.dumps(rows))
        for name in ("samples/CAM_FRONT/1.jpg", "samples/CAM_BACK/2.jpg"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            Pillow.new("RGB", (64, 36)).save(tmp_path / name)
        return tmp_path

    return write


def test_annotated_images_with_boxes_in_the_ten_classes(made: Callable[..., Path]) -> None:
    space = labels(load("nuimages_optics").labels)
    assert set(space.ids) == set(CLASSES.values())
    first, second = core.source(f"nuimages:{made()}", space).samples
    assert [(box.xyxy, space.ids[box.label], box.area) for box in first.ground_truth or ()] == [
        ((1, 2, 11, 22), "car", None),
        ((30, 4, 40, 30), "pedestrian", None),
    ]
    assert (first.id, second.id, second.ground_truth) == (
        "samples/CAM_FRONT/1.jpg",
        "samples/CAM_BACK/2.jpg",
        (),
    )
    assert first.load().shape == (36, 64, 3)


def test_cocos_labels_take_the_classes_that_they_share(made: Callable[..., Path]) -> None:
    coco = labels("coco")
    first = core.source(f"nuimages:{made()}", coco).samples[0]
    assert [coco.names[box.label] for box in first.ground_truth or ()] == ["car", "person"]
    with pytest.raises(SoritesError, match="such as vehicle.car"):
        core.source(f"nuimages:{made()}", labels(["kite"]))


def test_versions(made: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="nuImages"):
        core.source(f"nuimages:{tmp_path}", labels("coco"))
    made(version="v1.0-mini")
    assert len(core.source(f"nuimages:{tmp_path}", labels("coco"))) == 2
    made(version="v1.0-train")
    with pytest.raises(
        SoritesError,
        match="v1.0-train.*version=v1.0-mini",
    ):
        core.source(f"nuimages:{tmp_path}", labels("coco"))
    assert len(core.source(f"nuimages:{tmp_path}?version=v1.0-train", labels("coco"))) == 2
    with pytest.raises(SoritesError, match="version 'v2' of nuImages"):
        core.source(f"nuimages:{tmp_path}?version=v2", labels("coco"))


def test_categories_that_the_suite_lacks_are_counted(made: Callable[..., Path]) -> None:
    last = f"c{len(CLASSES)}"
    with pytest.warns(UserWarning, match="1 box"):
        core.source(
            f"nuimages:{made(lambda t: t['object_ann'][0].update(category_token=last))}",
            labels(["pedestrian"]),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t["object_ann"][0].update(category_token="no"), "category.json does not list"),
        (lambda t: t["object_ann"][0].pop("bbox"), "bbox in row 1"),
        (lambda t: t["sample"][0].pop("key_camera_token"), "key_camera_token in row 1"),
    ],
)  # fmt: skip
def test_tables_that_are_not_nuimages(
    made: Callable[..., Path], change: Callable[[Tables], Any], message: str
) -> None:
    with pytest.raises(SoritesError, match=message):
        core.source(f"nuimages:{made(change)}", labels("coco"))


def test_a_bad_box_and_a_missing_frame_are_error_rows(made: Callable[..., Path]) -> None:
    def change(found: Tables) -> None:
        found["object_ann"][0]["bbox"] = [9, 9, 1, 1]
        found["sample"][1]["key_camera_token"] = "gone"

    first, second = core.source(f"nuimages:{made(change)}", labels("coco")).samples
    with pytest.raises(BadImage, match="height"):
        first.load()
    with pytest.raises(BadImage, match="sample_data.json"):
        second.load()
