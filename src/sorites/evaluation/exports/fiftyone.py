"""Write a run as a dataset of FiftyOne: one sample per image, with the answers of all models.

The layout is the JSON one that FiftyOne's reader accepts without a version of its database schema
(``metadata.json`` without ``version``, ``samples.json``, ``data/``), because documents of the database change
with each release. It was written after the reader's source and not loaded by FiftyOne itself, whose database
needs a download.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image as Pillow

from sorites.core import ImageU8
from sorites.core.errors import Notice, SoritesError, tell
from sorites.core.labels import Labels
from sorites.core.table import read
from sorites.evaluation.exports.coco import Exporting
from sorites.evaluation.images import Shot, shots
from sorites.evaluation.reopen import class_names
from sorites.io.files import write_bytes
from sorites.metrics.failure import trajectories

Cell = dict[str, Any]
COLUMNS = (
    "image_id",
    "model",
    "output",
    "scorer",
    "pred",
    "conf",
    "correct",
    "score",
    "boxes",
    "error",
    "valid",
)
# Fields of every sample, which no model may take.
FIELDS = (
    "id",
    "filepath",
    "tags",
    "metadata",
    "created_at",
    "last_modified_at",
    "original",
    "shift",
    "severity",
    "level",
    "ground_truth",
    "params",
)
UNPROVED = "Written after the reader of FiftyOne, not loaded by FiftyOne itself."


def write_fiftyone(task: Exporting) -> None:
    """Write ``samples.json``, ``metadata.json`` and the images.

    Samples have the fields ``original`` (the id that all images of a sample share: ``group_by("original")``),
    ``shift``, ``severity``, ``ground_truth``, and for each model its answer, whether it is correct, its OOD
    scores, and the severity of this shift at which it first fails on this sample.
    """
    plan, names = task.plan(), class_names(task.record)
    if names is None:
        raise SoritesError(f"the classes of {task.folder} are not known: its labels have changed since")
    rows, failures = _rows(task), _failures(task)
    units = plan.units()
    tick = task.bar("exporting", len(units)) if task.bar else lambda n: None
    samples: list[Cell] = []
    missing = 0
    (task.out / "data").mkdir()
    for unit in units:
        for shot in shots(plan, unit):
            image_id = plan.image_id(shot.sample, shot.shift, shot.setting)
            if shot.image is None:
                missing += 1
                continue
            file = f"data/{len(samples):07d}.png"
            write_bytes(_png(shot.image), task.out / file)
            answers = rows.get(image_id, [])
            samples.append(_sample(file, shot, answers, names, failures))
        tick(1)
    about = {"sorites_run": task.record.run_id, "suite": task.record.suite.name, "note": UNPROVED}
    metadata = {"media_type": "image", "info": {**about, "classes": list(names.names)}}
    _write(metadata, task.out / "metadata.json")
    _write({"samples": samples}, task.out / "samples.json")
    if missing:
        text = f"{missing} images could not be made and were left out."
        tell(Notice(text, code="incomplete", count=missing))


def _write(content: Cell, path: Path) -> None:
    write_bytes(json.dumps(content, allow_nan=False).encode(), path)


def _rows(task: Exporting) -> dict[str, list[Cell]]:
    table = read(task.folder).filter(~pl.col("probe").fill_null(False))
    if task.models:
        table = table.filter(pl.col("model").is_in(list(task.models)))
    fields, found = field_names(task.record.models), dict[str, list[Cell]]()
    for row in table.select(COLUMNS).collect(engine="streaming").iter_rows(named=True):
        found.setdefault(row["image_id"], []).append({**row, "field": fields[row["model"]]})
    return found


Failures = Mapping[tuple[str, str, str], float | None]


def _failures(task: Exporting) -> Failures:
    """Return the failure severity by model, sample and shift; None if it does not fail."""
    labels = read(task.folder).filter((pl.col("output") == "label") & pl.col("correct").is_not_null())
    found = trajectories(labels).select("model", "sample_id", "shift", "failure").collect()
    return {(model, sample, shift): failure for model, sample, shift, failure in found.iter_rows()}


def _sample(file: str, shot: Shot, answers: Sequence[Cell], names: Labels, failures: Failures) -> Cell:
    label, setting = shot.sample.label, shot.setting
    made: Cell = {
        "filepath": file,
        "tags": [shot.shift],
        "metadata": None,
        "original": shot.sample.id,
        "shift": shot.shift,
        "severity": setting.severity,
        "level": setting.level,
        "ground_truth": None if label is None else _classification(names.names[label]),
    }
    if setting.params:
        made["params"] = json.dumps(dict(setting.params), default=str)
    if shot.ground_truth is not None:
        assert shot.image is not None
        boxes = [{"label": b.label, "xyxy": b.xyxy, "conf": None} for b in shot.ground_truth]
        made["ground_truth"] = _detections(boxes, names, shot.image)
    for row in answers:
        made |= _answer(row, shot, names)
        key = (row["model"], shot.sample.id, shot.shift)
        if row["output"] == "label" and key in failures:
            made[f"{row['field']}_failure_severity"] = failures[key]
    return made


def _answer(row: Cell, shot: Shot, names: Labels) -> Cell:
    field = row["field"]
    if row["output"] == "ood":
        score = row["score"]
        known = score is not None and math.isfinite(score)  # JSON has no infinity
        return {f"{field}_{field_name(row['scorer'])}": score if known else None}
    if row["error"] is not None:
        return {f"{field}_error": row["error"]}
    if row["output"] == "boxes":
        assert shot.image is not None
        corners = ("x0", "y0", "x1", "y1")
        boxes = [{**box, "xyxy": [box[name] for name in corners]} for box in row["boxes"] or ()]
        return {field: _detections(boxes, names, shot.image)}
    pred = row["pred"]
    shown = None if pred is None else _classification(names.names[pred], row["conf"])
    return {field: shown, f"{field}_correct": row["correct"]}


def _classification(label: str, confidence: float | None = None) -> Cell:
    return {"_cls": "Classification", "label": label, "confidence": confidence}


def _detections(boxes: Sequence[Cell], names: Labels, image: ImageU8) -> Cell:
    """Return boxes relative to the size of the image: x, y, width and height."""
    height, width = image.shape[:2]
    found = []
    for box in boxes:
        x0, y0, x1, y1 = (float(corner) for corner in box["xyxy"])
        place = [x0 / width, y0 / height, (x1 - x0) / width, (y1 - y0) / height]
        label = names.names[box["label"]]
        found.append({"_cls": "Detection", "label": label, "bounding_box": place, "confidence": box["conf"]})
    return {"_cls": "Detections", "detections": found}


def field_name(name: str) -> str:
    """Return a name that FiftyOne accepts for a field.

    Example:
        >>> field_name("timm:resnet18@a.b")
        'timm_resnet18_a_b'
    """
    return re.sub(r"\W", "_", name).lstrip("_0123456789") or "model"


def field_names(models: Iterable[str]) -> dict[str, str]:
    """Return the field of each model, distinct from each other and from the fields of samples.

    Example:
        >>> field_names(["lite0", "a.b", "a-b", "original"])
        {'lite0': 'lite0', 'a.b': 'a_b', 'a-b': 'a_b_2', 'original': 'original_2'}
    """
    found: dict[str, str] = {}
    for model in models:
        first = field_name(model)
        numbered = (first if n == 1 else f"{first}_{n}" for n in itertools.count(1))
        found[model] = next(field for field in numbered if field not in (*FIELDS, *found.values()))
    return found


def _png(image: ImageU8) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, format="PNG")
    return buffer.getvalue()
