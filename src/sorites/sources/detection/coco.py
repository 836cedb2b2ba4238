"""Read images with boxes from COCO's annotation file: ``instances_val2017.json``, or one that
``sorites build`` wrote.

Format: "images" (id, file_name, width, height), "annotations" (image_id, category_id, bbox as x, y,
width, height in px, area, iscrowd) and "categories" (id, name), as documented with the COCO API.
Masks, key points and captions are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sorites.core import Box, ImageU8, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.io.paths import is_file, leads_inside
from sorites.io.readers import json_file
from sorites.sources import sidecar
from sorites.sources.detection.boxes import FOREIGN, Tally, broken, ground_truth_box, known_classes, sized

WHAT = "COCO annotations (JSON with images, annotations and categories)"
PARTS = ("images", "annotations", "categories")
Rows = list[dict[str, Any]]
UNLISTED = (
    "annotation is of an image that the file does not list, and is left out",
    "annotations are of images that the file does not list, and are left out",
)


@add_source
def coco(path: str | None, labels: Labels) -> list[Sample]:
    """Read images with ground-truth boxes from a COCO annotation file; ``coco:FILE,images=DIR`` says
    where the images are.

    Categories go to the suite's labels by name. Without ``images`` the images are looked for
    beside the file and where COCO has them (``annotations/instances_val2017.json``, ``val2017/``).
    A missing image becomes a row with its error.
    """
    spelled = (path or "").replace(",images=", "?images=", 1) if "?" not in (path or "") else path
    file, given = split_options("coco", spelled, {"images": ()})
    where = Path(file).expanduser()
    images, annotations, categories = _parts(where)
    names = {row["id"]: row["name"] for row in categories}
    known = known_classes(names.values(), labels, where)
    root = _folder(where, given.get("images"), images)
    tally = Tally(where)
    boxed = _by_image(where, images, annotations, names, tally)
    found = [_sample(root, row, boxed.get(row["id"], []), names, known, tally) for row in images]
    tally.warn()
    return found


def _parts(file: Path) -> tuple[Rows, Rows, Rows]:
    """Return the three lists of a file, checked as far as everything else relies on them."""
    data = json_file(file, WHAT, _slim)
    if isinstance(data, list) and data and isinstance(data[0], dict) and "score" in data[0]:
        raise SoritesError(f"wanted {WHAT}; {file} is a list of results with scores, which a model gives")
    missing = [part for part in PARTS if not isinstance(data, dict) or not isinstance(data.get(part), list)]
    if missing:
        came = (
            f"the keys {', '.join(list(data)[:6]) or 'none'}"
            if isinstance(data, dict)
            else f"a {type(data).__name__}"
        )
        raise SoritesError(f"wanted {WHAT}; {file} has no list of {missing[0]}: it holds {came}")
    images, annotations, categories = (data[part] for part in PARTS)
    _rows(file, "image", images, {"id": int | str, "file_name": str})
    _rows(file, "category", categories, {"id": int | str, "name": str})
    _rows(file, "annotation", annotations, {"image_id": int | str, "category_id": int | str})
    numbered = [row for row in annotations if row.get("id") is not None]
    _rows(file, "annotation with an id", numbered, {"id": int | str})
    for kind, rows, key in (
        ("image", images, "id"),
        ("image", images, "file_name"),
        ("category", categories, "id"),
        ("annotation", numbered, "id"),
    ):
        _once(file, kind, rows, key)
    if not images:
        raise SoritesError(f"{file} lists no images")
    return images, annotations, categories


def _slim(found: dict[str, Any]) -> dict[str, Any]:
    """Drop the outlines and key points of an annotation as it is read: they are most of a file."""
    for key in ("segmentation", "keypoints"):
        found.pop(key, None)
    return found


def _rows(file: Path, kind: str, rows: list[Any], wanted: Mapping[str, Any]) -> None:
    for i, row in enumerate(rows):
        for key, types in wanted.items():
            if not isinstance(row, dict) or not isinstance(row.get(key), types) or row[key] == "":
                came = repr(row.get(key)) if isinstance(row, dict) else f"a {type(row).__name__}"
                raise SoritesError(
                    f"wanted {WHAT}; in {file} {kind} number {i + 1} has no usable {key}: {came}"
                )


def _once(file: Path, kind: str, rows: Rows, key: str) -> None:
    seen: set[Any] = set()
    for row in rows:
        if row[key] in seen:
            raise SoritesError(f"{file}: wanted every {kind} once; the {key} {row[key]!r} stands there twice")
        seen.add(row[key])


def _folder(file: Path, given: str | None, images: Rows) -> Path:
    """Return the folder of the images: the one that was given, or the first of the usual ones
    that holds some of them.
    """
    name = re.sub(r"^[a-z]+_", "", file.stem)
    here, above = file.parent, file.parent.parent
    usual = [
        here,
        here / "images",
        here / name,
        above / name,
        above / "images" / name,
        above / "images",
        above,
    ]
    tried = usual if given is None else [Path(given).expanduser()]
    for folder in tried:
        if any(is_file(folder / row["file_name"]) for row in islice(images, 100 if given is None else None)):
            return folder
    what = f"none of the {len(images):,} images of {file}, such as {images[0]['file_name']}, is in"
    raise SoritesError(
        f"{what} {', '.join(map(str, tried[:4]))}. Say where they are: --source coco:{file},images=DIR"
    )


def _by_image(
    file: Path, images: Rows, annotations: Rows, names: Mapping[Any, str], tally: Tally
) -> dict[Any, Rows]:
    """Return the annotations of each image."""
    boxed: dict[Any, Rows] = {row["id"]: [] for row in images}
    for row in annotations:
        if row["category_id"] not in names:
            raise SoritesError(
                f"{file}: {_called(row)} is of the category {row['category_id']!r}, which the file does not"
                " list"
            )
        if row["image_id"] not in boxed:
            tally.add(UNLISTED, _called(row))
        else:
            boxed[row["image_id"]].append(row)
    return boxed


def _called(row: Mapping[str, Any]) -> str:
    return f"annotation {row.get('id', 'without an id')}"


def _sample(
    root: Path,
    row: dict[str, Any],
    annotations: Rows,
    names: Mapping[Any, str],
    known: Mapping[str, int],
    tally: Tally,
) -> Sample:
    name = row["file_name"].replace("\\", "/").removeprefix("./")
    width, height = row.get("width"), row.get("height")
    size = (
        (width, height)
        if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0
        else None
    )
    if not leads_inside(name):
        return broken(name.strip("/") or "/", f"{name}: wanted the name of an image inside {root}")
    ground_truth: list[Box] = []
    try:
        for annotation in annotations:
            category = names[annotation["category_id"]]
            if category not in known:
                tally.add(FOREIGN, repr(category))
            elif (box := _box(annotation, known[category], size, tally)) is not None:
                ground_truth.append(box)
    except BadImage as error:
        return broken(name, f"{name}: {error}")
    return Sample(name, functools.partial(load, root, name, size), ground_truth=tuple(ground_truth))


def _box(row: dict[str, Any], label: int, size: tuple[int, int] | None, tally: Tally) -> Box | None:
    called, numbers = _called(row), row.get("bbox")
    if numbers is None:
        raise BadImage(f"{called} has no bbox; masks and key points without one are not understood")
    try:
        x, y, width, height = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        raise BadImage(f"{called}: wanted bbox as x, y, width and height in px, got {numbers!r}") from None
    corners = (x, y, x + width, y + height)
    return ground_truth_box(corners, label, size, called, tally, row.get("area"), bool(row.get("iscrowd", 0)))


def load(root: Path, name: str, size: tuple[int, int] | None) -> ImageU8:
    """Decode an image; one whose size is not that of its annotations is an error."""
    image = sidecar.load(root, name)
    return image if size is None else sized(image, *size, name)
