"""The input and the settings of a detector: how images are placed in its input, and how it is configured."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil
from pydantic import Field, field_validator

from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.core.labels import coco, coco_category_ids
from sorites.models.preprocess import Channels, Config, Side

Fit = Literal["letterbox", "corner", "squash"]
Filter = Literal["nearest", "bilinear", "bicubic"]
Size = tuple[int, int]

# The parameter a of OpenCV's cubic interpolation.
CUBIC = -0.75


@dataclass(frozen=True)
class Placement:
    """The position of an image in a detector's input: scale factors (input px per image px) and offsets."""

    image: Size
    """Height and width."""
    across: float
    down: float
    left: int = 0
    top: int = 0

    def back(self, boxes: NDArray[Any]) -> NDArray[np.float64]:
        """Convert boxes from pixels of the input to pixels of the image."""
        shifted = np.asarray(boxes, np.float64) - (self.left, self.top, self.left, self.top)
        return shifted / (self.across, self.down, self.across, self.down)

    def into(self, boxes: NDArray[Any]) -> NDArray[np.float64]:
        """Convert boxes from pixels of the image to pixels of the input."""
        scale, offset = np.array([self.across, self.down] * 2), np.array([self.left, self.top] * 2)
        return np.asarray(np.asarray(boxes, np.float64) * scale + offset)


def placed(
    image: ImageU8, size: Size, fit: Fit, fill: int, filter: Filter, antialias: bool
) -> tuple[ImageU8, Placement]:
    """Resize the whole image into an input of ``size`` (height, width).

    ``letterbox`` keeps the aspect ratio and pads both sides equally, ``corner`` keeps the aspect ratio and
    pads right and bottom, ``squash`` ignores the aspect ratio. Geometry and rounding are those of
    Ultralytics, YOLOX and Paddle.

    Returns:
        The input image and the placement of the original image in it.
    """
    height, width = image.shape[:2]
    inner, placement = placement_of((height, width), size, fit)
    if fit == "squash":
        return scaled(image, size, filter, antialias), placement
    top, left = placement.top, placement.left
    canvas = np.full((*size, 3), fill, np.uint8)
    canvas[top : top + inner[0], left : left + inner[1]] = scaled(image, inner, filter, antialias)
    return canvas, placement


def placement_of(image: Size, size: Size, fit: Fit) -> tuple[Size, Placement]:
    """Return the height and width that an image has in an input of ``size``, and its placement."""
    height, width = image
    if fit == "squash":
        return size, Placement(image, size[1] / width, size[0] / height)
    ratio = min(size[0] / height, size[1] / width)
    to_int = round if fit == "letterbox" else int
    inner = (max(to_int(height * ratio), 1), max(to_int(width * ratio), 1))
    top, left = (round((size[i] - inner[i]) / 2 - 0.1) if fit == "letterbox" else 0 for i in (0, 1))
    return inner, Placement(image, inner[1] / width, inner[0] / height, left, top)


def scaled(image: ImageU8, size: Size, filter: Filter, antialias: bool) -> ImageU8:
    """Resize an image to ``size`` (height, width): antialiased like Pillow, or like OpenCV (within 1/255)."""
    if image.shape[:2] == tuple(size):
        return image
    if antialias or filter == "nearest":
        resampling = Pil.Resampling[filter.upper()]
        return np.asarray(Pil.fromarray(image).resize((size[1], size[0]), resampling))
    height, width = image.shape[:2]
    rows = _weights(height, size[0], filter) @ image.reshape(height, -1).astype(np.float32)
    transposed = np.ascontiguousarray(rows.reshape(size[0], width, 3).transpose(1, 0, 2)).reshape(width, -1)
    resized = _weights(width, size[1], filter) @ transposed
    np.clip(np.rint(resized, out=resized), 0, 255, out=resized)
    return np.ascontiguousarray(resized.astype(np.uint8).reshape(size[1], size[0], 3).transpose(1, 0, 2))


@functools.lru_cache(maxsize=256)
def _weights(old: int, new: int, filter: Filter) -> Any:
    """Return the sparse matrix (new x old) that interpolates a line of pixels; border pixels repeat."""
    from scipy.sparse import csr_array

    centre = (np.arange(new) + 0.5) * (old / new) - 0.5
    base = np.floor(centre)
    taps = (-1, 0, 1, 2) if filter == "bicubic" else (0, 1)
    weights = np.stack(
        [(_cubic if filter == "bicubic" else _linear)(centre - base - tap) for tap in taps], axis=1
    )
    columns = np.clip(base[:, None] + np.array(taps), 0, old - 1).astype(np.int64)
    rows = np.repeat(np.arange(new), len(taps))
    return csr_array((weights.ravel().astype(np.float32), (rows, columns.ravel())), shape=(new, old))


def _linear(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 - np.abs(distance)


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    d = np.abs(distance)
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = CUBIC * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


# Settings of a detector: from the metadata of its graph, from a JSON file beside it, or after a ``?``.

# Ultralytics tasks other than detection, and what their graphs return.
TASKS = {
    "segment": "segmentation masks",
    "pose": "keypoints",
    "obb": "oriented boxes",
    "classify": "classes without boxes",
}
# Named label spaces: COCO's 80 classes numbered 0 to 79, by category id (1 to 90 with gaps), and by id - 1.
SPACES = ("coco", "coco91", "coco90")


class BoxConfig(Config):
    """The settings by which a detector is run and decoded; unset keys have the defaults of its layout."""

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
    unit: Literal["input", "image", "fraction", ""] = ""
    decoded: bool | None = None
    features: str | None = None

    @field_validator("size", mode="before")
    @classmethod
    def _square(cls, size: Any) -> Any:
        return (size, size) if isinstance(size, int | str) else size


def gathered(path: Path, metadata: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of metadata, JSON file and options; later sources override earlier ones."""
    return (
        _from_metadata(path, metadata)
        | _from_file(path)
        | {key: _plain(text) for key, text in options.items()}
    )


def _from_metadata(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    task = metadata.get("task", "detect")
    if task in TASKS:
        raise SoritesError(
            f"{path} returns {TASKS[task]} (task {task} in its metadata), but boxes: supports only upright"
            " boxes"
        )
    settings = {
        key: _plain(metadata[key])
        for key in BoxConfig.model_fields
        if key in metadata and key not in ("channels", "layout")
    }
    if "names" in metadata:
        settings["labels"] = _literal(path, "names", metadata["names"])
    if "imgsz" in metadata:
        settings["size"] = _literal(path, "imgsz", metadata["imgsz"])
    return settings


def _from_file(path: Path) -> dict[str, Any]:
    beside = Path(f"{path}.json")
    if not beside.is_file():
        return {}
    try:
        settings = json.loads(beside.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoritesError(f"{beside} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        keys = ", ".join(BoxConfig.model_fields)
        raise SoritesError(
            f"{beside}: expected an object with some of the keys {keys}, got {type(settings).__name__}"
        )
    return settings


def _literal(path: Path, key: str, text: str) -> Any:
    """Parse a value that Ultralytics writes as a Python literal, without evaluating code."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        example = '"labels": [...]' if key == "names" else '"size": 640'
        raise SoritesError(
            f"{path}: its metadata {key} are not a Python literal: {text[:60]!r}. Remove them from the graph"
            f" and write {example} into {path}.json."
        ) from None


def _plain(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Classes:
    """The class names of a detector, and the index of each class number among them (-1: none)."""

    names: tuple[str, ...] | None = None
    places: NDArray[np.int64] | None = None
    about: str = "the labels of the suite in order, because the graph has no class names"

    def of(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Map class numbers to indices of names (-1: unused number); numbers out of range are an error."""
        integers = np.asarray(np.rint(numbers), np.int64)
        if self.places is None:
            return integers
        outside = (integers < 0) | (integers >= len(self.places))
        if outside.any():
            raise SoritesError(
                f"the detector returned a box of class {integers[outside][0]}, but has only classes 0 to"
                f" {len(self.places) - 1}"
            )
        return self.places[integers]


def classes_of(labels: Any, where: str) -> Classes:
    """Return the classes of ``labels``: the name of a label space, a list of names, or names by number."""
    if labels is None:
        return Classes()
    if isinstance(labels, str):
        if labels not in SPACES:
            raise SoritesError(
                f"{where}: expected labels as a list of names, names by number, or one of"
                f" {', '.join(SPACES)}, got {labels!r}"
            )
        numbers = range(80) if labels == "coco" else [i - (labels == "coco90") for i in coco_category_ids()]
        numbering = {"coco": "0 to 79", "coco91": "1 to 90 with gaps", "coco90": "0 to 89 with gaps"}[labels]
        return _numbered(dict(zip(numbers, coco().ids, strict=True)), f"COCO's 80, numbered {numbering}")
    pairs = (
        labels.items()
        if isinstance(labels, Mapping)
        else enumerate(labels)
        if isinstance(labels, list | tuple)
        else ()
    )
    try:
        named = {int(number): str(name) for number, name in pairs}
    except (TypeError, ValueError):
        named = {}
    if not named or min(named) < 0 or max(named) > 1_000_000:
        raise SoritesError(
            f"{where}: expected labels as a list of names or names by class number, got {str(labels)[:60]}"
        )
    return _numbered(named, f"{len(named)} by name, such as {named[min(named)]}")


def _numbered(named: Mapping[int, str], about: str) -> Classes:
    names = tuple(dict.fromkeys(named[number] for number in sorted(named)))
    places = np.full(max(named) + 1, -1, np.int64)
    for number, name in named.items():
        places[number] = names.index(name)
    return Classes(names, places, about)
