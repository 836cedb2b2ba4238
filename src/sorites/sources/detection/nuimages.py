"""Read nuImages: street scenes with boxes, from the JSON tables documented with the nuScenes devkit.

Caesar et al., "nuScenes: A multimodal dataset for autonomous driving", CVPR 2020. The reader uses
``sample`` (key_camera_token), ``sample_data`` (token, filename, width, height), ``object_ann``
(sample_data_token, category_token, bbox as x0, y0, x1, y1) and ``category`` (token, name). Boxes are
amodal: they include the hidden part of an object. Masks are not read, so object sizes are those of
the boxes. Surfaces (``surface_ann``) have no boxes and are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sorites.core import Box, Sample, add_source
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.specs import split_options
from sorites.io.paths import is_relative_inside
from sorites.io.readers import json_file
from sorites.sources.detection.boxes import FOREIGN, Tally, annotated, broken, ground_truth_box
from sorites.sources.sidecar import file_in

# Maps categories to the ten classes of the nuScenes detection task; other categories have no class.
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

# The COCO names of nuScenes classes, if they differ.
COCO = {"pedestrian": "person"}

# The tables that are read, and the required keys of their rows.
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
    """Read annotated nuImages images with boxes; ``nuimages:DIR?version=v1.0-val`` selects the folder
    of tables.

    A category is matched to the labels by its own name, by its class in the nuScenes detection task,
    or by the COCO name of that class.
    """
    folder, options = split_options("nuimages", path, {"version": ()})
    root = Path(folder).expanduser()
    tables = _tables(root, options.get("version"))
    sample, data, objects, categories = (_read(tables, name) for name in TABLES)
    names = {row["token"]: row["name"] for row in categories}
    label_of = _match_labels(set(names.values()), labels, tables)
    tally = Tally(tables)
    boxes = _annotations_by_image(objects, names, label_of, tally)
    frames = {row["token"]: row for row in data}
    samples = [_sample(root, row, frames.get(row["key_camera_token"]), boxes, tally) for row in sample]
    tally.warn()
    return samples


def _tables(root: Path, version: str | None) -> Path:
    """Return the folder of tables: the given version, the validation set, the only version or ``root``."""
    versions = sorted(folder.name for folder in root.glob("v*") if (folder / "object_ann.json").is_file())
    if version is not None:
        if version not in versions:
            raise SoritesError(
                f"{root} has no version {version!r} of nuImages; it has {', '.join(versions) or 'none'}"
            )
        return root / version
    chosen = [name for name in versions if name.endswith("-val")] or versions
    if len(chosen) == 1:
        return root / chosen[0]
    if chosen:
        raise SoritesError(
            f"{root} has the versions {', '.join(versions)}. Pass"
            f" {option('source', f'nuimages:{root}?version={versions[0]}')}"
        )
    if (root / "object_ann.json").is_file():
        return root
    raise SoritesError(f"expected a nuImages folder with v1.0-val/object_ann.json and samples/, got {root}")


def _read(tables: Path, name: str) -> list[Row]:
    content = json_file(tables / f"{name}.json", f"nuImages' table {name}", _slim)
    rows = [row for row in content if row != {}] if isinstance(content, list) else [content]
    for i, row in enumerate(rows):
        missing = [key for key in TABLES[name] if not isinstance(row, dict) or not _usable(key, row.get(key))]
        if missing:
            where = tables / f"{name}.json"
            raise SoritesError(f"expected nuImages table {name}; {where} has no {missing[0]} in row {i + 1}")
    return rows


def _usable(key: str, value: Any) -> bool:
    """Return whether a value is valid for a key: any value for a box, text otherwise."""
    return value is not None if key == "bbox" else isinstance(value, str)


def _slim(row: Row) -> Row:
    """Keep only the used keys; rows between key frames, most of sample_data, become empty."""
    return {} if row.get("is_key_frame") is False else {key: row[key] for key in _USED if key in row}


def _match_labels(names: set[str], labels: Labels, tables: Path) -> dict[str, int]:
    """Map categories to labels, leaving out unknown categories."""
    label_of: dict[str, int] = {}
    for name in sorted(names):
        short = CLASSES.get(name, "")
        label = labels.get(*(word for word in (name, short, COCO.get(short, "")) if word))
        if label is not None:
            label_of[name] = label
    if not label_of:
        raise SoritesError(
            f"{tables}: none of its categories, such as vehicle.car, is among the labels, such as"
            f" {labels.names[0]!r}. The suite nuimages_optics has the ten classes of nuScenes."
        )
    return label_of


def _annotations_by_image(
    objects: list[Row], names: Mapping[str, str], label_of: Mapping[str, int], tally: Tally
) -> dict[str, list[tuple[Row, int]]]:
    """Group annotations by image token, with their labels."""
    boxes: dict[str, list[tuple[Row, int]]] = {}
    for row in objects:
        name = names.get(row["category_token"])
        if name is None:
            raise SoritesError(f"{tally.file}: {_name(row)} has a category that category.json does not list")
        if name in label_of:
            boxes.setdefault(row["sample_data_token"], []).append((row, label_of[name]))
        else:
            tally.add(FOREIGN, name)
    return boxes


def _name(row: Row) -> str:
    return f"object_ann {row.get('token', '')}".strip()


def _sample(
    root: Path, sample: Row, frame: Row | None, boxes: Mapping[str, list[tuple[Row, int]]], tally: Tally
) -> Sample:
    token = str(sample["token"])
    if frame is None or not isinstance(frame["filename"], str) or not is_relative_inside(frame["filename"]):
        return broken(
            re.sub(r"\W", "_", token), f"sample {token}: its camera image is not in sample_data.json"
        )
    name, width, height = frame["filename"], frame.get("width"), frame.get("height")
    size = (width, height) if isinstance(width, int) and isinstance(height, int) else None
    ground_truth: list[Box] = []
    try:
        for row, label in boxes.get(frame["token"], ()):
            box = ground_truth_box(row["bbox"], label, size, _name(row), tally)
            ground_truth += [] if box is None else [box]
    except BadImage as error:
        return broken(name, f"{name}: {error}")
    return Sample(name, annotated(file_in(root, name), size, name), ground_truth=tuple(ground_truth))
