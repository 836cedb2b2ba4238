"""Read what a user says of a detector: in the graph's metadata, in a JSON file beside it, or after a ``?`` in its spec."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from sorites.errors import SoritesError
from sorites.labels import coco, coco_category_ids
from sorites.models._box_input import Filter, Fit
from sorites.models._preprocess import Channels, Config, Side

TASKS = {"segment": "segmentation masks", "pose": "key points", "obb": "turned boxes", "classify": "classes without boxes"}
"""The tasks of Ultralytics that are not boxes, and what their graphs give."""
SPACES = ("coco", "coco91", "coco90")
"""Names for label spaces: COCO's 80 classes numbered 0 to 79, by category id (1 to 90 with gaps), and by that id - 1."""


class BoxConfig(Config):
    """The settings by which a detector is fed and read. A key that is not set has the default of the detector's layout."""

    layout: str | None = None
    size: tuple[Side, Side] | None = None
    fit: Fit = "letterbox"
    fill: Annotated[int, Field(ge=0, le=255)] = 114
    filter: Filter = "bilinear"
    antialias: bool = False
    channels: Literal["rgb", "bgr"] = "rgb"
    mean: Channels = (0.0, 0.0, 0.0)
    std: Channels = (1.0, 1.0, 1.0)
    axes: Literal["NCHW", "NHWC", ""] = ""
    labels: Any = None
    score: Annotated[float, Field(ge=0, lt=1)] = 0.001
    nms: Annotated[float, Field(gt=0, le=1)] | None = 0.7
    most: Annotated[int, Field(gt=0)] = 300
    scores: Literal["softmax", "sigmoid", "plain", ""] = ""
    order: Literal["xyxy", "yxyx", "cxcywh", ""] = ""
    unit: Literal["input", "picture", "fraction", ""] = ""
    decoded: bool | None = None

    @field_validator("size", mode="before")
    @classmethod
    def _square(cls, size: Any) -> Any:
        return (size, size) if isinstance(size, int | str) else size


def gathered(path: Path, metadata: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys that the metadata, the JSON file beside the graph and the options set; each goes before the former."""
    return _from_metadata(path, metadata) | _from_file(path) | {key: _plain(text) for key, text in options.items()}


def _from_metadata(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    task = metadata.get("task", "detect")
    if task in TASKS:
        raise SoritesError(f"{path} gives {TASKS[task]} (its metadata say task {task}), and boxes: reads upright boxes alone")
    found = {
        key: _plain(metadata[key]) for key in BoxConfig.model_fields if key in metadata and key not in ("channels", "layout")
    }
    if "names" in metadata:
        found["labels"] = _literal(path, "names", metadata["names"])
    if "imgsz" in metadata:
        found["size"] = _literal(path, "imgsz", metadata["imgsz"])
    return found


def _from_file(path: Path) -> dict[str, Any]:
    beside = Path(f"{path}.json")
    if not beside.is_file():
        return {}
    try:
        found = json.loads(beside.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoritesError(f"{beside} is not JSON: {error}") from error
    if not isinstance(found, dict):
        keys = ", ".join(BoxConfig.model_fields)
        raise SoritesError(f"{beside}: wanted an object with some of the keys {keys}, got {type(found).__name__}")
    return found


def _literal(path: Path, key: str, text: str) -> Any:
    """Return a value that Ultralytics writes as a Python literal; nothing of it is run."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        wanted = '"labels": [...]' if key == "names" else '"size": 640'
        raise SoritesError(
            f"{path}: its metadata {key} are not a Python literal: {text[:60]!r}. Take them out of the graph and write {wanted} "
            f"into {path}.json."
        ) from None


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Classes:
    """The names of a detector's classes, and the place among them of each class number that it gives (-1: none)."""

    names: tuple[str, ...] | None = None
    places: NDArray[np.int64] | None = None
    about: str = "the suite's labels in their order, for the graph has no names"

    def of(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Return the places of class numbers among the names; a number in a gap has -1, one beyond them all is an error."""
        whole = np.asarray(np.rint(numbers), np.int64)
        if self.places is None:
            return whole
        outside = (whole < 0) | (whole >= len(self.places))
        if outside.any():
            raise SoritesError(
                f"the detector gave a box of class {whole[outside][0]}, and it has classes 0 to {len(self.places) - 1}"
            )
        return self.places[whole]


def classes_of(labels: Any, where: str) -> Classes:
    """Return the classes that ``labels`` says: a name of a label space, a list of names, or names by class number."""
    if labels is None:
        return Classes()
    if isinstance(labels, str):
        if labels not in SPACES:
            raise SoritesError(
                f"{where}: wanted labels as a list of names, names by number, or one of {', '.join(SPACES)}, got {labels!r}"
            )
        numbers = range(80) if labels == "coco" else [i - (labels == "coco90") for i in coco_category_ids()]
        said = {"coco": "0 to 79", "coco91": "1 to 90 with gaps", "coco90": "0 to 89 with gaps"}[labels]
        return _numbered(dict(zip(numbers, coco().ids, strict=True)), f"COCO's 80, numbered {said}")
    pairs = labels.items() if isinstance(labels, Mapping) else enumerate(labels) if isinstance(labels, list | tuple) else ()
    try:
        named = {int(number): str(name) for number, name in pairs}
    except (TypeError, ValueError):
        named = {}
    if not named or min(named) < 0 or max(named) > 1_000_000:
        raise SoritesError(f"{where}: wanted labels as a list of names or names by class number, got {str(labels)[:60]}")
    return _numbered(named, f"{len(named)} by name, such as {named[min(named)]}")


def _numbered(named: Mapping[int, str], about: str) -> Classes:
    names = tuple(dict.fromkeys(named[number] for number in sorted(named)))
    places = np.full(max(named) + 1, -1, np.int64)
    for number, name in named.items():
        places[number] = names.index(name)
    return Classes(names, places, about)
