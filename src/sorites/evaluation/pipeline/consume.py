"""Evaluate batches with the models of one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from sorites.core import Model
from sorites.evaluation.pipeline.batches import Batch
from sorites.evaluation.pipeline.finish import Answered, Look
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import evaluate_inputs, look_inside


@dataclass
class Counts:
    """What a pipeline has done.

    Attributes:
        images: Images that were made.
        repeated: Images that were made twice because a producer died.
        passes: Forward passes.
        bytes: Bytes of the inputs that were handed to models.
        busy_seconds: Seconds during which a device computed.
        seconds: Seconds since the first image arrived.
    """

    images: int = 0
    repeated: int = 0
    passes: int = 0
    bytes: int = 0
    busy_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def utilisation(self) -> float:
        """The fraction of the time during which the device computed."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0

    def add(self, other: Counts) -> None:
        """Add the counts of another device."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


class Consumer:
    """Evaluates batches with models; only its thread uses their device.

    Args:
        plan: The plan, which has the scorers and the number of labels.
        models: The models, on the device of this consumer.
        hand_on: Called with the answers to each batch.
    """

    def __init__(self, plan: Plan, models: Mapping[str, Model], hand_on: Callable[[Answered], None]) -> None:
        self._plan, self._models, self._hand_on = plan, models, hand_on
        self.counts = Counts()

    def __call__(self, batch: Batch | None) -> None:
        """Evaluate a batch; None ends the work."""
        for name in batch.models if batch is not None else ():
            assert batch is not None
            start = time.perf_counter()
            answered = self._answer(name, batch)
            self.counts.busy_seconds += time.perf_counter() - start
            self.counts.passes += 1
            self.counts.bytes += batch.nbytes
            self._hand_on(answered)

    def _answer(self, name: str, batch: Batch) -> Answered:
        model = self._models[name]
        outputs, errors = evaluate_inputs(model, batch.inputs, self._plan.width_of(name))
        seen = [array for array, error in zip(batch.inputs, errors, strict=True) if error is None]
        looks: dict[str, list[Look]] = {}
        for scorer_name, scorer in self._plan.scorers_of(name).items():
            if scorer.looks and seen:
                shown = [(array, True) for array in seen]
                looks[scorer_name] = look_inside(scorer, scorer_name, model, shown)
        return Answered(name, batch.places, outputs, errors, looks)
