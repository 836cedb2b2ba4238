"""Non-maximum suppression of 8400 candidates against a plain NumPy greedy loop, side by side; both
keep the same boxes.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench._timing import in_turns
from sorites.core.boxes import nms

CANDIDATES, CLASSES, THRESHOLD, ROUNDS = 8400, 80, 0.7, 5


def plain(
    boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any], threshold: float
) -> NDArray[np.int64]:
    """The loop that most detectors carry: keep the best, drop what overlaps it, go on; classes are
    kept apart by an offset.
    """
    moved = boxes + (labels * (boxes.max() + 1))[:, None]
    x0, y0, x1, y1 = moved.T
    area = (x1 - x0) * (y1 - y0)
    order, kept = np.argsort(-scores, kind="stable"), []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(best)
        wide = np.maximum(0, np.minimum(x1[best], x1[rest]) - np.maximum(x0[best], x0[rest]))
        tall = np.maximum(0, np.minimum(y1[best], y1[rest]) - np.maximum(y0[best], y0[rest]))
        shared = wide * tall
        order = rest[shared <= threshold * (area[best] + area[rest] - shared)]
    return np.array(kept, np.int64)


def candidates(kind: str, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return boxes, scores and labels of all cells of a 640 px input.

    ``as a detector`` has half of them around forty objects and half anywhere, which leaves about as
    many as yolo11n leaves on a photograph (3200 to 4000); ``forty objects`` has all of them around
    forty objects, ``one class`` all anywhere and of one class.
    """
    around = {"as a detector": CANDIDATES // 2, "forty objects": CANDIDATES, "one class": 0}[kind]
    which = np.concatenate([rng.integers(0, 40, around), np.arange(40, 40 + CANDIDATES - around)])
    corner, side = (
        rng.uniform(0, 540, (which.max() + 1, 2))[which],
        rng.uniform(16, 200, (which.max() + 1, 2))[which],
    )
    corner, side = corner + rng.normal(0, 4, corner.shape), side * rng.uniform(0.85, 1.15, side.shape)
    labels = rng.integers(0, 1 if kind == "one class" else CLASSES, which.max() + 1)[which]
    return np.concatenate([corner, corner + side], axis=1), rng.random(CANDIDATES), labels


def run() -> list[tuple[str, float, str]]:
    """(what, ratio, note); a ratio is the loop's time over that of ``sorites.core.boxes.nms``, the
    least of some rounds.
    """
    figures = []
    for kind in ("as a detector", "one class", "forty objects"):
        boxes, scores, labels = candidates(kind, np.random.default_rng(0))
        one, other = plain(boxes, scores, labels, THRESHOLD), nms(boxes, scores, labels, THRESHOLD)
        assert np.array_equal(one, other)
        theirs, ours = in_turns(
            ROUNDS,
            time.process_time,
            lambda some=(boxes, scores, labels): plain(*some, THRESHOLD),
            lambda some=(boxes, scores, labels): nms(*some, THRESHOLD),
        )
        note = f"x a plain loop, {len(one)} of {CANDIDATES} kept, {min(ours) * 1e3:.0f} ms"
        figures.append((f"boxes: nms, {kind}", min(theirs) / min(ours), note))
    return figures
