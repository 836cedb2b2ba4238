"""The version of a model that brings none: the user's own code, the arrays it holds, and what it says of three pictures.

The answers enter rounded, as two sums of each row with fixed signs: sums in another order, on more threads or in another
batch, move them by a thousandth of a step, so that the version stays, while other weights move them by many steps.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs
from sorites.models._export import trial_pictures
from sorites.models._held import Held, held
from sorites.models._own_code import code_of
from sorites.rng import digest
from sorites.torch_tools import one_thread

SIZE = 20
"""Bytes of such a version."""
SIDE = 224
STEPS = 9
"""A step is the size of a row, as a power of two, divided by two to this power: between .1 and .2 %."""
SAME = 1e-4
"""The most, relative to the largest answer, by which two answers to one picture may differ."""


def versioned(model: Model, *things: Any) -> Model:
    """Return a model with a version made from what its answers depend on, as far as that can be known.

    The pictures are shown twice, together and one by one. Arrays that differ from one time to the other are not weights and are
    left out; if the answers differ, they are left out too and the model does not repeat itself.
    """
    callables = things or (model.forward, model.prepare)
    together, first = _answers(model, False), held(*callables)
    alone, second = _answers(model, True), held(*callables)
    repeats = together is None or alone is None or _agree(together, alone)
    said = _rounded(together) if together is not None and alone is not None and repeats else ""
    version = digest(code_of(first.code), _arrays(first, second), said, size=SIZE).hex()
    return replace(model, version=version, repeats=repeats)


def _answers(model: Model, one_by_one: bool) -> Outputs | None:
    """Return what a model gives for the trial pictures, or None if it fails on them; that is said when it is tried."""
    pictures = trial_pictures((SIDE, SIDE))
    batches = [[picture] for picture in pictures] if one_by_one else [pictures]
    try:
        with _one_thread():
            return Outputs.join([model(some) for some in batches])
    except Exception:  # a model of the user's raises whatever it likes
        return None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    with one_thread() if "torch" in sys.modules else contextlib.nullcontext():
        yield


def _rows(outputs: Outputs) -> list[NDArray[np.float64]]:
    """Return the answers as arrays with one row per picture, or per picture's boxes."""
    told = [[(*box.xyxy, box.conf or 0.0, box.label) for box in boxes] for boxes in outputs.boxes or ()]
    found = [np.array([len(boxes), *(number for box in boxes for number in box)], np.float64) for boxes in told]
    whole = [np.asarray(part, np.float64) for part in (outputs.logits, outputs.features) if part is not None]
    return [*whole, *(boxes.reshape(1, -1) for boxes in found)]


def _agree(one: Outputs, other: Outputs) -> bool:
    ours, theirs = _rows(one), _rows(other)
    return len(ours) == len(theirs) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=0, atol=SAME * float(np.abs(a).max(initial=0)), equal_nan=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def _rounded(outputs: Outputs) -> str:
    return str([_steps(row) for part in _rows(outputs) for row in part.reshape(len(part), -1)])


def _steps(row: NDArray[np.float64]) -> list[int]:
    """Return two sums of a row with fixed signs, in steps that follow the row's own size."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, len(row)))
    size = float(np.sqrt(np.square(row).mean()))
    if not np.isfinite(size) or size == 0:
        return [0, 0]
    step = 2.0 ** (np.floor(np.log2(size)) - STEPS)
    return [round(float(total) / np.sqrt(len(row)) / step) for total in signs @ row] + [int(np.floor(np.log2(size)))]


def _arrays(first: Held, second: Held) -> str:
    return str([(place, array.hex()) for place, array in first.arrays.items() if second.arrays.get(place) == array])
