"""Read images with boxes from a COCO annotation file, such as ``instances_val2017.json``.

Format: "images" (id, file_name, width, height), "annotations" (image_id, category_id, bbox as x, y,
width, height in px, area, iscrowd) and "categories" (id, name), as documented with the COCO API.
Masks, keypoints and captions are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sorites.core import Box, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.specs import split_options
from sorites.io.paths import is_file, is_relative_inside
from sorites.io.readers import json_file
from sorites.sources import sidecar
from sorites.sources.detection.boxes import (
    FOREIGN,
    Tally,
    annotated,
    broken,
    ground_truth_box,
    known_classes,
    refuse_oriented,
)

WHAT = "COCO annotations (JSON with images, annotations and categories)"
PARTS = ("images", "annotations", "categories")
Rows = list[dict[str, Any]]
UNLISTED = (
    "annotation belongs to an image that the file does not list and is dropped",
    "annotations belong to images that the file does not list and are dropped",
)


@add_source
def coco(path: str | None, labels: Labels) -> list[Sample]:
    """Read images with ground-truth boxes from a COCO annotation file; ``coco:FILE,images=DIR`` names
    the folder of the images.

    Categories are matched to the labels by name. Without ``images``, the images are searched beside
    the file and in the usual COCO folders (``annotations/instances_val2017.json``, ``val2017/``). A
    missing image becomes a row with an error.
    """
    spec = (path or "").replace(",images=", "?images=", 1) if "?" not in (path or "") else path
    file, options = split_options("coco", spec, {"images": ()})
    where = Path(file).expanduser()
    images, annotations, categories = _parts(where)
    names = {row["id"]: row["name"] for row in categories}
    label_of = known_classes(names.values(), labels, where)
    root = _folder(where, options.get("images"), images)
    tally = Tally(where)
    boxed = _by_image(where, images, annotations, names, tally)
    samples = [_sample(root, row, boxed.get(row["id"], []), names, label_of, tally) for row in images]
    tally.warn()
    return samples


@dataclass(frozen=True)
class Annotations:
    """The content of an annotation file, without its images.

    Attributes:
        images: The image rows by id, in the order of the file.
        boxes: The annotation rows of each image id.
        categories: The category names by id.
    """

    images: dict[int | str, dict[str, Any]]
    boxes: dict[int | str, Rows]
    categories: dict[int | str, str]


def read_annotations(file: Path) -> Annotations:
    """Read an annotation file whose images are not needed."""
    images, annotations, categories = _parts(file)
    names = {row["id"]: row["name"] for row in categories}
    tally = Tally(file)
    boxed = _by_image(file, images, annotations, names, tally)
    tally.warn()
    return Annotations({row["id"]: row for row in images}, boxed, names)


def _parts(file: Path) -> tuple[Rows, Rows, Rows]:
    """Return the three lists of an annotation file after checking their structure."""
    data = json_file(file, WHAT, _slim)
    if isinstance(data, list) and data and isinstance(data[0], dict) and "score" in data[0]:
        raise SoritesError(f"expected {WHAT}; {file} is a list of predictions with scores")
    missing = [part for part in PARTS if not isinstance(data, dict) or not isinstance(data.get(part), list)]
    if missing:
        actual = (
            f"the keys {', '.join(list(data)[:6]) or 'none'}"
            if isinstance(data, dict)
            else f"a {type(data).__name__}"
        )
        raise SoritesError(f"expected {WHAT}; {file} has no list of {missing[0]}, but {actual}")
    images, annotations, categories = (data[part] for part in PARTS)
    _check_rows(file, "image", images, {"id": int | str, "file_name": str})
    _check_rows(file, "category", categories, {"id": int | str, "name": str})
    _check_rows(file, "annotation", annotations, {"image_id": int | str, "category_id": int | str})
    numbered = [row for row in annotations if row.get("id") is not None]
    _check_rows(file, "annotation with an id", numbered, {"id": int | str})
    for kind, rows, key in (
        ("image", images, "id"),
        ("image", images, "file_name"),
        ("category", categories, "id"),
        ("annotation", numbered, "id"),
    ):
        _check_unique(file, kind, rows, key)
    for row in annotations:
        refuse_oriented(row.get("bbox"), f"{file}: {_name(row)}")
    if not images:
        raise SoritesError(f"{file} lists no images")
    return images, annotations, categories


def _slim(row: dict[str, Any]) -> dict[str, Any]:
    """Drop masks and keypoints while parsing, because they are most of a file."""
    for key in ("segmentation", "keypoints"):
        row.pop(key, None)
    return row


def _check_rows(file: Path, kind: str, rows: list[Any], expected: Mapping[str, Any]) -> None:
    for i, row in enumerate(rows):
        for key, types in expected.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), types) or row[key] == "":
                actual = repr(row.get(key)) if isinstance(row, dict) else f"a {type(row).__name__}"
                raise SoritesError(
                    f"expected {WHAT}; in {file} {kind} number {i + 1} has no valid {key}: {actual}"
                )


def _check_unique(file: Path, kind: str, rows: Rows, key: str) -> None:
    values: set[Any] = set()
    for row in rows:
        if row[key] in values:
            raise SoritesError(f"{file}: the {key} {row[key]!r} of {kind} rows is not unique")
        values.add(row[key])


def _folder(file: Path, chosen: str | None, images: Rows) -> Path:
    """Return the given folder, or the first of the usual folders, that contains some of the images."""
    name = re.sub(r"^[a-z]+_", "", file.stem)
    here, above = file.parent, file.parent.parent
    candidates = [
        here,
        here / "images",
        here / name,
        above / name,
        above / "images" / name,
        above / "images",
        above,
    ]
    searched = candidates if chosen is None else [Path(chosen).expanduser()]
    for folder in searched:
        if any(is_file(folder / row["file_name"]) for row in islice(images, 100 if chosen is None else None)):
            return folder
    raise SoritesError(
        f"none of the {len(images):,} images of {file}, such as {images[0]['file_name']}, is in"
        f" {', '.join(map(str, searched[:4]))}. Pass {option('source', f'coco:{file},images=DIR')}"
    )


def _by_image(
    file: Path, images: Rows, annotations: Rows, names: Mapping[Any, str], tally: Tally
) -> dict[Any, Rows]:
    """Group annotations by image id."""
    boxed: dict[Any, Rows] = {row["id"]: [] for row in images}
    for row in annotations:
        if row["category_id"] not in names:
            raise SoritesError(
                f"{file}: {_name(row)} has the category {row['category_id']!r}, which the file does not list"
            )
        if row["image_id"] not in boxed:
            tally.add(UNLISTED, _name(row))
        else:
            boxed[row["image_id"]].append(row)
    return boxed


def _name(row: Mapping[str, Any]) -> str:
    return f"annotation {row.get('id', 'without an id')}"


def _sample(
    root: Path,
    row: dict[str, Any],
    annotations: Rows,
    names: Mapping[Any, str],
    label_of: Mapping[str, int],
    tally: Tally,
) -> Sample:
    name = row["file_name"].replace("\\", "/").removeprefix("./")
    width, height = row.get("width"), row.get("height")
    size = (
        (width, height)
        if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0
        else None
    )
    if not is_relative_inside(name):
        return broken(name.strip("/") or "/", f"{name}: expected the name of an image inside {root}")
    ground_truth: list[Box] = []
    try:
        for annotation in annotations:
            category = names[annotation["category_id"]]
            if category not in label_of:
                tally.add(FOREIGN, repr(category))
            elif (box := _box(annotation, label_of[category], size, tally)) is not None:
                ground_truth.append(box)
    except BadImage as error:
        return broken(name, f"{name}: {error}")
    image = annotated(sidecar.file_in(root, name), size, name)
    return Sample(name, image, ground_truth=tuple(ground_truth))


def _box(row: dict[str, Any], label: int, size: tuple[int, int] | None, tally: Tally) -> Box | None:
    name, numbers = _name(row), row.get("bbox")
    if numbers is None:
        raise BadImage(f"{name} has no bbox; masks and keypoints without one are not supported")
    try:
        x, y, width, height = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        raise BadImage(f"{name}: expected bbox as x, y, width and height in px, got {numbers!r}") from None
    corners = (x, y, x + width, y + height)
    return ground_truth_box(corners, label, size, name, tally, row.get("area"), bool(row.get("iscrowd", 0)))
