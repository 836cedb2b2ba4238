"""Boxes judged at a confidence: which boxes are right, which are wrong, and which objects are found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sorites.core.errors import InvalidOption, UnknownName
from sorites.core.messages import parameter
from sorites.metrics.detection.coco import AREAS
from sorites.metrics.detection.matching import FREE, TAKEN, Bools, best, match
from sorites.metrics.detection.scenes import Boxes, Ints, Scene

# IoU from which a box finds an object.
MATCH_IOU = 0.5
# Sizes of objects by name, as indexes into AREAS.
SIZES = {"small": 1, "medium": 2, "large": 3}


def checked_conf(conf: float) -> float:
    """Return a confidence in [0, 1]; otherwise raise an error."""
    if not 0 <= conf <= 1:
        raise InvalidOption("conf", f"{parameter('conf')} must be in [0, 1], got {conf:g}")
    return conf


def area_of(size: str | None) -> int:
    """Return the index of a size in AREAS; None stands for all sizes."""
    if size is None:
        return 0
    if size not in SIZES:
        raise UnknownName("size", size, SIZES, f"There are {', '.join(SIZES)}.")
    return SIZES[size]


@dataclass(frozen=True)
class Judged:
    """The boxes of a scene from a confidence on, matched to its objects at IoU .5 by COCO's rules.

    Attributes:
        found: The boxes that are right or wrong: none matched to a crowd or an object of another size.
        right: Whether a box finds an object.
        obj: The object that a box finds, as an index into ``objects``; -1 where it finds none.
        objects: The objects of the size, without crowds.
        hit: Whether an object is found.
    """

    found: Boxes
    right: Bools
    obj: Ints
    objects: Boxes
    hit: Bools


def judged_at(scene: Scene, conf: float, size: str | None = None) -> Judged:
    """Match the boxes of at least this confidence.

    Objects of another size are ignored as crowds are, and so are wrong boxes of another size (COCO's rule).
    """
    low, high = AREAS[area_of(size)]
    found = best(scene.found[scene.found.conf >= conf])
    objects = scene.objects
    ignored = objects.crowd | (objects.area < low) | (objects.area > high)
    matched = match(found, objects, [MATCH_IOU], ignored[:, None])
    state, taken = np.full(len(found), FREE, np.int8), np.full(len(found), -1, np.int64)
    state[matched.which], taken[matched.which] = matched.state[:, 0, 0], matched.obj[:, 0, 0]
    inside = (found.area >= low) & (found.area <= high)
    counted = (state == TAKEN) | ((state == FREE) & inside)
    hit = np.zeros(len(objects), bool)
    hit[taken[state == TAKEN]] = True
    # The last entry is for boxes that find no object.
    number = np.append(np.cumsum(~ignored) - 1, -1)
    obj = np.where(state == TAKEN, number[taken], -1)
    return Judged(found[counted], (state == TAKEN)[counted], obj[counted], objects[~ignored], hit[~ignored])
