"""A YOLO dataset: boxes from shares of the image, classes by name, and the layouts that are met."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image as Pillow

from sorites import core
from sorites.core import Sample
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import labels
from sorites.io.decode import decode, size
from sorites.sources.detection import yolo

COCO = labels("coco")
NAMES = "names: [person, traffic_light]\n"


def write(root: Path, yaml: str, files: dict[str, str], images: tuple[str, ...]) -> Path:
    """Write a data.yaml, label files, and images of 40 x 20 px."""
    for name, text in {"data.yaml": yaml, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in images:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Pillow.new("RGB", (40, 20), (50, 60, 70)).save(root / name)
    return root


def read(path: Path, more: str = "") -> list[Sample]:
    return list(core.source(f"yolo:{path}{more}", COCO).samples)


def boxes(sample: Sample) -> list[tuple[float, ...]]:
    return [(*box.xyxy, COCO.names[box.label]) for box in sample.ground_truth or ()]  # type: ignore[misc]


def test_boxes_are_shares_of_the_image_and_no_label_file_means_nothing_there(tmp_path: Path) -> None:
    labelled = {"labels/a.txt": "0 0.5 0.5 0.25 0.5\n1 0.1 0.2 0.1 0.2\n\n", "labels/c.txt": ""}
    root = write(tmp_path, NAMES, labelled, ("images/a.png", "images/b.jpg", "images/c.png"))
    a, b, c = read(root)
    assert boxes(a) == [(15, 5, 25, 15, "person"), pytest.approx((2, 2, 6, 6, "traffic light"))] or boxes(a)[
        0
    ][:4] == (
        15,
        5,
        25,
        15,
    )
    assert [box.label for box in a.ground_truth or ()] == [COCO.find("person"), COCO.find("traffic light")]
    assert [box.area for box in a.ground_truth or ()] == [None, None]
    assert (b.ground_truth, c.ground_truth) == ((), ())
    assert [a.id, b.id] == ["images/a.png", "images/b.jpg"]
    assert a.load().shape == (20, 40, 3)


def test_splits_as_ultralytics_and_roboflow_write_them(tmp_path: Path) -> None:
    ultralytics = write(
        tmp_path / "u",
        "path: ../u  # where\ntrain: images/train\nval: images/val\nnames:\n  0: person\n  1: traffic"
        " light\nload: |\n  rm\n",
        {"labels/train/a.txt": "0 .5 .5 .5 .5", "labels/val/b.txt": "1 .5 .5 .5 .5"},
        ("images/train/a.png", "images/val/b.png"),
    )
    (only,) = read(ultralytics / "data.yaml")
    assert (only.id, only.split, boxes(only)) == (
        "images/val/b.png",
        "val",
        [(10, 5, 30, 15, "traffic light")],
    )
    assert [sample.id for sample in read(ultralytics, "?split=train")] == ["images/train/a.png"]
    with pytest.raises(SoritesError, match="split 'test'; it has val"):
        read(ultralytics, "?split=test")
    roboflow = write(
        tmp_path / "r",
        "train: ../train/images\nval: ../valid/images\nnc: 1\nnames: ['person']\nroboflow:\n  workspace: x\n "
        " license: CC0\n",
        {"valid/labels/b.txt": "0 .5 .5 1 1"},
        ("valid/images/b.png", "train/images/a.png"),
    )
    assert [boxes(sample) for sample in read(roboflow)] == [[(0, 0, 40, 20, "person")]]


def test_a_list_of_images(tmp_path: Path) -> None:
    labelled = {"labels/a.txt": "0 .5 .5 .5 .5", "val.txt": "./images/a.png\n"}
    root = write(tmp_path, f"val: val.txt\n{NAMES}", labelled, ("images/a.png", "images/b.png"))
    assert [sample.id for sample in read(root)] == ["images/a.png"]


def test_an_outline_gives_its_box_and_its_area_and_key_points_are_skipped(tmp_path: Path) -> None:
    root = write(tmp_path, NAMES, {"labels/a.txt": "0 0.1 0.1 0.5 0.1 0.5 0.9"}, ("images/a.png",))
    (box,) = read(root)[0].ground_truth or ()
    assert box.xyxy == pytest.approx((4, 2, 20, 18))
    assert box.area == pytest.approx(0.5 * 16 * 16)
    write(tmp_path, f"{NAMES}kpt_shape: [2, 3]\n", {"labels/a.txt": "0 .5 .5 .5 .5 .1 .1 2 .2 .2 2"}, ())
    assert boxes(read(root)[0]) == [(10, 5, 30, 15, "person")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 nan .5 .5 .5", "expected a box of finite numbers"),
        ("0 .5 .5 -.5 .5", "got -20 x 10"),
        ("7 .5 .5 .5 .5", "0 to 1, got 7"),
        ("0.5 .5 .5 .5 .5", "expected a class of data.yaml"),
        ("0 .5 .5 .5", "got 4 numbers"),
        ("0 .5 .5 .5 .5 .9", "got 6 numbers"),
        ("person .5 .5 .5 .5", "expected numbers"),
        (
            "0 20 10 4 4",
            r"got 20 10 4 4",
        ),
        ("0 1 1 9 1 9 9", "got 1 1 9 1"),
    ],
)
def test_a_line_that_cannot_be_understood_is_an_error_row(tmp_path: Path, line: str, reason: str) -> None:
    root = write(
        tmp_path, NAMES, {"labels/a.txt": f"0 .5 .5 .5 .5\n{line}\n"}, ("images/a.png", "images/b.png")
    )
    a, b = read(root)
    with pytest.raises(BadImage, match=rf"a\.txt, line 2: .*{reason}"):
        a.load()
    assert b.ground_truth == ()


def test_boxes_far_outside_are_cut_and_foreign_classes_counted(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        "names: [person, wheelbarrow]\n",
        {"labels/a.txt": "0 0 .5 .5 .5\n1 .5 .5 .1 .1"},
        ("images/a.png",),
    )
    with pytest.warns(UserWarning, match="first 'wheelbarrow'"):
        (a,) = read(root)
    assert boxes(a) == [(0, 5, 10, 15, "person")]


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("nc: 2\n", "names as a list of classes"),
        ("names: &a [x]\n", "line 1: names"),
        ("val: nowhere\nnames: [person]\n", "'nowhere',"),
        (
            "names: [gnome]\n",
            ("labels, such as 'person'"),
        ),
    ],
)
def test_a_data_yaml_that_does_not_help_is_reported(tmp_path: Path, yaml: str, message: str) -> None:
    write(tmp_path, yaml, {"labels/a.txt": ""}, ("images/a.png",))
    with pytest.raises(SoritesError, match=message):
        read(tmp_path)


def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="does not exist"):
        read(tmp_path / "no")
    with pytest.raises(SoritesError, match="data.yaml"):
        read(tmp_path)
    write(tmp_path, NAMES, {}, ("images/a.png",))
    with pytest.raises(SoritesError, match="label files, such"):
        read(tmp_path)
    with pytest.raises(SoritesError, match="yolo:PATH"):
        core.source("yolo", COCO)


def test_the_part_of_yaml_that_is_read() -> None:
    text = """# a comment
path: ../x # another
names: {0: person, 1: 'it''s', 2: "a # b"}
list: [a,
  'b, c',
  men's]
unended: ['a, b]
lines:
  - a
  - b c
map:
    0: x
    1: y
deep:
  a:
    b: c
text: |
  x: 1
empty:
"""
    found = yolo.parse(text)
    assert found["path"] == "../x"
    assert found["names"] == {"0": "person", "1": "it's", "2": "a # b"}
    assert found["list"] == ["a", "b, c", "men's"]
    assert found["unended"] == yolo.NotUnderstood(7)
    assert found["lines"] == ["a", "b c"]
    assert found["map"] == {"0": "x", "1": "y"}
    assert found["deep"] == yolo.NotUnderstood(14)
    assert found["text"] == yolo.NotUnderstood(17)
    assert found["empty"] == ""


@pytest.mark.parametrize("suffix", ["jpg", "tiff", "webp", "png"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_the_size_of_an_image_is_that_of_the_decoded_one(
    tmp_path: Path, suffix: str, orientation: int
) -> None:
    image = Pillow.new("RGB", (30, 20))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(tmp_path / f"a.{suffix}", exif=exif)
    height, width, _ = decode(tmp_path / f"a.{suffix}").shape
    assert size(tmp_path / f"a.{suffix}") == (width, height)


def test_oriented_boxes_are_refused_but_polygons_with_other_shapes_are_not(tmp_path: Path) -> None:
    turned = "0 0.25 0.1 0.5 0.6 0.4 0.8 0.15 0.3\n"  # (10, 2), (20, 12), (16, 16), (6, 6) px
    root = write(tmp_path, f"{NAMES}val: images\n", {"labels/a.txt": turned}, ("images/a.png",))
    with pytest.raises(SoritesError) as caught:
        read(root)
    assert "OBB" in str(caught.value)
    (root / "labels" / "a.txt").write_text(turned + "0 0.1 0.1 0.5 0.2 0.3 0.9\n")
    assert len(read(root)[0].ground_truth or ()) == 2
    (root / "labels" / "a.txt").write_text("0 0.1 0.1 0.5 0.1 0.5 0.9 0.1 0.9\n")
    assert len(read(root)[0].ground_truth or ()) == 1
