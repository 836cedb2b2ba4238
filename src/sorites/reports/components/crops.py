"""The crop of an image around an object, with its ground-truth box and the boxes of a detector."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sorites.core import ImageU8
from sorites.core.boxes import iou
from sorites.reports.components.images import DrawnBox, boxed
from sorites.reports.components.markup import Html, percent

# Boxes of lower confidence are drawn only if they overlap the object.
MIN_CONFIDENCE = 0.3
# Side of a crop: a multiple of the object's longer side, and at least this many px.
MARGIN, MIN_SIDE = 2.2, 96
CORNERS = ("x0", "y0", "x1", "y1")

Row = Mapping[str, Any]


def crop(
    image: ImageU8,
    obj: Row,
    boxes: Sequence[Row],
    named: Callable[[int], str],
    alt: str,
    least: float = MIN_CONFIDENCE,
) -> Html:
    """Return a square of the image around an object.

    Args:
        image: The image.
        obj: The ground-truth box, a row of the column ``ground_truth``.
        boxes: The boxes of the detector, rows of the column ``boxes``, most confident first.
        named: Returns the name of a class.
        alt: The text of the image.
        least: Boxes of lower confidence are drawn only if they overlap the object.
    """
    left, top, right, bottom = _around(obj, *image.shape[:2])
    ground_truth = DrawnBox(_corners(obj), "", "ground_truth")
    drawn = [*(_drawn_box(box, obj, named) for box in _worth_drawing(boxes, obj, least)), ground_truth]
    moved = [_moved(box, left, top) for box in drawn]
    inside = [box for box in moved if _is_visible(box, right - left, bottom - top)]
    return boxed(image[top:bottom, left:right], inside, alt)


def _corners(box: Row) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (box[corner] for corner in CORNERS)
    return x0, y0, x1, y1


def _around(obj: Row, height: int, width: int) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a square around the object, clipped to the image."""
    side = min(max(MARGIN * max(obj["x1"] - obj["x0"], obj["y1"] - obj["y0"]), MIN_SIDE), height, width)
    left = min(max((obj["x0"] + obj["x1"] - side) / 2, 0), width - side)
    top = min(max((obj["y0"] + obj["y1"] - side) / 2, 0), height - side)
    return int(left), int(top), int(left + side), int(top + side)


def _moved(box: DrawnBox, left: int, top: int) -> DrawnBox:
    x0, y0, x1, y1 = box.xyxy
    return replace(box, xyxy=(x0 - left, y0 - top, x1 - left, y1 - top))


def _is_visible(box: DrawnBox, width: int, height: int) -> bool:
    x0, y0, x1, y1 = box.xyxy
    return x1 > 0 and y1 > 0 and x0 < width and y0 < height


def _worth_drawing(boxes: Sequence[Row], obj: Row, least: float) -> list[Row]:
    """Return confident boxes, the best other box on the object, and the best detection (on top)."""
    on = [box for box in boxes if _overlap(box, obj) >= 0.5]
    detection = [box for box in on if box["label"] == obj["label"]][:1]
    rival = [box for box in on if box["label"] != obj["label"]][:1]
    confident = [box for box in boxes if box["conf"] >= least and box not in on]
    return [*reversed(confident), *rival, *detection]


def _drawn_box(box: Row, obj: Row, named: Callable[[int], str]) -> DrawnBox:
    detected = box["label"] == obj["label"] and _overlap(box, obj) >= 0.5
    text = f"{named(box['label'])} {percent(box['conf'], 0)}"
    return DrawnBox(_corners(box), text, "found" if detected else "other")


def _overlap(one: Row, other: Row) -> float:
    mine, theirs = (np.array([_corners(box)]) for box in (one, other))
    return float(iou(mine, theirs)[0, 0])
