"""What every location of a detector is to predict: the assignment of FCOS.

A location belongs to an object if it is inside its box and near its centre, and if the largest distance to a
side fits the stride of its feature map. Of several objects it belongs to the smallest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core.boxes import areas
from sorites.models.detectors.fcos import STRIDES

# Labels of locations without an object, and of those that do not count.
BACKGROUND, IGNORED = -1, -2
# A location is near a centre if it is closer than this many strides.
RADIUS = 1.5
# The largest distance to a side is between these many strides; the finest map has no lower limit and the
# coarsest no upper one.
REACH = (4.0, 8.0)


@dataclass(frozen=True)
class GroundTruth:
    """The ground-truth boxes of one image in px of the input.

    Attributes:
        boxes: K x 4.
        labels: Their classes, K.
        ignored: Which of them are neither objects to find nor background: crowds, and objects of which a crop
            shows too little.
    """

    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    ignored: NDArray[np.bool_]


def targets_of(
    ground_truth: GroundTruth, centres: NDArray[np.float32], strides: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the class and the distances to left, top, right and bottom of every location, P x 5.

    The class is ``BACKGROUND`` where there is no object, and ``IGNORED`` inside ignored boxes; distances are
    0 there.

    Args:
        ground_truth: The boxes.
        centres: The locations, P x 2.
        strides: Their strides, P.
    """
    targets = np.zeros((len(centres), 5), np.float32)
    targets[:, 0] = BACKGROUND
    ignored, objects = ground_truth.boxes[ground_truth.ignored], ground_truth.boxes[~ground_truth.ignored]
    if len(ignored):
        targets[(_distances(ignored, centres).min(-1) > 0).any(1), 0] = IGNORED
    if not len(objects):
        return targets
    distances = _distances(objects, centres)
    middles = (objects[:, :2] + objects[:, 2:]) / 2
    off_centre = np.abs(centres[:, None] - middles[None]).max(-1)
    low, high = _reaches(strides)
    furthest = distances.max(-1)
    fits = (distances.min(-1) > 0) & (off_centre < RADIUS * strides[:, None])
    fits &= (furthest > low[:, None]) & (furthest < high[:, None])
    cost = np.where(fits, areas(objects)[None], np.inf)
    best, rows = cost.argmin(1), np.flatnonzero(fits.any(1))
    targets[rows, 0] = ground_truth.labels[~ground_truth.ignored][best[rows]]
    targets[rows, 1:] = distances[rows, best[rows]]
    return targets


def _distances(boxes: NDArray[np.float64], centres: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the distances of locations to the sides of boxes, P x K x 4; negative outside."""
    before, after = centres[:, None] - boxes[None, :, :2], boxes[None, :, 2:] - centres[:, None]
    return np.concatenate([before, after], -1)


def _reaches(strides: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    low = np.where(strides == STRIDES[0], 0, REACH[0] * strides)
    high = np.where(strides == STRIDES[-1], np.inf, REACH[1] * strides)
    return low.astype(np.float32), high.astype(np.float32)
