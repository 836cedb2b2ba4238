"""The formats in which a user's detector may return boxes, one result per image.

1. ``(boxes, scores, labels)``: N x 4, N and N numbers;
2. a dict with the keys ``boxes``, ``scores`` and ``labels``, as in torchvision;
3. rows of ``x0, y0, x1, y1, score, class``: N x 6.

A dict may also have ``logits`` (N x C, class logits of each box without the background) and ``features``
(N x D), from which boxes get OOD scores. Logits are those of a softmax over classes, unless the function's
attribute ``sorites`` has ``scores="sigmoid"``.

Boxes are x0, y0, x1, y1 in pixels of the given image. Anything array-like is accepted, including torch
tensors and ``Outputs(boxes=...)``. Class numbers are indices into ``labels`` of the function's attribute
``sorites`` if it has one (names, or a label space such as "coco91"), otherwise into the labels of the suite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageU8, Model, Outputs
from sorites.core.compute.torch_tools import with_torchvision
from sorites.core.errors import SoritesError
from sorites.models.detectors.config import Classes, classes_of
from sorites.models.detectors.results import Found, as_boxes, of_each

FORMS = "(boxes, scores, labels), a dict of these, or rows of x0, y0, x1, y1, score, class"
KEYS = ("boxes", "scores", "labels")
# The image used to determine whether a function returns boxes.
GREY: ImageU8 = np.full((96, 128, 3), 128, np.uint8)


def with_boxes(model: Model, function: Callable[[list[NDArray[Any]]], Any]) -> Model:
    """Return the model as a detector if its function returns boxes for a grey image, otherwise unchanged."""
    try:
        result = with_torchvision(lambda: function([GREY.copy()]))
    except Exception:  # a user's function may raise anything; the error is raised when the model is used
        return model
    if not gives_boxes(result):
        _refuse_parts(model.name, result)
        return model
    declared = dict(getattr(function, "sorites", {}))
    classes = classes_of(declared.get("labels"), f"model {model.name}, its .sorites")
    scores = declared.get("scores", "softmax")
    if scores not in ("softmax", "sigmoid"):
        raise SoritesError(
            f"model {model.name}, its .sorites: scores must be softmax or sigmoid, got {scores!r}"
        )
    lock = threading.Lock()

    def forward(images: list[NDArray[Any]]) -> Outputs:
        with lock:
            results = function(images)
        return outputs_of(model.name, results, len(images), classes, scores == "sigmoid")

    return replace(model, forward=forward, output="boxes", labels=classes.names)


def gives_boxes(results: Any) -> bool:
    """Return whether the results for one image have one of the formats."""
    if isinstance(results, Outputs):
        return results.boxes is not None
    if isinstance(results, str | bytes | dict) or not hasattr(results, "__len__") or len(results) != 1:
        return False
    result = results[0]
    if isinstance(result, dict):
        return "boxes" in result
    if _is_triple(result):
        return True
    rows = _array(result)
    return rows is not None and (rows.size == 0 or (rows.ndim == 2 and rows.shape[1] == 6))


def _refuse_parts(name: str, results: Any) -> None:
    """Raise an error for results that start with boxes but have none of the formats: they are not logits."""
    result = results[0] if isinstance(results, list | tuple) and len(results) == 1 else ()
    first = _array(result[0]) if isinstance(result, list | tuple) and result else None
    if first is not None and first.ndim == 2 and first.shape[1] == 4:
        raise SoritesError(
            f"model {name}: expected {FORMS} from a detector for each image, got {len(result)} parts"
        )


def outputs_of(name: str, results: Any, count: int, classes: Classes, independent: bool = False) -> Outputs:
    """Return the boxes of each of ``count`` images, with their logits and features if all have them.

    Args:
        name: The name of the model, for messages.
        results: What it returned.
        count: The number of images.
        classes: The classes of the model.
        independent: Whether logits are those of sigmoids.

    Raises:
        SoritesError: The results have none of the formats.
    """
    if isinstance(results, Outputs):
        return replace(results, boxes=boxes_of(name, results.boxes, count, classes))
    found = _results(name, results, count, classes)
    return Outputs(
        boxes=[part.boxes for part in found],
        box_logits=of_each([part.logits for part in found]),
        box_features=of_each([part.features for part in found]),
        independent=independent,
    )


def boxes_of(name: str, results: Any, count: int, classes: Classes) -> list[tuple[Box, ...]]:
    """Return the boxes of each of ``count`` images.

    Raises:
        SoritesError: The results have none of the formats.
    """
    return [part.boxes for part in _results(name, results, count, classes)]


def _results(name: str, results: Any, count: int, classes: Classes) -> list[Found]:
    if results is None or isinstance(results, str | bytes | dict) or not hasattr(results, "__len__"):
        raise SoritesError(
            f"model {name}: expected a list with {FORMS} for each image, got {type(results).__name__}"
        )
    if len(results) != count:
        raise SoritesError(f"model {name}: expected boxes of {count} images, got {len(results)} results")
    return [_found(name, result, classes) for result in results]


def _found(name: str, result: Any, classes: Classes) -> Found:
    if isinstance(result, Sequence) and result and all(isinstance(box, Box) for box in result):
        return Found(tuple(result))
    boxes, scores, labels = _parts(name, result)
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all() and np.isfinite(labels).all()):
        raise SoritesError(f"model {name} returned boxes, scores or labels that are not finite")
    inverted = (boxes[:, 2] < boxes[:, 0]) | (boxes[:, 3] < boxes[:, 1])
    if inverted.any():
        first = tuple(boxes[inverted][0].tolist())
        raise SoritesError(
            f"model {name}: expected boxes as x0, y0, x1, y1 with x0 <= x1 and y0 <= y1, got {first}"
        )
    indices = classes.of(labels)
    valid = np.ones(len(boxes), bool) if classes.places is None else indices >= 0
    logits, features = (_further(name, result, key, len(boxes)) for key in ("logits", "features"))
    return Found(
        as_boxes(boxes[valid], scores[valid], indices[valid]),
        None if logits is None else logits[valid],
        None if features is None else features[valid],
    )


def _further(name: str, result: Any, key: str, count: int) -> NDArray[np.float32] | None:
    """Return the logits or features of boxes, N rows, if a result has them."""
    if not isinstance(result, dict) or key not in result:
        return None
    rows = _array(result[key])
    if rows is None or rows.ndim != 2 or len(rows) != count or not np.isfinite(rows).all():
        shape = "no numbers" if rows is None else f"shape {rows.shape}"
        raise SoritesError(f"model {name}: expected finite {key} of {count} boxes, one row each, got {shape}")
    return rows.astype(np.float32)


def _parts(name: str, result: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the boxes (N x 4), scores (N) and labels (N) of one image."""
    parts = _raw_parts(name, result)
    if parts[2] is None:
        raise SoritesError(
            f"model {name}: expected labels as whole numbers, indices of the labels, got {_few(result)}"
        )
    boxes, scores, labels = (np.zeros((0,)) if part is None else part for part in parts)
    boxes = boxes.reshape(0, 4) if boxes.size == 0 else boxes
    shapes = (boxes.shape, scores.shape, labels.shape)
    if any(part is None for part in parts) or shapes != ((len(boxes), 4), (len(boxes),), (len(boxes),)):
        actual = ", ".join(map(str, shapes))
        raise SoritesError(f"model {name}: expected boxes N x 4, scores N and labels N, got shapes {actual}")
    return boxes, scores, labels


def _raw_parts(name: str, result: Any) -> list[NDArray[Any] | None]:
    """Return boxes, scores and labels of any format; a part that is not numeric is None."""
    if isinstance(result, dict):
        if any(key not in result for key in KEYS):
            actual = ", ".join(map(str, result)) or "none"
            raise SoritesError(
                f"model {name}: expected a dict with the keys {', '.join(KEYS)}, got the keys {actual}"
            )
        return [_array(result[key]) for key in KEYS]
    if _is_triple(result):
        return [_array(part) for part in result]
    rows = _array(result)
    if rows is not None and rows.size == 0:
        rows = np.zeros((0, 6))
    if rows is None or rows.ndim != 2 or rows.shape[1] != 6:
        raise SoritesError(f"model {name}: expected {FORMS} for each image, got {_describe(result, rows)}")
    return [rows[:, :4], rows[:, 4], rows[:, 5]]


def _is_triple(result: Any) -> bool:
    if not isinstance(result, tuple | list) or len(result) != 3:
        return False
    boxes, scores, _ = (_array(part) for part in result)
    if boxes is None or scores is None:
        return False
    return scores.ndim == 1 and (boxes.size == 0 or (boxes.ndim == 2 and boxes.shape[1] == 4))


def _array(values: Any) -> NDArray[np.float64] | None:
    """Return numbers as an array, or None if they are not numeric or have no regular shape."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    if not isinstance(values, Iterable) and not hasattr(values, "__array__"):
        return None
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _few(result: Any) -> str:
    return repr(result["labels"] if isinstance(result, dict) else result[2])[:60]


def _describe(result: Any, rows: NDArray[Any] | None) -> str:
    if rows is None:
        return type(result).__name__
    masks = " (masks?)" if rows.ndim > 2 or (rows.ndim == 2 and min(rows.shape) > 16) else ""
    return f"numbers of shape {rows.shape}{masks}"
