"""Try a model on synthetic images before it is used: does it repeat itself, does it return probabilities?"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pil

from sorites.core import Graph, Model, Outputs
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import Notice

# The side in px of the trial images for models that do not declare the size of their input.
SIDE = 224
# Outputs are rounded to the magnitude of a row (a power of two) divided by 2 ** STEPS: 0.1 to 0.2 %.
STEPS = 9
# The maximum difference between two outputs for the same image, relative to the largest value.
SAME = 1e-4
# The maximum distance from one of the sum of a row of probabilities; half precision loses about half of it.
SUM_TOLERANCE = 1e-3
# Probabilities below this, the smallest normal float32, have the same logarithm.
TINY = float(np.finfo(np.float32).tiny)

Forward = Callable[[list[NDArray[Any]]], Outputs]


def trial_images(size: tuple[int, int] = (SIDE, SIDE)) -> list[NDArray[np.uint8]]:
    """Return three synthetic images with smooth patches and fine grain, to try a model on.

    Args:
        size: Height and width in pixels.

    Example:
        >>> [image.shape for image in trial_images((32, 48))]
        [(32, 48, 3), (32, 48, 3), (32, 48, 3)]
    """
    rng = np.random.default_rng(0)
    soft = [
        Pil.fromarray(rng.integers(0, 256, (7, 7, 3), np.uint8)).resize(
            (size[1], size[0]), Pil.Resampling.BICUBIC
        )
        for _ in "abc"
    ]
    return [np.clip(np.asarray(s) + rng.normal(0, 8, (*size, 3)), 0, 255).astype(np.uint8) for s in soft]


def run_trial(model: Model, one_by_one: bool = False) -> Outputs | None:
    """Return the outputs for the trial images, or None if the model fails, which is reported when it runs.

    Args:
        model: Any model.
        one_by_one: Pass the images one at a time instead of in one batch.
    """
    images = trial_images()
    batches = [[image] for image in images] if one_by_one else [images]
    try:
        with one_thread() if "torch" in sys.modules else contextlib.nullcontext():
            return Outputs.join([model(batch) for batch in batches])
    except Exception:  # user code may raise anything
        return None


def _rows(outputs: Outputs) -> list[NDArray[np.float64]]:
    """Return the outputs as arrays with one row per image; the boxes of an image are one row."""
    box_rows = [
        np.array(
            [len(boxes), *(value for box in boxes for value in (*box.xyxy, box.conf or 0.0, box.label))],
            np.float64,
        )
        for boxes in outputs.boxes or ()
    ]
    arrays = [np.asarray(part, np.float64) for part in (outputs.logits, outputs.features) if part is not None]
    return [*arrays, *(row.reshape(1, -1) for row in box_rows)]


def agree(first: Outputs, second: Outputs) -> bool:
    """Return whether two outputs for the same images are equal apart from rounding."""
    ours, theirs = _rows(first), _rows(second)
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and np.allclose(a, b, rtol=0, atol=SAME * float(np.abs(a).max(initial=0)), equal_nan=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def rounded(outputs: Outputs) -> str:
    """Return a text of the outputs that rounding in another batch or on another processor does not change."""
    return str([_steps(row) for part in _rows(outputs) for row in part.reshape(len(part), -1)])


def _steps(row: NDArray[np.float64]) -> list[int]:
    """Return two random projections of a row, rounded relative to its magnitude, and the magnitude."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, len(row)))
    size = float(np.sqrt(np.square(row).mean()))
    if not np.isfinite(size) or size == 0:
        return [0, 0]
    step = 2.0 ** (np.floor(np.log2(size)) - STEPS)
    return [round(float(total) / np.sqrt(len(row)) / step) for total in signs @ row] + [
        int(np.floor(np.log2(size)))
    ]


# Models that return probabilities.


def are_probabilities(values: Any) -> bool:
    """Return whether every row is in 0..1 and sums to one, for at least two classes.

    Logits that do so for one image by chance do not do so for all trial images.

    Example:
        >>> are_probabilities(np.array([[0.9, 0.1], [0.2, 0.8]]))
        True
        >>> are_probabilities(np.array([[0.9, 0.1], [2.0, -1.0]]))
        False
    """
    array = np.asarray(values, np.float64)
    in_range = bool(((array >= 0) & (array <= 1 + SUM_TOLERANCE)).all())
    return array.shape[1] > 1 and in_range and bool((abs(array.sum(axis=1) - 1) <= SUM_TOLERANCE).all())


def with_logits(model: Model, outputs: Outputs | None) -> Model:
    """Return a model whose ``forward`` gives logits: of probabilities, the logarithm is taken.

    Args:
        model: A model of an unknown scale.
        outputs: What it returned for the trial images; None if it failed.
    """
    logits = None if outputs is None else outputs.logits
    if model.output != "label" or logits is None or not are_probabilities(logits):
        return replace(model, scale="logits")
    graph = None if model.graph is None else functools.partial(_log_graph, model.graph)
    return note_probabilities(replace(model, forward=log_forward(model.forward), graph=graph))


def _log_graph(graph: Callable[[], Graph]) -> Graph:
    return replace(graph(), log=True)


def settle_scale(model: Model) -> Model:
    """Return the model with its scale, which trial images decide if it is not known."""
    if model.scale != "unknown" or model.output != "label":
        return model
    return with_logits(model, run_trial(model))


def note_probabilities(model: Model) -> Model:
    """Return the model with the scale of probabilities, and warn that their logarithm is used."""
    text = (
        f"model {model.name} returns probabilities (each row is in 0..1 and sums to one); their logarithm is"
        " used as logits"
    )
    warnings.warn(Notice(text, code="probabilities", model=model.name), stacklevel=3)
    return replace(model, scale="probabilities", input={**model.input, "outputs": "probabilities"})


def log_forward(forward: Forward) -> Forward:
    """Return a forward function that takes the logarithm of another one's class scores."""

    def take_log(images: list[NDArray[Any]]) -> Outputs:
        outputs = forward(images)
        if outputs.logits is None:
            return outputs
        return replace(outputs, logits=np.log(np.maximum(np.asarray(outputs.logits, np.float32), TINY)))

    return take_log
