"""From pictures to a model's outputs: batched, with the reason for each picture that the model could not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from sorites.core import Model, Outputs, Picture, Sample
from sorites.errors import SoritesError
from sorites.pipeline.box_cells import wrong_boxes
from sorites.pipeline.pictures import Shot, reason

Errors = list[str | None]
_halved: set[str] = set()
_features: WeakKeyDictionary[Model, tuple[int, ...] | None] = WeakKeyDictionary()
"""The shape of a model's features for one picture, as they came first."""


@dataclass(frozen=True)
class Answers:
    """The outputs of the pictures that a model could see, in order, and one error or None per picture."""

    outputs: Outputs
    errors: Errors

    @property
    def seen(self) -> list[int]:
        """List the places of the pictures that ``outputs`` are about."""
        return [i for i, error in enumerate(self.errors) if error is None]


def answers(model: Model, shots: Sequence[Shot], is_framed: Callable[[Sample], bool], width: int | None = None) -> Answers:
    """Show the pictures of some shots to a model; framed ones are only scaled, others are resized and cropped.

    An answer of another number of logits than ``width`` is an error.
    """
    errors: Errors = [(shot.error or "no picture") if shot.picture is None else None for shot in shots]
    parts: list[Outputs] = []
    order: list[int] = []
    for framed in (True, False):
        group = [
            (i, shot.picture) for i, shot in enumerate(shots) if shot.picture is not None and is_framed(shot.sample) is framed
        ]
        outputs, failed = ask(model, [picture for _, picture in group], framed, width)
        for (i, _), error in zip(group, failed, strict=True):
            errors[i] = error
        if seen := [i for i, _ in group if errors[i] is None]:
            parts.append(outputs)
            order += seen
    together = parts[0] if len(parts) == 1 else Outputs.join(parts)
    return Answers(together if order == sorted(order) else together[np.argsort(order)], errors)


def ask(model: Model, pictures: Sequence[Picture], framed: bool, width: int | None = None) -> tuple[Outputs, Errors]:
    """Return the outputs of the pictures that went well, and one error or None per picture.

    A model gets pictures of its own, which it may write into: that spoils no other model's. A batch that fails is tried again one
    picture at a time, so that a bad picture spoils no other.
    """
    if not pictures:
        return Outputs(), []
    try:
        together = model([np.array(picture) for picture in pictures], framed)
        if model.output == "boxes" and together.boxes is None:
            raise SoritesError(f"model {model.name} gave no boxes")
        if len(together) != len(pictures):
            raise SoritesError(f"model {model.name} gave {len(together)} outputs for {len(pictures)} pictures")
        _same_shapes(model, together, width)
    except (Exception, SystemExit) as error:
        if len(pictures) == 1:
            return Outputs(), [reason(error, f"model {model.name}")]
        if out_of_memory(error):
            _say_halved(model.name, len(pictures))
            half = len(pictures) // 2
            (first, failed), (second, more) = (ask(model, part, framed, width) for part in (pictures[:half], pictures[half:]))
            return Outputs.join([part for part in (first, second) if len(part)]), [*failed, *more]
        each = [ask(model, [picture], framed, width) for picture in pictures]
        return Outputs.join([outputs for outputs, (failed,) in each if failed is None]), [failed for _, (failed,) in each]
    return _finite(model, _single(together), width)


def out_of_memory(error: BaseException) -> bool:
    """Return whether a device had no memory for a batch, by the words that torch and ONNX Runtime use."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "failed to allocate memory" in said


def _say_halved(name: str, size: int) -> None:
    """Say once for each model that its batches do not fit."""
    if name in _halved:
        return
    _halved.add(name)
    said = f"model {name}: no memory for {size} pictures at once, they are shown in halves; give a smaller --batch"
    warnings.warn(said, stacklevel=2)


def _same_shapes(model: Model, outputs: Outputs, width: int | None) -> None:
    """Raise an error where a model gives another number of logits than ``width``, or other features than the first time."""
    logits, features = (None if part is None else np.shape(part)[1:] for part in (outputs.logits, outputs.features))
    if width is not None and logits is not None and logits != (width,):
        raise SoritesError(f"model {model.name} gave logits of shape {logits}, not ({width},) as before")
    first = _features.setdefault(model, features)
    if features != first:
        raise SoritesError(f"model {model.name} gave features of shape {features or 'none'}, not {first or 'none'} as before")


def _single(outputs: Outputs) -> Outputs:
    """Return the same outputs in single precision."""
    logits, features = (None if a is None else np.asarray(a, np.float32) for a in (outputs.logits, outputs.features))
    return replace(outputs, logits=logits, features=features)


def _finite(model: Model, outputs: Outputs, width: int | None) -> tuple[Outputs, Errors]:
    if model.output == "boxes":
        errors: Errors = [wrong_boxes(boxes, model, width) for boxes in outputs.boxes or ()]
    elif outputs.logits is None:
        return outputs, [None] * len(outputs)
    else:
        bad = f"model {model.name} gave logits that are not finite"
        errors = [None if fine else bad for fine in np.asarray(np.isfinite(outputs.logits).all(axis=1)).tolist()]
    good = [i for i, error in enumerate(errors) if error is None]
    return (outputs if len(good) == len(errors) else outputs[np.array(good, dtype=np.int64)]), errors
