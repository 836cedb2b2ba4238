"""Read nuImages: street scenes with boxes, from the JSON tables that the nuScenes devkit documents.

Caesar et al., "nuScenes: A multimodal dataset for autonomous driving", CVPR 2020. Used are
``sample`` (key_camera_token), ``sample_data`` (token, filename, width, height), ``object_ann``
(sample_data_token, category_token, bbox as x0, y0, x1, y1) and ``category`` (token, name). Boxes
are amodal: they hold the hidden part of an object too. Masks are not read, so that small and large go
by boxes. Surfaces (``surface_ann``) have no boxes and are not read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sorites.core import Box, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.specs import split_options
from sorites.io.paths import leads_inside
from sorites.io.readers import json_file
from sorites.sources.detection.boxes import FOREIGN, Tally, broken, ground_truth_box
from sorites.sources.detection.coco import load

# The ten classes of nuScenes' detection task, by category; other categories are of no class.
CLASSES = {
    "movable_object.barrier": "barrier",
    "vehicle.bicycle": "bicycle",
    "vehicle.bus.bendy": "bus",
    "vehicle.bus.rigid": "bus",
    "vehicle.car": "car",
    "vehicle.construction": "construction_vehicle",
    "vehicle.motorcycle": "motorcycle",
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "movable_object.trafficcone": "traffic_cone",
    "vehicle.trailer": "trailer",
    "vehicle.truck": "truck",
}

# The names in COCO of classes of nuScenes, where they differ.
COCO = {"pedestrian": "person"}

# The tables that are read, and the keys that each row of them needs.
TABLES = {
    "sample": ("token", "key_camera_token"),
    "sample_data": ("token", "filename"),
    "object_ann": ("sample_data_token", "category_token", "bbox"),
    "category": ("token", "name"),
}

_USED = {key for keys in TABLES.values() for key in keys} | {"width", "height"}
Row = dict[str, Any]


@add_source
def nuimages(path: str | None, labels: Labels) -> list[Sample]:
    """Read nuImages' annotated images with boxes; ``nuimages:DIR?version=v1.0-val`` names the
    folder of tables.

    A category goes to the suite's label of its own name, of its class in nuScenes' detection task,
    or of that class in COCO.
    """
    folder, given = split_options("nuimages", path, {"version": ()})
    root = Path(folder).expanduser()
    tables = _tables(root, given.get("version"))
    sample, data, objects, categories = (_read(tables, name) for name in TABLES)
    names = {row["token"]: row["name"] for row in categories}
    known = _known(set(names.values()), labels, tables)
    tally = Tally(tables)
    annotated = _annotated(objects, names, known, tally)
    frames = {row["token"]: row for row in data}
    found = [_sample(root, row, frames.get(row["key_camera_token"]), annotated, tally) for row in sample]
    tally.warn()
    return found


def _tables(root: Path, version: str | None) -> Path:
    """Return the folder of the tables: the version that is named, or validation, or the only one,
    or the folder itself.
    """
    there = sorted(folder.name for folder in root.glob("v*") if (folder / "object_ann.json").is_file())
    if version is not None:
        if version not in there:
            raise SoritesError(
                f"{root} has no version {version!r} of nuImages; it has {', '.join(there) or 'none'}"
            )
        return root / version
    chosen = [name for name in there if name.endswith("-val")] or there
    if len(chosen) == 1:
        return root / chosen[0]
    if chosen:
        raise SoritesError(
            f"{root} has the versions {', '.join(there)}. Type: --source 'nuimages:{root}?version={there[0]}'"
        )
    if (root / "object_ann.json").is_file():
        return root
    raise SoritesError(
        f"wanted a folder of nuImages with v1.0-val/object_ann.json and samples/ in it, got {root}"
    )


def _read(tables: Path, name: str) -> list[Row]:
    read = json_file(tables / f"{name}.json", f"nuImages' table {name}", _slim)
    rows = [row for row in read if row != {}] if isinstance(read, list) else [read]
    for i, row in enumerate(rows):
        missing = [key for key in TABLES[name] if not isinstance(row, dict) or not _usable(key, row.get(key))]
        if missing:
            where = tables / f"{name}.json"
            raise SoritesError(
                f"wanted nuImages' table {name}; {where} has no {missing[0]} in row {i + 1}, as nuImages"
                " 1.0 has"
            )
    return rows


def _usable(key: str, value: Any) -> bool:
    """Return whether a value may stand under a key of a table: text, but for a box."""
    return value is not None if key == "bbox" else isinstance(value, str)


def _slim(row: Row) -> Row:
    """Keep what is used of a row; nothing of a frame between the annotated ones, which are most of
    sample_data.
    """
    return {} if row.get("is_key_frame") is False else {key: row[key] for key in _USED if key in row}


def _known(names: set[str], labels: Labels, tables: Path) -> dict[str, int]:
    """Return the suite's label of each category that it has."""
    found: dict[str, int] = {}
    for name in sorted(names):
        short = CLASSES.get(name, "")
        label = labels.get(*(word for word in (name, short, COCO.get(short, "")) if word))
        if label is not None:
            found[name] = label
    if not found:
        raise SoritesError(
            f"{tables}: none of its categories, such as vehicle.car, is one of the suite's labels, such as"
            f" {labels.names[0]!r}. The suite nuimages_optics has the ten classes of nuScenes"
        )
    return found


def _annotated(
    objects: list[Row], names: Mapping[str, str], known: Mapping[str, int], tally: Tally
) -> dict[str, list[tuple[Row, int]]]:
    """Return the annotated annotated of each image, with their labels."""
    annotated: dict[str, list[tuple[Row, int]]] = {}
    for row in objects:
        name = names.get(row["category_token"])
        if name is None:
            raise SoritesError(
                f"{tally.file}: {_called(row)} is of a category that category.json does not list"
            )
        if name in known:
            annotated.setdefault(row["sample_data_token"], []).append((row, known[name]))
        else:
            tally.add(FOREIGN, name)
    return annotated


def _called(row: Row) -> str:
    return f"object_ann {row.get('token', '')}".strip()


def _sample(
    root: Path, sample: Row, frame: Row | None, annotated: Mapping[str, list[tuple[Row, int]]], tally: Tally
) -> Sample:
    token = str(sample["token"])
    if frame is None or not isinstance(frame["filename"], str) or not leads_inside(frame["filename"]):
        return broken(
            re.sub(r"\W", "_", token), f"sample {token}: its camera image is not in sample_data.json"
        )
    name, width, height = frame["filename"], frame.get("width"), frame.get("height")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    ground_truth: list[Box] = []
    try:
        for row, label in annotated.get(frame["token"], ()):
            box = ground_truth_box(row["bbox"], label, size, _called(row), tally)
            ground_truth += [] if box is None else [box]
    except BadImage as error:
        return broken(name, f"{name}: {error}")
    return Sample(name, functools.partial(load, root, name, size), ground_truth=tuple(ground_truth))
