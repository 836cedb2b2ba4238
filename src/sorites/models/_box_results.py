"""From a detector's candidates to boxes of the picture: the score floor, suppression, pixels of the picture, its edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.boxes import centred, nms
from sorites.core import Box
from sorites.errors import SoritesError
from sorites.models._box_config import BoxConfig, Classes
from sorites.models._box_input import Placement
from sorites.models._box_layouts import Candidates

SUPPRESSED = 30_000
"""The most candidates that enter suppression, those of the highest scores; as in Ultralytics' validation."""


def settled(
    given: Candidates, config: BoxConfig, classes: Classes, placement: Placement, size: tuple[int, int]
) -> tuple[Box, ...]:
    """Return the boxes of one picture, by falling score, in its pixels and inside it."""
    boxes, scores, numbers = _above(given, config.score)
    xyxy = to_picture(boxes, config, placement, size)
    if not np.isfinite(xyxy).all():
        raise SoritesError("the detector gave a box whose sides are not finite")
    best = _best(xyxy, scores, numbers, config)
    xyxy, scores, places = xyxy[best], scores[best], classes.of(numbers[best])
    return as_boxes(clipped(xyxy, placement.picture), scores, places)


def _above(given: Candidates, floor: float) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the boxes, scores and class numbers at or above the floor; a box has a row for each class that reaches it."""
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


def to_picture(boxes: NDArray[Any], config: BoxConfig, placement: Placement, size: tuple[int, int]) -> NDArray[np.float64]:
    """Return boxes of a graph as x0 y0 x1 y1 in pixels of the picture."""
    xyxy = np.asarray(boxes, np.float64)
    if config.order == "cxcywh":
        xyxy = centred(xyxy)
    elif config.order == "yxyx":
        xyxy = xyxy[:, [1, 0, 3, 2]]
    if config.unit == "picture":
        return xyxy
    return placement.back(xyxy * ((size[1], size[0]) * 2) if config.unit == "fraction" else xyxy)


def _best(xyxy: NDArray[np.float64], scores: NDArray[Any], numbers: NDArray[Any], config: BoxConfig) -> NDArray[np.int64]:
    if config.nms is not None and config.nms < 1:
        return nms(xyxy, scores, np.asarray(np.rint(numbers), np.int64), config.nms, config.most)
    return np.argsort(-scores, kind="stable")[: config.most]


def clipped(xyxy: NDArray[np.float64], picture: tuple[int, int]) -> NDArray[np.float64]:
    """Return boxes cut at the edges of a picture of this height and width."""
    return np.clip(xyxy, 0, [picture[1], picture[0]] * 2)


def as_boxes(xyxy: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any]) -> tuple[Box, ...]:
    """Return boxes from rows; those without area, and those of class -1 (none of the detector's names), are left out."""
    real = (xyxy[:, 2] > xyxy[:, 0]) & (xyxy[:, 3] > xyxy[:, 1]) & (labels >= 0)
    rows = zip(xyxy[real].tolist(), labels[real].tolist(), scores[real].tolist(), strict=True)
    return tuple(Box((x0, y0, x1, y1), int(label), float(score)) for (x0, y0, x1, y1), label, score in rows)
