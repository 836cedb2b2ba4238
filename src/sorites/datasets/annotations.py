"""True boxes of a dataset as COCO's annotation file, beside its pictures, so that any tool for detection can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sorites.labels import Labels, coco, coco_category_ids
from sorites.sources import _sidecar as sidecar

ANNOTATIONS = "annotations.json"
Size = tuple[int, int]
"""The height and the width of a picture in px."""


def category_ids(labels: Labels) -> dict[str, int]:
    """Return the number of each class id in the file: COCO's own for COCO's classes, otherwise 1, 2, 3 ... in their order."""
    numbers = coco_category_ids() if labels.ids == coco().ids else range(1, len(labels) + 1)
    return dict(zip(labels.ids, numbers, strict=True))


def coco_json(records: Sequence[tuple[Mapping[str, Any], Size]], labels: Labels) -> bytes:
    """Return the annotation file of pictures given by rows of the sidecar and their sizes; a picture whose boxes are not known is
    not in it. Ids of pictures and annotations begin with 1, because 0 means unmatched in COCO's tools."""
    numbers = category_ids(labels)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for record, (height, width) in records:
        if record[sidecar.BOXES] is None:
            continue
        images.append({"id": len(images) + 1, "file_name": record["path"], "width": width, "height": height})
        for cell in record[sidecar.BOXES]:
            annotations.append({"id": len(annotations) + 1, "image_id": len(images), **_annotation(cell, numbers)})
    categories = [{"id": numbers[id_], "name": name} for id_, name in zip(labels.ids, labels.names, strict=True)]
    return json.dumps({"images": images, "annotations": annotations, "categories": categories}, indent=1).encode()


def _annotation(cell: Mapping[str, Any], numbers: Mapping[str, int]) -> dict[str, Any]:
    across, down = cell["x1"] - cell["x0"], cell["y1"] - cell["y0"]
    return {
        "category_id": numbers[cell["label"]],
        "bbox": [cell["x0"], cell["y0"], across, down],
        "area": across * down if cell["area"] is None else cell["area"],
        "iscrowd": int(cell["crowd"]),
    }
