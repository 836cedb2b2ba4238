"""The output layouts of exported detectors, recognised by the shapes of their outputs (docs/models.md).

A layout finds its outputs in a graph and decodes them into candidates, with the coordinates and scores of
the graph. Score threshold, suppression and clipping are applied later, in the same way for all layouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from sorites.models.preprocess import IMAGENET_MEAN, IMAGENET_STD

Array = NDArray[Any]
Arrays = Mapping[str, Array]

# The possible strides of the grids of detectors.
STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32), (16, 32))
# Supported inputs besides the image.
EXTRA = frozenset({"scale_factor", "im_shape", "orig_target_sizes", "pixel_mask"})
# Scores are clipped to this range before their logits are taken: -27.6 to 16.1.
SCORE_RANGE = (1e-12, 1 - 1e-7)
IMAGENET = {"mean": IMAGENET_MEAN, "std": IMAGENET_STD}


@dataclass(frozen=True)
class Graph:
    """The properties of a graph that determine its layout: outputs for a grey image, input size, input names,
    number of classes.
    """

    outputs: Arrays
    size: tuple[int, int]
    inputs: frozenset[str] = frozenset()
    classes: int | None = None
    forced: bool = False
    """True if the user chose the layout; grids with unusual strides are then accepted."""


@dataclass(frozen=True)
class LayoutMatch:
    """The outputs of a layout by role, the number of classes if known, and changed defaults."""

    roles: Mapping[str, str]
    classes: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    scores: str = ""
    """The function from logits to scores, if the graph shows it."""
    decoded: bool = True


@dataclass(frozen=True)
class Candidates:
    """Boxes (N x 4) with a score and a class number each, or, if ``labels`` is None, with scores per class
    (N x C).

    ``logits`` (N x C) are those of a softmax over classes, without the background, or of a sigmoid of each
    class; without them, the logits of scores per class are used, if there are any.
    """

    boxes: Array
    scores: Array
    labels: Array | None = None
    logits: Array | None = None

    def class_logits(self, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Return the class logits of some boxes; None if the graph has only one score for each."""
        if self.logits is not None:
            return np.asarray(self.logits[rows], np.float32)
        if self.labels is not None:
            return None
        scores = np.clip(np.asarray(self.scores[rows], np.float64), *SCORE_RANGE)
        return (np.log(scores) - np.log1p(-scores)).astype(np.float32)


@dataclass(frozen=True)
class Layout:
    """An output layout: ``find`` returns None for other graphs, ``decode`` gets the arrays by role."""

    name: str
    about: str
    find: Callable[[Graph], LayoutMatch | None]
    decode: Callable[[Arrays, LayoutMatch, tuple[int, int]], Candidates]
    defaults: Mapping[str, Any]


def cells(size: tuple[int, int], strides: tuple[int, ...]) -> int:
    """Return the number of cells of the grids of an input."""
    return sum((size[0] // stride) * (size[1] // stride) for stride in strides)


def strides_of(count: int, size: tuple[int, int]) -> tuple[int, ...] | None:
    """Return the strides whose grids have ``count`` cells, or None."""
    return next((strides for strides in STRIDES if cells(size, strides) == count), None)


def single(graph: Graph) -> tuple[str, Array] | None:
    """Return the only 3-D output of a graph, without its batch axis; 5-D feature maps are ignored."""
    flat = [(name, array[0]) for name, array in graph.outputs.items() if array.ndim == 3]
    others = [array for array in graph.outputs.values() if array.ndim not in (3, 5)]
    return flat[0] if len(flat) == 1 and not others else None


# Layouts with final boxes.


def _find_rows(graph: Graph) -> LayoutMatch | None:
    """Find (1, n, 6) or (n, 6), unless it is a grid with one class, which has six columns too."""
    name, array = next(iter(graph.outputs.items()))
    rows = array[0] if array.ndim == 3 and len(array) == 1 else array
    alone = len(graph.outputs) == 1 and rows.ndim == 2 and rows.shape[1] == 6
    return LayoutMatch({"rows": name}) if alone and "scale_factor" not in graph.inputs else None


def _rows(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"].reshape(-1, 6)
    return Candidates(rows[:, :4], rows[:, 4], rows[:, 5])


def _find_rows7(graph: Graph) -> LayoutMatch | None:
    name, array = next(iter(graph.outputs.items()))
    return (
        LayoutMatch({"rows": name})
        if len(graph.outputs) == 1 and array.ndim == 2 and array.shape[1] == 7
        else None
    )


def _rows7(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][arrays["rows"][:, 0] == 0]
    return Candidates(rows[:, 1:5], rows[:, 6], rows[:, 5])


def _find_paddle(graph: Graph) -> LayoutMatch | None:
    rows = [name for name, array in graph.outputs.items() if array.ndim == 2 and array.shape[1] == 6]
    return LayoutMatch({"rows": rows[0]}) if rows and graph.inputs & {"scale_factor", "im_shape"} else None


def _paddle(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][arrays["rows"][:, 0] >= 0]  # class -1 means no box
    return Candidates(rows[:, 2:], rows[:, 1], rows[:, 0])


def _find_triple(graph: Graph) -> LayoutMatch | None:
    fours = {name: a for name, a in graph.outputs.items() if a.ndim in (2, 3) and a.shape[-1] == 4}
    boxes = _named(fours, r"^(?!raw).*box") or max(fours, key=lambda name: fours[name].ndim, default=None)
    lists = {name: a for name, a in graph.outputs.items() if a.ndim in (1, 2) and name != boxes}
    if boxes is None or len(lists) < 2:
        return None
    labels = _labels_output(lists)
    scores = _scores_output({name: a for name, a in lists.items() if name != labels})
    if labels is None or scores is None:
        return None
    roles = {"boxes": boxes, "scores": scores, "labels": labels}
    count = next((name for name in lists if _is_count(name)), None)
    defaults: dict[str, Any] = {}
    if boxes.startswith("detection_boxes"):  # TensorFlow's object detection
        defaults = {"order": "yxyx", "unit": "fraction", "labels": "coco91", "fit": "squash"}
    elif "orig_target_sizes" in graph.inputs:
        defaults = {"unit": "image", "fit": "squash", "antialias": True}
    return LayoutMatch(roles | ({} if count is None else {"count": count}), defaults=defaults)


def _labels_output(lists: Arrays) -> str | None:
    """Return the output of class numbers: by its name, otherwise the first integer output."""
    integers = [
        name for name, a in lists.items() if a.dtype.kind in "iu" and a.size != 1 and not _is_count(name)
    ]
    return _named(lists, r"label|class|cls") or next(iter(integers), None)


def _scores_output(lists: Arrays) -> str | None:
    """Return the output of scores: by its name, otherwise the first float output."""
    floats = {name: a for name, a in lists.items() if a.dtype.kind == "f"}
    return _named(floats, r"score|conf|prob") or next((name for name in floats if not _is_count(name)), None)


def _triple(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    boxes, scores, labels = (
        arrays["boxes"].reshape(-1, 4),
        arrays["scores"].reshape(-1),
        arrays["labels"].reshape(-1),
    )
    count = int(arrays["count"].reshape(-1)[0]) if "count" in arrays else len(boxes)
    return Candidates(boxes[:count], scores[:count], labels[:count])


def _find_mmdeploy(graph: Graph) -> LayoutMatch | None:
    dets = [name for name, a in graph.outputs.items() if a.ndim in (2, 3) and a.shape[-1] == 5]
    labels = [
        name
        for name, a in graph.outputs.items()
        if a.ndim in (1, 2) and a.dtype.kind in "iu" and name not in dets
    ]
    return LayoutMatch({"dets": dets[0], "labels": labels[0]}) if len(dets) == 1 and labels else None


def _mmdeploy(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    dets, labels = arrays["dets"].reshape(-1, 5), arrays["labels"].reshape(-1)
    real = labels >= 0  # padding rows have class -1
    return Candidates(dets[real, :4], dets[real, 4], labels[real])


# Layouts with queries: boxes, and scores per class.


def _find_queries(graph: Graph) -> LayoutMatch | None:
    flat = {name: a for name, a in graph.outputs.items() if a.ndim == 3}
    fours = {name: a for name, a in flat.items() if a.shape[-1] == 4}
    boxes = _named(fours, r"box|det|coord") or next(iter(fours), None)
    if boxes is None:
        return None
    count = flat[boxes].shape[1]
    others = {n: a for n, a in flat.items() if n != boxes and a.shape[1] == count and a.shape[-1] > 1}
    if not others:
        return None
    name = _named(others, r"logit|score|class|conf|label") or next(iter(others))
    width = flat[name].shape[-1]
    if not _in_unit(flat[boxes]):
        return LayoutMatch({"boxes": boxes, "scores": name}, width, PIXELS, "plain")
    plain = _in_unit(flat[name])
    background = width in (92, 81) if graph.classes is None else width == graph.classes + 1
    how = "plain" if plain else "softmax" if background else "sigmoid"
    classes = width - (how == "softmax")
    return LayoutMatch({"boxes": boxes, "scores": name}, classes, {} if width == 80 else IMAGENET, how)


def _queries(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    boxes, scores = arrays["boxes"][0], np.asarray(arrays["scores"][0], np.float32)
    if match.scores == "plain":
        return Candidates(boxes, scores)
    if match.scores == "sigmoid":
        return Candidates(boxes, expit(scores), logits=scores)
    probabilities = softmax(scores, axis=1)[:, :-1]
    best = probabilities.max(axis=1), probabilities.argmax(axis=1)
    return Candidates(boxes, *best, logits=scores[:, :-1])


def _find_joined_queries(graph: Graph) -> LayoutMatch | None:
    output = single(graph)
    if output is None or strides_of(len(output[1]), graph.size) or strides_of(output[1].shape[1], graph.size):
        return None
    name, rows = output
    fits = rows.shape[1] - 4 == (80 if graph.classes is None else graph.classes)
    return (
        LayoutMatch({"rows": name}, rows.shape[1] - 4)
        if fits and len(rows) <= 1000 and _in_unit(rows[:, :4])
        else None
    )


def _joined_queries(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    return Candidates(arrays["rows"][0][:, :4], arrays["rows"][0][:, 4:])


def _named(arrays: Arrays, pattern: str) -> str | None:
    return next((name for name in arrays if re.search(pattern, name, re.IGNORECASE)), None)


def _is_count(name: str) -> bool:
    return re.search(r"^num_|_num$|num_det|valid", name, re.IGNORECASE) is not None


def _in_unit(values: Array) -> bool:
    """Return whether all values are in 0..1, with some tolerance for boxes that extend beyond the image."""
    return values.size == 0 or bool((np.abs(values) <= 1.5).all() and (values >= -0.5).all())


PIXELS = {"unit": "input", "order": "xyxy", "nms": 0.7, "fit": "letterbox", "antialias": False}
SETTLED = {"nms": None, "order": "xyxy", "unit": "input"}
FRACTION = {"nms": None, "order": "cxcywh", "unit": "fraction", "fit": "squash", "antialias": True}
LISTS = (
    Layout("paddle", "rows of class, score, x0 y0 x1 y1 in the image's pixels", _find_paddle, _paddle,
           {"nms": None, "order": "xyxy", "unit": "image", "fit": "squash", "filter": "bicubic", **IMAGENET}),
    Layout("triple", "boxes, scores and labels", _find_triple, _triple, SETTLED),
    Layout("mmdeploy", "dets (x0 y0 x1 y1 score) and labels", _find_mmdeploy, _mmdeploy,
           {**SETTLED, "fit": "corner", "fill": 0, **IMAGENET}),
    Layout("detr", "queries: boxes and scores per class", _find_queries, _queries, FRACTION),
    Layout("detr_rows", "queries: cx cy w h and scores per class in one row", _find_joined_queries,
           _joined_queries, FRACTION),
    Layout("rows7", "rows of image, x0 y0 x1 y1, class, score", _find_rows7, _rows7, SETTLED),
    Layout("rows", "rows of x0 y0 x1 y1, score, class", _find_rows, _rows, SETTLED),
)  # fmt: skip


# Layouts with one row per grid cell before suppression: YOLOv5, YOLOv8 and later, YOLOX.

# The anchors per cell of YOLOv3 to v7.
ANCHORS = 3
# The number of columns of YOLOv8 pose: four sides, one class, 17 keypoints of three numbers.
POSE = 56
# Decoded boxes of a grid have their centre within this many cells of their own cell (median over cells).
RAW = 2.0


def _find_v8(graph: Graph) -> LayoutMatch | None:
    """Find (1, 4 + C, N), or its transpose if the number of classes shows that there is no objectness."""
    output = single(graph)
    if output is None:
        return None
    name, array = output
    columns, count = array.shape
    expected = None if graph.classes is None else 4 + graph.classes
    on_grid = strides_of(count, graph.size) or (graph.forced and columns < count)
    if on_grid and columns > 4 and (columns == expected if expected else columns != POSE):
        return LayoutMatch({"rows": name}, columns - 4)
    transposed = strides_of(columns, graph.size) and count == (expected or 84)
    return LayoutMatch({"rows": name}, count - 4) if transposed else None


def _v8(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    array = arrays["rows"][0]
    rows = array.T if array.shape[0] == 4 + (match.classes or 0) else array
    return Candidates(rows[:, :4], rows[:, 4:])


def _find_v5(graph: Graph) -> LayoutMatch | None:
    return _with_objectness(graph, ANCHORS)


def _v5(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][0]
    return Candidates(rows[:, :4], rows[:, 4:5] * rows[:, 5:])


def _find_yolox(graph: Graph) -> LayoutMatch | None:
    match = _with_objectness(graph, 1)
    if match is None:
        return None
    rows = graph.outputs[match.roles["rows"]][0]
    corner, stride = grid(len(rows), graph.size)
    distance = np.abs(rows[:, :2] / stride - corner - 0.5).max(axis=1)
    return LayoutMatch(match.roles, match.classes, decoded=bool(np.median(distance) < RAW))


def _yolox(arrays: Arrays, match: LayoutMatch, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][0]
    boxes = rows[:, :4] if match.decoded else ungridded(rows[:, :4], size)
    return Candidates(boxes, rows[:, 4:5] * rows[:, 5:])


def _with_objectness(graph: Graph, anchors: int) -> LayoutMatch | None:
    output = single(graph)
    if output is None:
        return None
    name, array = output
    count, columns = array.shape
    fits = columns > 5 if graph.classes is None else columns == 5 + graph.classes
    on_grid = (count % anchors == 0 and strides_of(count // anchors, graph.size)) or (
        graph.forced and anchors > 1
    )
    return LayoutMatch({"rows": name}, columns - 5) if fits and on_grid else None


def grid(count: int, size: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cell (x, y) and the stride of each row, ordered by stride, then row by row."""
    corners, strides = [], []
    for stride in strides_of(count, size) or ():
        y, x = np.mgrid[: size[0] // stride, : size[1] // stride]
        corners.append(np.stack([x.ravel(), y.ravel()], axis=1))
        strides.append(np.full((cells(size, (stride,)), 1), stride))
    return np.concatenate(corners).astype(np.float64), np.concatenate(strides).astype(np.float64)


def ungridded(rows: Array, size: tuple[int, int]) -> Array:
    """Decode raw YOLOX rows (offset from the cell, log of the sides in strides) to centre and size in px."""
    corner, stride = grid(len(rows), size)
    with np.errstate(over="ignore"):
        return np.concatenate(
            [(rows[:, :2] + corner) * stride, np.exp(rows[:, 2:4].astype(np.float64)) * stride], axis=1
        )


CENTRED = {"order": "cxcywh", "unit": "input"}
GRIDS = (
    Layout("v8", "cx cy w h and scores per class, no objectness", _find_v8, _v8, {**CENTRED, "nms": 0.7}),
    Layout("v5", "cx cy w h, objectness and scores per class", _find_v5, _v5, {**CENTRED, "nms": 0.6}),
    Layout("yolox", "cx cy w h, objectness and scores per class", _find_yolox, _yolox,
           {**CENTRED, "nms": 0.65, "fit": "corner", "channels": "bgr", "std": (1 / 255,) * 3}),
)  # fmt: skip

# All layouts by name, in the order in which they are tried.
LAYOUTS = {layout.name: layout for layout in (*GRIDS, *LISTS)}
