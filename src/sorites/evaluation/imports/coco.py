"""Read predictions of detectors: COCO results, and what Ultralytics writes.

COCO results are a JSON list of ``image_id``, ``category_id``, ``bbox`` (x, y, width, height in px) and
``score`` for the images of an annotation file. Ultralytics writes such a list (``predictions.json``, whose
image ids are stems of file names) and one text file per image (``labels/NAME.txt``: class, centre, size and
confidence, relative to the image). Each file holds one setting: ``clean=results.json fog:2=fog2.json``.

An image of the annotations without a prediction is an image in which nothing was found, as in COCO's own
evaluation. The ground-truth boxes are those of the annotation file, neither clipped nor dropped.

Two keys that COCO does not have are read where they exist: the OOD scores of a result by scorer
(``ood_scores``), and whether the model has the class of an annotation (``known``).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.table import SCHEMA
from sorites.evaluation.box_scores import CONFIDENCE
from sorites.evaluation.imports.read import ROW, Part, Reading, Sheet
from sorites.io.decode import size as size_of
from sorites.io.paths import is_dir, is_file
from sorites.io.readers import json_file, lines
from sorites.sources.detection.boxes import oriented, refuse_oriented
from sorites.sources.detection.coco import read_annotations

KIND = "coco"
# The list of an export's files, which makes its folder importable as a whole.
INDEX = "sorites.json"
WHAT = "COCO results (a JSON list with image_id, category_id, bbox and score)"
_SETTING = re.compile(r"(?P<shift>[^\W\d]\w*)(?::(?P<severity>[0-9.eE+-]+))?=(?P<path>.+)", re.DOTALL)
# The key of results with the OOD scores of a box by scorer.
SCORES = "ood_scores"
# Keys of results that hold oriented boxes in the files of Ultralytics.
ORIENTED_KEYS = ("rbox", "poly")

Cell = dict[str, Any]


@dataclass(frozen=True)
class Annotated:
    """An annotated image: its sample id, size in px if known, and ground-truth boxes as table cells."""

    name: str
    size: tuple[int, int] | None
    boxes: list[Cell]


@dataclass(frozen=True)
class Truth:
    """The annotated images of a setting.

    Attributes:
        file: The annotation file.
        images: The images by id.
        label_of: The label of each category id; None for a category that is not among the labels.
        ordered: The category ids in the order of classes, for predictions that number classes.
    """

    file: Path
    images: dict[int | str, Annotated]
    label_of: dict[int | str, int | None]
    ordered: tuple[int | str, ...]

    def index(self) -> dict[int | str, Annotated]:
        """Return the images by everything that results call them: id, file name and its stem."""
        found: dict[int | str, Annotated] = {}
        for image in self.images.values():
            stem = PurePosixPath(image.name).stem
            for alias in (int(stem) if stem.isdecimal() else stem, stem, image.name):
                found.setdefault(alias, image)
        for id_, image in self.images.items():
            found.setdefault(str(id_), image)
        return found | self.images


@dataclass(frozen=True)
class Results:
    """A file of results: where it is, and the setting, model and annotations that it belongs to."""

    path: Path
    annotations: Path
    model: str
    shift: str = CLEAN
    severity: float | None = 0.0
    level: int | None = None
    family: str | None = None
    params: str = "{}"
    failed: Mapping[str, str] = field(default_factory=dict)
    """The errors of images without predictions, by sample id."""
    unlabelled: frozenset[str] = frozenset()
    """Images whose objects are unknown, by sample id."""
    known: Mapping[str, bool] = field(default_factory=dict)
    """Whether the model has the classes of all objects of an image, by sample id."""
    scores: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    """OOD score and error of images, by scorer and sample id; else they follow from those of boxes."""

    @property
    def name(self) -> str:
        """The setting and file, as they are typed."""
        severity = "" if self.shift == CLEAN or self.severity is None else f":{self.severity:g}"
        return f"{self.shift}{severity}={self.path.name}"


def coco_reading(
    files: Sequence[str | Path],
    annotations: Sequence[str | Path],
    labels: str | Sequence[str] | None,
    constants: Mapping[str, Any],
    first_class: int | None = None,
) -> Reading:
    """Return how to read files of results.

    Args:
        files: ``FILE`` or ``SHIFT:SEVERITY=FILE``: JSON files, folders of Ultralytics' label files, or the
            folder of an export.
        annotations: Annotation files, or ``SHIFT:SEVERITY=FILE`` for a setting whose boxes have moved; a
            ``data.yaml`` or its folder for a YOLO dataset.
        labels: The classes; None takes the categories of the annotations.
        constants: The columns ``model`` and ``source``, if given.
        first_class: The number of the first class, where results number the classes in the order of the
            annotations' categories; None takes their numbers for category ids.

    Raises:
        SoritesError: A file does not exist or is not what its name says.
    """
    listed = [found for file in files for found in _listed(file, annotations, constants.get("model"))]
    if not listed:
        raise SoritesError("name at least one file of results")
    _refuse_twins(listed)
    paths = dict.fromkeys(results.annotations for results in listed)
    names = labels_of(labels) if labels is not None else None
    truths: dict[Path, Truth] = {}
    for path in paths:
        truths[path], names = _truth(path, names)
    if names is None:
        raise SoritesError("the annotations have no categories")
    source = constants.get("source") or _source(next(iter(paths)))
    parts = [
        Part(results.name, partial(_sheet, results, truths[results.annotations], str(source), first_class))
        for results in sorted(listed, key=lambda results: (results.model, results.name))
    ]
    entries = [
        *((f"{results.model} {results.name}", content_of(results.path)) for results in listed),
        *((f"annotations={path.name}", content_of(path)) for path in paths),
    ]
    return Reading(tuple(sorted(entries)), parts, names)


def content_of(path: Path) -> str:
    """Return a hash of a file, or of the names and content of a folder's text files."""
    hashed = hashlib.blake2b(digest_size=8)
    for file in sorted(path.glob("*.txt")) if is_dir(path) else [path]:
        if file != path:
            hashed.update(f"{file.name}\0".encode())
        with file.open("rb") as opened:
            hashed.update(hashlib.file_digest(opened, lambda: hashlib.blake2b(digest_size=8)).digest())
    return hashed.hexdigest()


def _source(annotations: Path) -> str:
    """Return the name of the source: imports with the same annotation file share their samples."""
    content = "" if is_dir(annotations) else f"-{content_of(annotations)[:8]}"
    return f"{annotations.stem}{content}"


# Which file holds which setting.


def _listed(file: str | Path, annotations: Sequence[str | Path], model: str | None) -> list[Results]:
    """Return the results that an argument names: one file, or all of an export."""
    shift, severity, path = _setting(file)
    if is_file(path / INDEX):
        return _exported(path, model)
    if not is_dir(path) and not is_file(path):
        raise SoritesError(f"expected a file of results, but {path} does not exist")
    if model is None:
        raise SoritesError(f"results do not name their model: pass {option('model', 'NAME')}")
    found = _annotations_of(annotations, shift, severity)
    return [Results(path, found, model, shift, severity)]


def _setting(text: str | Path) -> tuple[str, float | None, Path]:
    """Return the shift, severity and path of ``SHIFT:SEVERITY=PATH``; a bare path is the clean images."""
    match = _SETTING.fullmatch(str(text))
    if match is None or Path(text).exists():
        return CLEAN, 0.0, Path(text)
    shift, typed = match["shift"], match["severity"]
    if shift == CLEAN and typed is None:
        return CLEAN, 0.0, Path(match["path"])
    try:
        severity = float(typed)
    except (TypeError, ValueError):
        severity = math.nan
    if not 0 < severity < math.inf or shift == CLEAN:
        raise SoritesError(
            f"expected clean=FILE or SHIFT:SEVERITY=FILE with a severity above 0, such as fog:2=results.json;"
            f" got {text}"
        )
    return shift, severity, Path(match["path"])


def _annotations_of(annotations: Sequence[str | Path], shift: str, severity: float | None) -> Path:
    """Return the annotation file of a setting: its own, or the one for all."""
    if not annotations:
        raise SoritesError(
            "results have no ground truth: pass"
            f" {option('annotations', ['FILE'])}, a COCO annotation file, or the data.yaml of a YOLO dataset"
        )
    by_setting = {_setting(text)[:2]: _setting(text)[2] for text in annotations}
    chosen = by_setting.get((shift, severity), by_setting.get((CLEAN, 0.0)))
    if chosen is None:
        raise SoritesError(
            f"no annotations for {shift} {severity}; pass {option('annotations', ['FILE'])}, used for all"
            " settings without a file of their own"
        )
    if not is_file(chosen) and not is_dir(chosen):
        raise SoritesError(f"expected a file of annotations, but {chosen} does not exist")
    return chosen


def _exported(folder: Path, model: str | None) -> list[Results]:
    """Return the results of a folder that ``export`` wrote."""
    index = json_file(folder / INDEX, "the list of an export's files")
    try:
        return [
            Results(
                folder / entry["file"],
                folder / entry["annotations"],
                model or entry["model"],
                entry["shift"],
                entry["severity"],
                entry["level"],
                entry["family"],
                entry["params"],
                entry.get("failed", {}),
                frozenset(entry.get("unlabelled", ())),
                dict(entry.get("known", {})),
                {scorer: dict(images) for scorer, images in entry.get("scores", {}).items()},
            )
            for entry in index["results"]
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SoritesError(f"{folder / INDEX}: not the list of an export ({error})") from None


def _refuse_twins(listed: Sequence[Results]) -> None:
    seen: dict[tuple[Any, ...], Path] = {}
    for results in listed:
        key = (results.model, results.shift, results.severity, results.params)
        if key in seen:
            raise SoritesError(
                f"{seen[key]} and {results.path} are both {results.shift} {results.severity or ''} of"
                f" {results.model}; name their settings: SHIFT:SEVERITY=FILE"
            )
        seen[key] = results.path


# Ground truth.


def _truth(path: Path, names: Labels | None) -> tuple[Truth, Labels]:
    return _yolo_truth(path, names) if path.suffix.lower() != ".json" else _coco_truth(path, names)


def _coco_truth(path: Path, names: Labels | None) -> tuple[Truth, Labels]:
    read = read_annotations(path)
    ordered = tuple(sorted(read.categories, key=lambda id_: (isinstance(id_, str), id_)))
    labels = names or labels_of([read.categories[id_] for id_ in ordered])
    label_of = {id_: labels.get(read.categories[id_]) for id_ in ordered}
    images = {
        id_: Annotated(
            row["file_name"].replace("\\", "/").removeprefix("./"),
            _size(row),
            [cell for a in read.boxes[id_] if (cell := _object(a, label_of, path)) is not None],
        )
        for id_, row in read.images.items()
    }
    return Truth(path, images, label_of, ordered), labels


def _size(row: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = row.get("width"), row.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _object(row: Cell, label_of: Mapping[int | str, int | None], path: Path) -> Cell | None:
    """Return an annotation as a ground-truth box of the table; None if its class is not among the labels."""
    label = label_of[row["category_id"]]
    if label is None:
        return None
    cell = _cell(row.get("bbox"), label, f"{path}, annotation {row.get('id', 'without an id')}")
    area: Any = row.get("area")
    known = isinstance(area, int | float) and not isinstance(area, bool) and 0 <= area < math.inf
    crowd, has_class = bool(row.get("iscrowd", 0)), row.get("known")
    return {
        **cell,
        "conf": None,
        "area": float(area) if known else None,
        "crowd": crowd,
        "known": has_class if isinstance(has_class, bool) else None,
    }


def _cell(numbers: Any, label: int, where: str) -> Cell:
    refuse_oriented(numbers, where)
    try:
        x, y, width, height = (float(number) for number in numbers)
    except (TypeError, ValueError, OverflowError):
        raise SoritesError(
            f"{where}: expected bbox as x, y, width and height in px, got {numbers!r}"
        ) from None
    if not all(map(math.isfinite, (x, y, width, height))) or min(width, height) < 0:
        raise SoritesError(f"{where}: expected finite numbers and no negative size, got {numbers!r}")
    return {"x0": x, "y0": y, "x1": x + width, "y1": y + height, "label": label}


def _yolo_truth(path: Path, names: Labels | None) -> tuple[Truth, Labels]:
    from sorites.sources.detection.yolo import dataset, yolo

    data = dataset(path)
    labels = names or labels_of([data.names[number] for number in sorted(data.names)])
    images: dict[int | str, Annotated] = {}
    for sample in yolo(str(path), labels):
        file = getattr(sample.image, "path", None)
        if file is None:
            sample.load()
        boxes: list[Cell] = [
            {
                **dict(zip(("x0", "y0", "x1", "y1"), box.xyxy, strict=True)),
                "label": box.label,
                "conf": None,
                "area": box.area,
                "crowd": box.crowd,
            }
            for box in sample.ground_truth or ()
        ]
        images[sample.id] = Annotated(sample.id, size_of(file), boxes)  # type: ignore[arg-type]
    label_of: dict[int | str, int | None] = {number: labels.get(name) for number, name in data.names.items()}
    return Truth(path, images, label_of, tuple(sorted(data.names))), labels


# Predictions.


def _sheet(results: Results, truth: Truth, source: str, first_class: int | None) -> Sheet:
    """Return one row per annotated image."""
    found = (_label_files if is_dir(results.path) else _result_list)(results, truth, first_class)
    names = [image.name for image in truth.images.values()]
    boxes = {
        name: None if name in results.failed else sorted(found.get(name, []), key=lambda box: -box["conf"])
        for name in names
    }
    columns: dict[str, list[Any]] = {
        "sample_id": names,
        "ground_truth": [
            None if image.name in results.unlabelled else image.boxes for image in truth.images.values()
        ],
        "boxes": [boxes[name] for name in names],
        "error": [results.failed.get(name) for name in names],
        "known": [results.known.get(name) for name in names],
        "output": ["boxes"] * len(names),
        "scorer": [None] * len(names),
        "score": [None] * len(names),
    }
    for scorer in _scorers(results, boxes):
        scored = _scored(scorer, results, boxes)
        added: dict[str, list[Any]] = {
            "output": ["ood"] * len(names),
            "scorer": [scorer] * len(names),
            **scored,
        }
        for name, values in columns.items():
            values += added.get(name, values[: len(names)])
    constants: dict[str, Any] = {
        "model": results.model,
        "source": source,
        "shift": results.shift,
        "severity": results.severity,
        "level": results.level,
        "params": results.params,
        "label": None,
        "pred": None,
    }
    if results.family is not None:
        constants["family"] = results.family
    frame = pl.DataFrame(
        [pl.Series(name, values, SCHEMA[name], strict=False) for name, values in columns.items()]
    ).with_columns(pl.lit(value, SCHEMA[name]).alias(name) for name, value in constants.items())
    return Sheet(results.name, frame.with_row_index(ROW, 1).with_columns(pl.col(ROW).cast(pl.Int64)), {})


def _scorers(results: Results, boxes: Mapping[str, list[Cell] | None]) -> list[str]:
    """Return the scorers whose scores a setting has."""
    of_boxes = {scorer for own in boxes.values() for box in own or () for scorer in box.get(SCORES, ())}
    return sorted(of_boxes | set(results.scores))


def _scored(scorer: str, results: Results, boxes: Mapping[str, list[Cell] | None]) -> dict[str, list[Any]]:
    """Return boxes, score and error of each image for one scorer.

    Without scores of images, an image has the greatest score of its boxes, as in a run.
    """
    columns: dict[str, list[Any]] = {"boxes": [], "score": [], "error": []}
    for name, own in boxes.items():
        cells = None if own is None else [{**box, "score": box.get(SCORES, {}).get(scorer)} for box in own]
        of_image = results.scores.get(scorer, {}).get(name, {})
        reported = [box["score"] for box in cells or () if box["conf"] >= CONFIDENCE]
        greatest = max((score for score in reported if score is not None), default=None)
        columns["boxes"].append(cells)
        columns["score"].append(of_image.get("score") if scorer in results.scores else greatest)
        columns["error"].append(of_image.get("error", results.failed.get(name)))
    return columns


def _result_list(results: Results, truth: Truth, first_class: int | None) -> dict[str, list[Cell]]:
    """Return the predicted boxes of a JSON list by sample id."""
    content = json_file(results.path, WHAT, _without_masks)
    if isinstance(content, dict) and "annotations" in content:
        raise SoritesError(
            f"{results.path}: expected {WHAT}, got an annotation file; is it the ground truth?"
        )
    if not isinstance(content, list):
        raise SoritesError(f"{results.path}: expected {WHAT}, got a {type(content).__name__}")
    if first_class is None and truth.file.suffix.lower() != ".json":
        raise SoritesError(
            f"{results.path}: a YOLO dataset has no category ids, and versions of Ultralytics number classes"
            f" from 0 or from 1: pass {option('first_class', 0)} or {option('first_class', 1)}"
        )
    images, boxes = truth.index(), dict[str, list[Cell]]()
    label_of = partial(_label, truth=truth, first_class=first_class)
    for number, row in enumerate(content, 1):
        where = f"{results.path}, result {number}"
        if not isinstance(row, dict):
            raise SoritesError(f"{where}: expected an object, got {row!r}")
        image = images.get(row.get("image_id", ""))
        if image is None:
            raise SoritesError(
                f"{where}: image_id {row.get('image_id')!r} is not an image of {truth.file}, whose ids are"
                f" such as {next(iter(truth.images))!r}"
            )
        _refuse_oriented_keys(row, where)
        label = label_of(row.get("category_id"), where=where)
        if label is not None:
            cell = _cell(row.get("bbox"), label, where) | {"conf": _score(row.get("score"), where)}
            boxes.setdefault(image.name, []).append(cell | _ood_scores(row, where))
    return boxes


def _without_masks(row: dict[str, Any]) -> dict[str, Any]:
    for key in ("segmentation", "keypoints"):
        row.pop(key, None)
    return row


def _refuse_oriented_keys(row: Mapping[str, Any], where: str) -> None:
    key = next((key for key in ORIENTED_KEYS if key in row), None)
    if key is not None:
        raise oriented(f"{where} has the key {key}")


def _label(category: Any, *, truth: Truth, first_class: int | None, where: str) -> int | None:
    """Return the label of a category id, or of a class number where classes are numbered."""
    if first_class is None:
        known = (
            not isinstance(category, bool) and isinstance(category, int | str) and category in truth.label_of
        )
        if known:
            return truth.label_of[category]
        examples = ", ".join(map(str, truth.ordered[:5])) + (" ..." if len(truth.ordered) > 5 else "")
        hint = (
            f"If the results number the {len(truth.ordered)} classes in order, pass"
            f" {option('first_class', 0)} or {option('first_class', 1)}"
        )
        raise UnknownName(
            f"category of {truth.file}", str(category), (), f"{where}. It has {examples}. {hint}."
        )
    place = category - first_class if isinstance(category, int) and not isinstance(category, bool) else -1
    if not 0 <= place < len(truth.ordered):
        last = first_class + len(truth.ordered) - 1
        raise SoritesError(f"{where}: expected a class from {first_class} to {last}, got {category!r}")
    return truth.label_of[truth.ordered[place]]


def _score(score: Any, where: str, name: str = "score") -> float:
    known = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
    if not known:
        raise SoritesError(f"{where}: expected a finite {name}, got {score!r}")
    return float(score)


def _ood_scores(row: Mapping[str, Any], where: str) -> Cell:
    """Return the OOD scores of a result by scorer; nothing where it has none."""
    scores = row.get(SCORES)
    if scores is None:
        return {}
    if not isinstance(scores, dict):
        raise SoritesError(f"{where}: expected {SCORES} as an object of scorers and scores, got {scores!r}")
    return {SCORES: {scorer: _score(score, where, f"{SCORES} {scorer}") for scorer, score in scores.items()}}


def _label_files(results: Results, truth: Truth, first_class: int | None) -> dict[str, list[Cell]]:
    """Return the predicted boxes of Ultralytics' text files by sample id; their classes count from 0."""
    files = sorted(path for path in results.path.glob("*.txt") if path.is_file())
    if not files:
        raise SoritesError(f"{results.path} has no label files (NAME.txt), and no {INDEX} of an export")
    images = truth.index()
    boxes: dict[str, list[Cell]] = {}
    for file in files:
        image = images.get(file.stem)
        if image is None:
            raise SoritesError(f"{file}: no image of {truth.file} is called {file.stem}")
        if image.size is None:
            raise SoritesError(
                f"{file}: label files are relative to the image, and {truth.file} has no width and height of"
                f" {image.name}"
            )
        found = [
            cell
            for number, line in enumerate(lines(file), 1)
            if line.strip()
            and (cell := _line(line, image.size, truth, f"{file}, line {number}", first_class or 0))
            is not None
        ]
        boxes.setdefault(image.name, []).extend(found)
    return boxes


def _line(line: str, size: tuple[int, int], truth: Truth, where: str, first_class: int) -> Cell | None:
    try:
        first, *numbers = (float(word) for word in line.split())
    except ValueError:
        raise SoritesError(f"{where}: expected numbers, got {line.strip()[:80]!r}") from None
    if len(numbers) in (8, 9):
        raise oriented(f"{where} has four corners")
    if len(numbers) != 5:
        hint = ", as Ultralytics writes with save_conf=True" if len(numbers) == 4 else ""
        raise SoritesError(
            f"{where}: expected class, centre x and y, width, height and confidence{hint}; got"
            f" {len(numbers) + 1} numbers"
        )
    x, y, width, height, score = numbers
    number = int(first) if first.is_integer() else first
    label = _label(number, truth=truth, first_class=first_class, where=where)
    if label is None:
        return None
    scaled = [(x - width / 2) * size[0], (y - height / 2) * size[1], width * size[0], height * size[1]]
    return _cell(scaled, label, where) | {"conf": _score(score, where)}
