"""Convert a detector's candidates to boxes: score threshold, suppression, image pixels, clipping."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box
from sorites.core.boxes import from_centre_size, nms
from sorites.core.errors import SoritesError
from sorites.models.detectors.config import BoxConfig, Classes, Placement, Size
from sorites.models.detectors.layouts import Candidates, Graph, Layout

# The maximum number of candidates before suppression (those with the highest scores), as in Ultralytics.
MAX_CANDIDATES = 30_000


@dataclass(frozen=True)
class Found:
    """The boxes of one image by descending score, with their class logits and features, if there are any."""

    boxes: tuple[Box, ...]
    logits: NDArray[np.float32] | None = None
    features: NDArray[np.float32] | None = None


def of_each(arrays: Sequence[NDArray[np.float32] | None]) -> list[NDArray[np.float32]] | None:
    """Return the arrays of all images, or None if one has none."""
    present = [array for array in arrays if array is not None]
    return present if len(present) == len(arrays) else None


def settled(
    candidates: Candidates,
    config: BoxConfig,
    classes: Classes,
    placement: Placement,
    size: tuple[int, int],
    features: NDArray[Any] | None = None,
) -> Found:
    """Return the boxes of one image by descending score, in its pixels and clipped to it.

    Args:
        candidates: The boxes of the graph.
        config: The settings of the detector.
        classes: Its classes.
        placement: Where the image is in its input.
        size: Height and width of the input.
        features: Features of the candidates (N x D), or of places of the input (D x H x W).
    """
    row, scores, numbers = _above_threshold(candidates, config.score)
    xyxy = to_image_pixels(candidates.boxes[row], config, placement, size)
    if not np.isfinite(xyxy).all():
        raise SoritesError("the detector returned a box whose sides are not finite")
    best = _best(xyxy, scores, numbers, config)
    row, xyxy, scores, labels = row[best], xyxy[best], scores[best], classes.of(numbers[best])
    xyxy = clipped(xyxy, placement.image)
    real = with_area(xyxy) & (labels >= 0)
    row, xyxy = row[real], xyxy[real]
    boxes = as_boxes(xyxy, scores[real], labels[real])
    return Found(
        boxes, candidates.class_logits(row), _features_of(features, row, candidates, placement, xyxy, size)
    )


def _above_threshold(
    candidates: Candidates, threshold: float
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
    """Return row, score and class number of boxes at or above the threshold, one for each box and class."""
    if np.isnan(candidates.scores).any():
        raise SoritesError("the detector returned scores that are not a number")
    if candidates.labels is None:
        row, number = np.nonzero(candidates.scores >= threshold)
        scores = candidates.scores[row, number]
    else:
        row = np.flatnonzero(candidates.scores >= threshold)
        scores, number = candidates.scores[row], candidates.labels[row]
    if len(scores) > MAX_CANDIDATES:
        best = np.argsort(-scores, kind="stable")[:MAX_CANDIDATES]
        row, scores, number = row[best], scores[best], number[best]
    return row, scores, number


def _features_of(
    features: NDArray[Any] | None,
    rows: NDArray[np.int64],
    candidates: Candidates,
    placement: Placement,
    xyxy: NDArray[np.float64],
    size: tuple[int, int],
) -> NDArray[np.float32] | None:
    """Return the features of boxes: their own rows, or the mean of a feature map over the box."""
    if features is None:
        return None
    if features.ndim == 3:
        return pooled(features, placement.into(xyxy), size)
    if len(features) != len(candidates.boxes):
        raise SoritesError(
            f"the detector returned {len(features)} rows of features for {len(candidates.boxes)} candidates"
        )
    return np.asarray(features[rows], np.float32)


def pooled(features: NDArray[Any], xyxy: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float32]:
    """Return the mean of a feature map (D x H x W) over the cells whose centre is in each box.

    A box that contains no centre has the features of the cell in which its own centre is.

    Args:
        features: The map, which covers the input of the detector.
        xyxy: Boxes in pixels of the input.
        size: Height and width of the input.
    """
    _, high, wide = features.shape
    stride = np.array([size[1] / wide, size[0] / high])
    corners = np.asarray(xyxy, np.float64).reshape(-1, 2, 2) / stride
    limits = np.array([wide, high])
    first = np.clip(np.ceil(corners[:, 0] - 0.5), 0, limits - 1).astype(np.int64)
    last = np.clip(np.ceil(corners[:, 1] - 0.5), 0, limits).astype(np.int64)
    centre = np.clip(np.floor(corners.mean(axis=1)), 0, limits - 1).astype(np.int64)
    empty = (last <= first).any(axis=1)
    first[empty], last[empty] = centre[empty], centre[empty] + 1
    spans = zip(first.tolist(), last.tolist(), strict=True)
    rows = [features[:, y0:y1, x0:x1].mean(axis=(1, 2), dtype=np.float64) for (x0, y0), (x1, y1) in spans]
    return np.array(rows, np.float32).reshape(len(rows), len(features))


def to_image_pixels(
    boxes: NDArray[Any], config: BoxConfig, placement: Placement, size: tuple[int, int]
) -> NDArray[np.float64]:
    """Convert boxes of a graph to x0 y0 x1 y1 in pixels of the image."""
    xyxy = np.asarray(boxes, np.float64)
    if config.order == "cxcywh":
        xyxy = from_centre_size(xyxy)
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
    """Clip boxes to an image of this height and width."""
    return np.clip(xyxy, 0, [image[1], image[0]] * 2)


def with_area(xyxy: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which boxes have an area."""
    return np.asarray((xyxy[:, 2] > xyxy[:, 0]) & (xyxy[:, 3] > xyxy[:, 1]))


def as_boxes(xyxy: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any]) -> tuple[Box, ...]:
    """Return boxes from rows."""
    rows = zip(xyxy.tolist(), labels.tolist(), scores.tolist(), strict=True)
    return tuple(Box((x0, y0, x1, y1), int(label), float(score)) for (x0, y0, x1, y1), label, score in rows)


# Messages about how the outputs of a detector are read.


Shape = tuple[int, ...]


def say(text: str) -> None:
    """Print a message to stderr, once per process and not in worker processes."""
    if multiprocessing.parent_process() is None:
        _say(text)


@functools.cache
def _say(text: str) -> None:
    from rich.console import Console

    Console(stderr=True).print(text, soft_wrap=True, highlight=False, markup=False)


def undeclared(declared: Collection[str]) -> list[str]:
    """Return the settings of preprocessing that are not declared."""
    return [key for key in ("fit", "filter", "channels", "mean", "std") if key not in declared]


def input_text(config: BoxConfig, size: Size) -> str:
    """Describe the preprocessing of a detector."""
    fill = f", filled with {config.fill}" if config.fit != "squash" else ""
    pixels = "antialiased " if config.antialias else ""
    range_ = (
        "0..1"
        if config.std == (1, 1, 1)
        else "0..255"
        if config.std == (1 / 255,) * 3
        else f"less {config.mean} over {config.std}"
    )
    channels = config.channels.upper()
    return f"{size[0]} x {size[1]}: {config.fit}{fill}, {pixels}{config.filter}, {channels} {range_}"


def understood(
    name: str,
    layout: Layout,
    config: BoxConfig,
    classes: Classes,
    size: Size,
    shapes: Mapping[str, Shape],
    declared: Collection[str],
) -> str:
    """Describe how a detector is run and decoded; preprocessing is assumed if it is not ``declared``."""
    outputs = ", ".join(f"{output} {' x '.join(map(str, shape))}" for output, shape in shapes.items())
    missing = undeclared(declared)
    assumed = f" (assumed from the layout: {', '.join(missing)})" if missing else ""
    suppression = "no NMS added" if config.nms is None else f"class-wise NMS at IoU {config.nms:g}"
    return (
        f"{name} is read as layout {layout.name}: {layout.about} ({outputs}).\n"
        f"  input {input_text(config, size)}{assumed}\n"
        f"  classes: {classes.about}; scores from {config.score:g} up, {suppression}, at most"
        f" {config.most} boxes"
    )


def refusal(path: Path, graph: Graph, config: BoxConfig, layouts: Collection[str]) -> str:
    """Return an error message for unknown outputs, with the settings to write into the JSON file."""
    actual = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in graph.outputs.items())
    expected = "boxes" if config.layout is None else f"boxes in the layout {config.layout}"
    example = f'{{"layout": "{config.layout or "v8"}", "labels": ["name", ...]}}'
    return (
        f"{path}: expected {expected}, got outputs {actual}{_guess(graph)}. If these are boxes, declare their"
        f" layout: write {example} into {path}.json; the layouts are {', '.join(layouts)} (docs/models.md)."
    )


def _guess(graph: Graph) -> str:
    if any(array.ndim == 4 for array in graph.outputs.values()):
        return ", which look like masks (segmentation)"
    columns = {side for array in graph.outputs.values() if array.ndim == 3 for side in array.shape[1:]}
    if 56 in columns:
        return ", which look like keypoints (pose)"
    if graph.classes is not None and 5 + graph.classes in columns and len(graph.outputs) == 1:
        return ", which look like oriented boxes (OBB)"
    if graph.classes is not None and len(graph.outputs) == 1:
        return f", which do not fit {graph.classes} classes"
    return ""
