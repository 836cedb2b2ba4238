"""The usual forms in which a user's own detector gives its boxes, one result per image.

1. ``(boxes, scores, labels)``: N x 4, N and N numbers;
2. a dict with the keys ``boxes``, ``scores`` and ``labels``, as torchvision's detectors give it;
3. rows of ``x0, y0, x1, y1, score, class``: N x 6.

Boxes are x0, y0, x1, y1 in pixels of the image given. Anything array-like will do, a torch tensor
too. ``Outputs(boxes=...)`` is understood as well. Class numbers are places in ``labels`` of the
function's dict ``sorites`` where it has one (names, or "coco91" and the like), else in the suite's
labels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageU8, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.models.detectors.config import Classes, classes_of

FORMS = "(boxes, scores, labels), a dict of these, or rows of x0, y0, x1, y1, score, class"
KEYS = ("boxes", "scores", "labels")
# The image on which is decided, once, whether a function gives boxes.
GREY: ImageU8 = np.full((96, 128, 3), 128, np.uint8)


def with_boxes(model: Model, function: Callable[[list[NDArray[Any]]], Any]) -> Model:
    """Return the model as one of boxes if its function gives boxes for a grey image, else as it is."""
    try:
        given = function([GREY.copy()])
    except Exception:  # a function raises whatever it likes; that is said when the model is tried
        return model
    if not gives_boxes(given):
        _refuse_parts(model.name, given)
        return model
    classes = classes_of(
        dict(getattr(function, "sorites", {})).get("labels"), f"model {model.name}, its .sorites"
    )
    lock = threading.Lock()

    def forward(images: list[NDArray[Any]]) -> Outputs:
        with lock:
            results = function(images)
        return Outputs(boxes=boxes_of(model.name, results, len(images), classes))

    return replace(model, forward=forward, output="boxes", labels=classes.names)


def gives_boxes(given: Any) -> bool:
    """Return whether the result for one image has one of the forms of boxes."""
    if isinstance(given, Outputs):
        return given.boxes is not None
    if isinstance(given, str | bytes | dict) or not hasattr(given, "__len__") or len(given) != 1:
        return False
    one = given[0]
    if isinstance(one, dict):
        return "boxes" in one
    if _is_triple(one):
        return True
    rows = _array(one)
    return rows is not None and (rows.size == 0 or (rows.ndim == 2 and rows.shape[1] == 6))


def _refuse_parts(name: str, given: Any) -> None:
    """Refuse a result that begins with boxes and is no form of them: as logits it would be misunderstood."""
    one = given[0] if isinstance(given, list | tuple) and len(given) == 1 else ()
    first = _array(one[0]) if isinstance(one, list | tuple) and one else None
    if first is not None and first.ndim == 2 and first.shape[1] == 4:
        raise SoritesError(f"model {name}: wanted of a detector {FORMS} for each image, got {len(one)} parts")


def boxes_of(name: str, given: Any, count: int, classes: Classes) -> list[tuple[Box, ...]]:
    """Return the boxes of each of ``count`` images; the error of a form that is not understood
    says what came.
    """
    if isinstance(given, Outputs):
        given = given.boxes
    if given is None or isinstance(given, str | bytes | dict) or not hasattr(given, "__len__"):
        raise SoritesError(
            f"model {name}: wanted a list with {FORMS} for each image, got {type(given).__name__}"
        )
    if len(given) != count:
        raise SoritesError(f"model {name}: wanted boxes of {count} images, got {len(given)} results")
    return [_boxes(name, one, classes) for one in given]


def _boxes(name: str, one: Any, classes: Classes) -> tuple[Box, ...]:
    if isinstance(one, Sequence) and one and all(isinstance(box, Box) for box in one):
        return tuple(one)
    boxes, scores, labels = _parts(name, one)
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all() and np.isfinite(labels).all()):
        raise SoritesError(f"model {name} gave boxes, scores or labels that are not finite")
    turned = (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])
    if turned.any():
        first = tuple(boxes[turned][0].tolist())
        raise SoritesError(
            f"model {name}: wanted boxes as x0, y0, x1, y1 with x0 <= x1 and y0 <= y1, got {first}"
        )
    whole = classes.of(labels)
    real = np.ones(len(boxes), bool) if classes.places is None else whole >= 0
    rows = zip(boxes[real].tolist(), whole[real].tolist(), scores[real].tolist(), strict=True)
    return tuple(Box((x0, y0, x1, y1), label, score) for (x0, y0, x1, y1), label, score in rows)


def _parts(name: str, one: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return one image's boxes (N x 4), scores (N) and labels (N)."""
    if isinstance(one, dict):
        missing = [key for key in KEYS if key not in one]
        if missing:
            came = ", ".join(map(str, one)) or "none"
            raise SoritesError(
                f"model {name}: wanted a dict with the keys {', '.join(KEYS)}, got the keys {came}"
            )
        parts = [_array(one[key]) for key in KEYS]
    elif _is_triple(one):
        parts = [_array(part) for part in one]
    else:
        rows = _array(one)
        if rows is not None and rows.size == 0:
            rows = np.zeros((0, 6))
        if rows is None or rows.ndim != 2 or rows.shape[1] != 6:
            raise SoritesError(f"model {name}: wanted {FORMS} for each image, got {_what(one, rows)}")
        parts = [rows[:, :4], rows[:, 4], rows[:, 5]]
    if parts[2] is None:
        raise SoritesError(
            f"model {name}: wanted labels as whole numbers, places in the list of labels, got {_few(one)}"
        )
    boxes, scores, labels = (np.zeros((0,)) if part is None else part for part in parts)
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    shapes = (boxes.shape, scores.shape, labels.shape)
    if any(part is None for part in parts) or shapes != ((len(boxes), 4), (len(boxes),), (len(boxes),)):
        came = ", ".join(map(str, shapes))
        raise SoritesError(f"model {name}: wanted boxes N x 4, scores N and labels N, got shapes {came}")
    return boxes, scores, labels


def _is_triple(one: Any) -> bool:
    if not isinstance(one, tuple | list) or len(one) != 3:
        return False
    boxes, scores, _ = (_array(part) for part in one)
    if boxes is None or scores is None:
        return False
    return scores.ndim == 1 and (boxes.size == 0 or (boxes.ndim == 2 and boxes.shape[1] == 4))


def _array(values: Any) -> NDArray[np.float64] | None:
    """Return numbers as an array, or None if they are not numbers of one shape."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    if not isinstance(values, Iterable) and not hasattr(values, "__array__"):
        return None
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _few(one: Any) -> str:
    return repr(one["labels"] if isinstance(one, dict) else one[2])[:60]


def _what(one: Any, rows: NDArray[Any] | None) -> str:
    if rows is None:
        return type(one).__name__
    masks = " (masks?)" if rows.ndim > 2 or (rows.ndim == 2 and min(rows.shape) > 16) else ""
    return f"numbers of shape {rows.shape}{masks}"
