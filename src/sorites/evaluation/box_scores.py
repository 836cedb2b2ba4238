"""OOD scores of boxes: a scorer sees each box of a detector as an image, and an image gets one score of all.

**The score of an image** is the greatest of its boxes from a confidence of 0.25 on: the most OOD object that
the detector is ready to report. An image without such a box has no score, which is missing, not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, Outputs
from sorites.core.boxes import iou
from sorites.evaluation.samples import GroundTruth

# Boxes from this confidence on determine the score of an image, and are those that scorers are fitted on.
CONFIDENCE = 0.25
# IoU from which a box finds an object.
MATCH_IOU = 0.5

# The OOD score of an image or box or None, and an error or None.
Scored = tuple[float | None, str | None]


@dataclass(frozen=True)
class ScoredImage:
    """The OOD score of an image, and those of its boxes in the order of the detector."""

    image: Scored
    boxes: Sequence[float | None]


def boxes_as_images(outputs: Outputs, keep: Sequence[NDArray[np.int64]] | None = None) -> Outputs:
    """Return the boxes of all images as outputs of as many images, one after the other.

    Args:
        outputs: Outputs of a detector.
        keep: The boxes of each image that are kept; default all.
    """
    boxes = outputs.boxes or []
    kept = [np.arange(len(own)) for own in boxes] if keep is None else keep
    each: list[tuple[Box, ...]] = [(own[i],) for own, places in zip(boxes, kept, strict=True) for i in places]

    def rows(arrays: Sequence[NDArray[np.float32]] | None) -> NDArray[np.float32] | None:
        if not arrays:
            return None
        return np.concatenate([array[places] for array, places in zip(arrays, kept, strict=True)])

    return Outputs(
        rows(outputs.box_logits), rows(outputs.box_features), each, independent=outputs.independent
    )


def score_boxes(
    outputs: Outputs, features: bool, score: Callable[[Outputs], Sequence[Scored]]
) -> list[ScoredImage]:
    """Score the boxes of images.

    Args:
        outputs: Outputs of a detector.
        features: Whether the scorer needs features; boxes without them have no score.
        score: Scores boxes that are given as images.
    """
    keep = [_with_features(outputs, i) if features else np.arange(len(own)) for i, own in _boxes(outputs)]
    together = boxes_as_images(outputs, keep)
    scores = iter(score(together) if len(together) else ())
    found = []
    for (_, boxes), places in zip(_boxes(outputs), keep, strict=True):
        own: list[Scored] = [(None, None)] * len(boxes)
        for place in places.tolist():
            own[place] = next(scores)
        found.append(ScoredImage(_of_image(boxes, own), [value for value, _ in own]))
    return found


def _boxes(outputs: Outputs) -> list[tuple[int, Sequence[Box]]]:
    return list(enumerate(outputs.boxes or []))


def _with_features(outputs: Outputs, image: int) -> NDArray[np.int64]:
    """Return the boxes of an image that have features."""
    if outputs.box_features is None:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isfinite(outputs.box_features[image]).all(axis=1))


def _of_image(boxes: Sequence[Box], scores: Sequence[Scored]) -> Scored:
    """Return the greatest score of the boxes that count, or the first error among them."""
    counted = [scored for box, scored in zip(boxes, scores, strict=True) if (box.conf or 0.0) >= CONFIDENCE]
    error = next((error for _, error in counted if error is not None), None)
    if error is not None:
        return None, error
    return max((value for value, _ in counted if value is not None), default=None), None


def trial_box(outputs: Outputs) -> Outputs:
    """Return one box as an image, with as many logits and features as the detector gives its boxes."""

    def row(arrays: Sequence[NDArray[Any]] | None) -> NDArray[np.float32] | None:
        return np.zeros((1, arrays[0].shape[1]), np.float32) if arrays else None

    box = Box((0.0, 0.0, 1.0, 1.0), 0, 0.5)
    logits, features = row(outputs.box_logits), row(outputs.box_features)
    return Outputs(logits, features, [(box,)], independent=outputs.independent)


def wrong_rows(outputs: Outputs) -> str | None:
    """Return what is wrong with the logits or features of boxes, or None."""
    for name, arrays in (("logits", outputs.box_logits), ("features", outputs.box_features)):
        if arrays is None:
            continue
        expected = [len(boxes) for boxes in outputs.boxes or ()]
        if [len(array) for array in arrays] != expected or any(array.ndim != 2 for array in arrays):
            shapes = ", ".join(str(array.shape) for array in arrays)
            return f"box_{name} of shapes {shapes} for {expected} boxes"
    return None


def training_boxes(outputs: Outputs, ground_truths: Sequence[GroundTruth]) -> list[NDArray[np.int64]]:
    """Return the boxes of each image that a scorer is fitted on.

    These are boxes from a confidence of 0.25 on that find an object of their class; all from that confidence
    on where the ground truth is unknown. Where boxes have features, only those that have them count.
    """
    chosen = []
    for i, boxes in _boxes(outputs):
        usable = _with_features(outputs, i) if outputs.box_features is not None else np.arange(len(boxes))
        right = right_boxes(boxes, ground_truths[i])
        places = [place for place in usable.tolist() if right[place]]
        chosen.append(np.array(places, np.int64))
    return chosen


def right_boxes(boxes: Sequence[Box], ground_truth: GroundTruth) -> list[bool]:
    """Return which boxes find an object of their class (IoU .5), by falling confidence, each object once."""
    right = [(box.conf or 0.0) >= CONFIDENCE for box in boxes]
    if ground_truth is None:
        return right
    objects = [box for box in ground_truth if not box.crowd]
    overlap = iou(_corners(boxes), _corners(objects))
    free = dict.fromkeys(range(len(objects)), True)
    for i in sorted(range(len(boxes)), key=lambda i: -(boxes[i].conf or 0.0)):
        fits = [k for k in free if objects[k].label == boxes[i].label and overlap[i, k] >= MATCH_IOU]
        right[i] = right[i] and bool(fits)
        if right[i]:
            del free[max(fits, key=lambda k: overlap[i, k])]
    return right


def _corners(boxes: Sequence[Box]) -> NDArray[np.float64]:
    return np.array([box.xyxy for box in boxes], np.float64).reshape(-1, 4)


def by_label(box: Box, places: Mapping[int, int]) -> Box:
    """Return a box with the label of the suite in place of that of the model; -1 if the suite has none."""
    return Box(box.xyxy, places.get(box.label, -1), box.conf, box.area, box.crowd)
