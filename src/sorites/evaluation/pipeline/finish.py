"""Collect the outputs of tasks, and turn a complete task into rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sorites.core import Outputs, Scorer
from sorites.evaluation.images import Shot, planned_shots
from sorites.evaluation.pipeline.batches import Place
from sorites.evaluation.pipeline.jobs import Made
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import (
    Answers,
    Errors,
    Predictions,
    Scored,
    SeenImages,
    Verdicts,
    score_looked,
    score_together,
)
from sorites.evaluation.worker import Task

# What a scorer sees inside a model for one image, or None and an error.
Look = tuple[Any, str | None]


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
    """The images and outputs of one task."""

    def __init__(self, plan: Plan, task: Task) -> None:
        self._plan, self._task = plan, task
        self._shots: list[Shot] = planned_shots(plan, task.unit)
        self._parts: dict[str, list[_Part]] = {name: [] for name in task.models}
        self._errors: dict[str, Errors] = {name: [None] * len(self._shots) for name in task.models}
        self._left = len(self._shots) * (1 + len(task.models))

    @property
    def is_complete(self) -> bool:
        """Whether every image has arrived and every model has answered."""
        return self._left == 0

    def note(self, made: Made, models: Sequence[tuple[str, ...]]) -> None:
        """Note that an image was made.

        Args:
            made: The image.
            models: The models of each of its inputs.
        """
        shot = self._shots[made.index]
        self._shots[made.index] = replace(
            shot, error=made.error, chosen_params=made.chosen_params, ground_truth=made.ground_truth
        )
        self._left -= 1
        if made.error is not None:
            for name in self._task.models:
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

    def predictions(self) -> dict[str, Predictions]:
        """Return the rows of the complete task by model."""
        seen = SeenImages(self._plan)
        ids = seen.add(self._shots)
        rows = seen.rows()
        return {name: self._of(name, ids).predictions(rows) for name in self._task.models}

    def _of(self, name: str, ids: Sequence[str]) -> Verdicts:
        verdicts = Verdicts(self._plan, self._plan.models[name])
        parts = self._parts[name]
        order = np.argsort([index for part in parts for index in part.indices])
        outputs = Outputs.join([part.outputs for part in parts])
        looks = {
            scorer: [rows[i] for i in order]
            for scorer in (parts[0].looks if parts else ())
            if (rows := [row for part in parts for row in part.looks[scorer]])
        }

        def score(name: str, scorer: Scorer, outputs: Outputs) -> list[Scored]:
            if scorer.looks:
                return score_looked(name, scorer, outputs, looks.get(name, []))
            return score_together(name, scorer, outputs)

        ordered = outputs[order] if len(order) else outputs
        verdicts.add(self._shots, ids, Answers(ordered, self._errors[name]), score)
        return verdicts
