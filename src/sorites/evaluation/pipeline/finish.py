"""Collect the outputs of the images of a task, which arrive in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sorites.core import Outputs
from sorites.evaluation.images import Shot
from sorites.evaluation.pipeline.batches import Place
from sorites.evaluation.pipeline.jobs import Made
from sorites.evaluation.predict import Answers, Errors, Looked

# What a scorer sees inside a model for one image, or None and an error.
Look = Looked


@dataclass(frozen=True)
class Answered:
    """The answers of a model to a batch: outputs of the images that succeeded, an error or None per image,
    and what its scorers see inside the model for those that succeeded.
    """

    model: str
    places: Sequence[Place]
    outputs: Outputs
    errors: Errors
    looks: Mapping[str, Sequence[Look]] = field(default_factory=dict)


@dataclass
class _Part:
    """Outputs of one model for some images of a task."""

    indices: list[int]
    outputs: Outputs
    looks: dict[str, list[Look]]


class Collected:
    """The images and outputs of one task.

    Args:
        shots: The images of the task, without pixels.
        models: The models that evaluate it.
    """

    def __init__(self, shots: list[Shot], models: Sequence[str]) -> None:
        self.shots, self.models = shots, models
        self._parts: dict[str, list[_Part]] = {name: [] for name in models}
        self._errors: dict[str, Errors] = {name: [None] * len(shots) for name in models}
        self._left = len(shots) * (1 + len(models))

    @property
    def is_complete(self) -> bool:
        """True if every image has arrived and every model has answered."""
        return self._left == 0

    def note(self, made: Made, models: Sequence[tuple[str, ...]]) -> None:
        """Note that an image was made.

        Args:
            made: The image.
            models: The models of each of its inputs.
        """
        shot = self.shots[made.index]
        self.shots[made.index] = replace(
            shot, error=made.error, chosen_params=made.chosen_params, ground_truth=made.ground_truth
        )
        self._left -= 1
        if made.error is not None:
            for name in self.models:
                self._fail(name, made.index, made.error)
            return
        for names, given in zip(models, made.inputs, strict=True):
            if isinstance(given, str):
                for name in names:
                    self._fail(name, made.index, f"model {name}: {given}")

    def _fail(self, model: str, index: int, error: str) -> None:
        self._errors[model][index] = error
        self._left -= 1

    def add(self, answered: Answered, rows: Sequence[int]) -> None:
        """Add the answers to some images.

        Args:
            answered: The answers to a batch.
            rows: The positions in the batch of the images of this task.
        """
        good = np.cumsum([error is None for error in answered.errors]) - 1
        indices, kept = [], []
        for row in rows:
            index, error = answered.places[row][1], answered.errors[row]
            if error is not None:
                self._fail(answered.model, index, error)
                continue
            indices.append(index)
            kept.append(int(good[row]))
            self._left -= 1
        if indices:
            looks = {name: [seen[i] for i in kept] for name, seen in answered.looks.items()}
            part = _Part(indices, answered.outputs[np.array(kept)], looks)
            self._parts[answered.model].append(part)

    def answers(self, model: str) -> tuple[Answers, dict[str, list[Look]]]:
        """Return the answers of a model in the order of the images, and what scorers see inside it."""
        parts = self._parts[model]
        order = np.argsort([index for part in parts for index in part.indices])
        outputs = Outputs.join([part.outputs for part in parts])
        looks = {}
        for scorer in parts[0].looks if parts else ():
            rows = [row for part in parts for row in part.looks[scorer]]
            looks[scorer] = [rows[i] for i in order]
        return Answers(outputs[order] if len(order) else outputs, self._errors[model]), looks
