"""Boxes as the table keeps them: those that a model found, in the suite's labels, and the true ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sorites.core import Box, Model, Outputs
from sorites.pipeline.framing import Truth
from sorites.pipeline.plan import Columns

MOST = 100
"""The most boxes that are kept per picture and class, as COCO counts them; those of the highest confidence stay."""

Cell = dict[str, Any]


def truth_cells(truth: Truth) -> list[Cell] | None:
    """Return true boxes as the column ``truth`` holds them; None means that they are not known, [] that nothing is there."""
    return None if truth is None else [{**_cell(box, box.label), "area": box.area, "crowd": box.crowd} for box in truth]


def box_cells(columns: Columns, outputs: Outputs) -> list[list[Cell] | None]:
    """Return what ``boxes`` holds of each picture: boxes of classes that the suite asks about, by falling confidence."""
    if outputs.boxes is None:
        return [None] * len(outputs)
    label = dict(zip(columns.places.tolist(), columns.labels.tolist(), strict=True))
    return [_kept(boxes, label) for boxes in outputs.boxes]


def wrong_boxes(boxes: Sequence[Box], model: Model, labels: int | None = None) -> str | None:
    """Return what is wrong with the boxes that a model gave for a picture, or None; ``labels`` is how many the suite has."""
    suites = math.inf if labels is None else labels + model.background
    classes = suites if model.labels is None else len(model.labels)
    for box in boxes:
        if box.conf is None or not all(map(math.isfinite, (*box.xyxy, box.conf))):
            return f"model {model.name} gave a box without finite numbers: {box.xyxy}, confidence {box.conf}"
        if not 0 <= box.label < classes:
            return f"model {model.name} gave a box of class {box.label}, and {_classes(model, labels)}"
    return None


def _classes(model: Model, labels: int | None) -> str:
    if model.labels is not None:
        return f"it has classes 0 to {len(model.labels) - 1}"
    places = "labels" if labels is None else f"{labels} labels, 0 to {labels - 1}"
    return f"its classes are the suite's {places}; if it has others, name them (labels in docs/models.md)"


def _kept(boxes: Sequence[Box], label: dict[int, int]) -> list[Cell]:
    counts: dict[int, int] = {}
    cells = []
    for box in sorted(boxes, key=lambda box: -(box.conf or 0.0)):
        counts[box.label] = counts.get(box.label, 0) + 1
        if box.label in label and counts[box.label] <= MOST:
            cells.append(_cell(box, label[box.label]))
    return cells


def _cell(box: Box, label: int) -> Cell:
    return dict(zip(("x0", "y0", "x1", "y1"), box.xyxy, strict=True)) | {"label": label, "conf": box.conf}
