"""From a detector's candidates to boxes of the image: the score floor, suppression, pixels of the
image, its edges.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box
from sorites.core.boxes import centred, nms
from sorites.core.errors import SoritesError
from sorites.models.detectors.config import BoxConfig, Classes, Placement, Size
from sorites.models.detectors.layouts import Candidates, Graph, Layout
from sorites.models.onnx import GraphInput

# The most candidates that enter suppression, those of the highest scores; as in Ultralytics'
# validation.
SUPPRESSED = 30_000


def settled(
    given: Candidates, config: BoxConfig, classes: Classes, placement: Placement, size: tuple[int, int]
) -> tuple[Box, ...]:
    """Return the boxes of one image, by falling score, in its pixels and inside it."""
    boxes, scores, numbers = _above(given, config.score)
    xyxy = to_uint8(boxes, config, placement, size)
    if not np.isfinite(xyxy).all():
        raise SoritesError("the detector gave a box whose sides are not finite")
    best = _best(xyxy, scores, numbers, config)
    xyxy, scores, places = xyxy[best], scores[best], classes.of(numbers[best])
    return as_boxes(clipped(xyxy, placement.image), scores, places)


def _above(given: Candidates, floor: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the boxes, scores and class numbers at or above the floor; a box has a row for each
    class that reaches it.
    """
    if np.isnan(given.scores).any():
        raise SoritesError("the detector gave scores that are not a number")
    if given.labels is None:
        row, number = np.nonzero(given.scores >= floor)
        boxes, scores = given.boxes[row], given.scores[row, number]
    else:
        kept = given.scores >= floor
        boxes, scores, number = given.boxes[kept], given.scores[kept], given.labels[kept]
    if len(scores) > SUPPRESSED:
        best = np.argsort(-scores, kind="stable")[:SUPPRESSED]
        boxes, scores, number = boxes[best], scores[best], number[best]
    return boxes, scores, number


def to_uint8(
    boxes: NDArray[Any], config: BoxConfig, placement: Placement, size: tuple[int, int]
) -> NDArray[np.float64]:
    """Return boxes of a graph as x0 y0 x1 y1 in pixels of the image."""
    xyxy = np.asarray(boxes, np.float64)
    if config.order == "cxcywh":
        xyxy = centred(xyxy)
    elif config.order == "yxyx":
        xyxy = xyxy[:, [1, 0, 3, 2]]
    if config.unit == "image":
        return xyxy
    return placement.back(xyxy * ((size[1], size[0]) * 2) if config.unit == "fraction" else xyxy)


def _best(
    xyxy: NDArray[np.float64], scores: NDArray[Any], numbers: NDArray[Any], config: BoxConfig
) -> NDArray[np.int64]:
    if config.nms is not None and config.nms < 1:
        return nms(xyxy, scores, np.asarray(np.rint(numbers), np.int64), config.nms, config.most)
    return np.argsort(-scores, kind="stable")[: config.most]


def clipped(xyxy: NDArray[np.float64], image: tuple[int, int]) -> NDArray[np.float64]:
    """Return boxes cut at the edges of an image of this height and width."""
    return np.clip(xyxy, 0, [image[1], image[0]] * 2)


def as_boxes(xyxy: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any]) -> tuple[Box, ...]:
    """Return boxes from rows; those without area, and those of class -1 (none of the detector's
    names), are left out.
    """
    real = (xyxy[:, 2] > xyxy[:, 0]) & (xyxy[:, 3] > xyxy[:, 1]) & (labels >= 0)
    rows = zip(xyxy[real].tolist(), labels[real].tolist(), scores[real].tolist(), strict=True)
    return tuple(Box((x0, y0, x1, y1), int(label), float(score)) for (x0, y0, x1, y1), label, score in rows)


# Say in words how a detector's file was understood; or why it was not understood, and what to write.


Shape = tuple[int, ...]


def say(text: str) -> None:
    """Tell the user something, once per process and not in the workers of a run."""
    if multiprocessing.parent_process() is None:
        _say(text)


@functools.cache
def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


def understood(
    name: str,
    layout: Layout,
    config: BoxConfig,
    classes: Classes,
    ends: GraphInput,
    size: Size,
    shapes: Mapping[str, Shape],
) -> str:
    """Return the sentences that say how a detector's graph is fed and read."""
    given = ", ".join(f"{output} {' x '.join(map(str, shape))}" for output, shape in shapes.items())
    fill = f", filled with {config.fill}" if config.fit != "squash" else ""
    pixels = "antialiased " if config.antialias else ""
    normal = (
        "0..1"
        if config.std == (1, 1, 1)
        else "0..255"
        if config.std == (1 / 255,) * 3
        else f"less {config.mean} over {config.std}"
    )
    suppressed = "no NMS added" if config.nms is None else f"class-wise NMS at IoU {config.nms:g}"
    return (
        f"{name} is read as layout {layout.name}: {layout.about} ({given}).\n  input {size[0]} x {size[1]}:"
        f" {config.fit}{fill}, {pixels}{config.filter}, {config.channels.upper()} {normal}\n  classes:"
        f" {classes.about}; scores from {config.score:g} up, {suppressed}, at most {config.most} boxes\n"
    ).rstrip()


def refusal(path: Path, graph: Graph, config: BoxConfig, layouts: Collection[str]) -> str:
    """Return why a graph's outputs are none of the layouts, and what to write into the file beside it."""
    came = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in graph.outputs.items())
    wanted = "boxes" if config.layout is None else f"boxes in the layout {config.layout}"
    example = f'{{"layout": "{config.layout or "v8"}", "labels": ["name", ...]}}'
    return (
        f"{path}: wanted {wanted}, got outputs {came}{_guess(graph)}. If they are boxes, say how they are"
        f" laid out: write {example} into {path}.json; the layouts are {', '.join(layouts)} (docs/models.md)."
    )


def _guess(graph: Graph) -> str:
    if any(array.ndim == 4 for array in graph.outputs.values()):
        return ", which look like masks (segmentation)"
    columns = {side for array in graph.outputs.values() if array.ndim == 3 for side in array.shape[1:]}
    if 56 in columns:
        return ", which look like key points (pose)"
    if graph.classes is not None and 5 + graph.classes in columns and len(graph.outputs) == 1:
        return ", which look like turned boxes (OBB)"
    if graph.classes is not None and len(graph.outputs) == 1:
        return f", which do not fit {graph.classes} classes"
    return ""
