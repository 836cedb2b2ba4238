"""Detectors that give one row per cell of their grids, before suppression: YOLOv5, v8 and its successors, YOLOX."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sorites.models._box_layouts import LISTS, Array, Arrays, Candidates, Found, Graph, Layout, cells, single, strides_of

ANCHORS = 3
"""The anchors per cell of YOLOv3 to v7."""
POSE = 56
"""The columns of YOLOv8's pose: four sides, one class, 17 key points of three numbers."""
RAW = 2.0
"""In cells: how far from its own cell the middle box of a grid may be centred if its row is decoded."""


def _find_v8(graph: Graph) -> Found | None:
    """Find (1, 4 + C, N), or its transpose where the number of classes says that there is no objectness."""
    one = single(graph)
    if one is None:
        return None
    name, array = one
    columns, count = array.shape
    wanted = None if graph.classes is None else 4 + graph.classes
    on_grid = strides_of(count, graph.size) or (graph.forced and columns < count)
    if on_grid and columns > 4 and (columns == wanted if wanted else columns != POSE):
        return Found({"rows": name}, columns - 4)
    transposed = strides_of(columns, graph.size) and count == (wanted or 84)
    return Found({"rows": name}, count - 4) if transposed else None


def _v8(arrays: Arrays, found: Found, size: tuple[int, int]) -> Candidates:
    array = arrays["rows"][0]
    rows = array.T if array.shape[0] == 4 + (found.classes or 0) else array
    return Candidates(rows[:, :4], rows[:, 4:])


def _find_v5(graph: Graph) -> Found | None:
    return _with_objectness(graph, ANCHORS)


def _v5(arrays: Arrays, found: Found, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][0]
    return Candidates(rows[:, :4], rows[:, 4:5] * rows[:, 5:])


def _find_yolox(graph: Graph) -> Found | None:
    found = _with_objectness(graph, 1)
    if found is None:
        return None
    rows = graph.outputs[found.roles["rows"]][0]
    corner, stride = grid(len(rows), graph.size)
    away = np.abs(rows[:, :2] / stride - corner - 0.5).max(axis=1)
    return Found(found.roles, found.classes, decoded=bool(np.median(away) < RAW))


def _yolox(arrays: Arrays, found: Found, size: tuple[int, int]) -> Candidates:
    rows = arrays["rows"][0]
    boxes = rows[:, :4] if found.decoded else ungridded(rows[:, :4], size)
    return Candidates(boxes, rows[:, 4:5] * rows[:, 5:])


def _with_objectness(graph: Graph, anchors: int) -> Found | None:
    one = single(graph)
    if one is None:
        return None
    name, array = one
    count, columns = array.shape
    fits = columns > 5 if graph.classes is None else columns == 5 + graph.classes
    whole = (count % anchors == 0 and strides_of(count // anchors, graph.size)) or (graph.forced and anchors > 1)
    return Found({"rows": name}, columns - 5) if fits and whole else None


def grid(count: int, size: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cell (x, y) and the stride of each row, stride after stride and line after line."""
    corners, strides = [], []
    for stride in strides_of(count, size) or ():
        y, x = np.mgrid[: size[0] // stride, : size[1] // stride]
        corners.append(np.stack([x.ravel(), y.ravel()], axis=1))
        strides.append(np.full((cells(size, (stride,)), 1), stride))
    return np.concatenate(corners).astype(np.float64), np.concatenate(strides).astype(np.float64)


def ungridded(rows: Array, size: tuple[int, int]) -> Array:
    """Return raw rows of YOLOX as centre and size in pixels: an offset from the cell, and the logarithm of sides in strides."""
    corner, stride = grid(len(rows), size)
    with np.errstate(over="ignore"):
        return np.concatenate([(rows[:, :2] + corner) * stride, np.exp(rows[:, 2:4].astype(np.float64)) * stride], axis=1)


CENTRED = {"order": "cxcywh", "unit": "input"}
GRIDS = (
    Layout("v8", "cx cy w h and scores per class, no objectness", _find_v8, _v8, {**CENTRED, "nms": 0.7}),
    Layout("v5", "cx cy w h, objectness and scores per class", _find_v5, _v5, {**CENTRED, "nms": 0.6}),
    Layout("yolox", "cx cy w h, objectness and scores per class", _find_yolox, _yolox,
           {**CENTRED, "nms": 0.65, "fit": "corner", "channels": "bgr", "std": (1 / 255,) * 3}),
)  # fmt: skip

LAYOUTS = {layout.name: layout for layout in (*GRIDS, *LISTS)}
"""All layouts by name, in the order in which they are tried."""
