"""Evaluate batches with the models of one device."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from sorites.core import Model
from sorites.core.compute.passes import Call, Staged, Wait
from sorites.evaluation.pipeline.batches import Batch
from sorites.evaluation.pipeline.finish import Answered, Look
from sorites.evaluation.pipeline.stages import Stage
from sorites.evaluation.predict import evaluate_inputs, look_inside

# Passes that are started before the outputs of the first are awaited.
PASSES_AHEAD = 2


@dataclass
class Counts:
    """Counts of the work of a pipeline.

    Attributes:
        images: Images that were made.
        decoded: How often images of the source were decoded.
        repeated: Images that were made twice because a producer died.
        passes: Forward passes.
        bytes: Bytes of the inputs that were handed to models.
        busy_seconds: Seconds during which a device had work.
        seconds: Seconds since the first image arrived, times the number of devices.
    """

    images: int = 0
    decoded: int = 0
    repeated: int = 0
    passes: int = 0
    bytes: int = 0
    busy_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def utilisation(self) -> float:
        """The fraction of the time during which the devices had work."""
        return self.busy_seconds / self.seconds if self.seconds else 0.0

    def add(self, other: Counts) -> None:
        """Add the counts of another device."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass
class _Pass:
    """A pass that was started: its batch, and how to get its outputs."""

    model: str
    batch: Batch
    wait: Wait | None
    start: float


class Consumer:
    """Evaluates batches with models; only its thread uses their device.

    The next pass is started before the outputs of the last one are awaited, so that the device does not wait
    for Python.

    Args:
        stage: What is evaluated.
        models: The models, on the device of this consumer.
        hand_on: Called with the answers to each batch.
    """

    def __init__(
        self, stage: Stage, models: Mapping[str, Model], hand_on: Callable[[Answered], None]
    ) -> None:
        self._stage, self._models, self._hand_on = stage, models, hand_on
        self._started: deque[_Pass] = deque()
        self._free_since = 0.0
        self.counts = Counts()

    def __call__(self, batch: Batch | None) -> None:
        """Evaluate a batch; None ends the work."""
        for name in batch.models if batch is not None else ():
            assert batch is not None
            self._start(name, batch)
            while len(self._started) >= PASSES_AHEAD or (self._started and not self._is_staged(name)):
                self._end()
        if batch is None:
            self.wait()

    def wait(self) -> None:
        """Wait for all passes that were started."""
        while self._started:
            self._end()

    def _is_staged(self, name: str) -> bool:
        return isinstance(self._models[name].forward, Staged)

    def _start(self, name: str, batch: Batch) -> None:
        start, forward, wait = time.perf_counter(), self._models[name].forward, None
        if isinstance(forward, Staged):
            try:
                wait = forward.start(batch.inputs)
            except Exception:  # it is evaluated again with all care when its turn comes
                wait = None
        self._started.append(_Pass(name, batch, wait, start))

    def _end(self) -> None:
        """Wait for the first pass that was started, and hand on its answers."""
        done = self._started.popleft()
        answered = self._answer(done)
        now = time.perf_counter()
        self.counts.busy_seconds += now - max(done.start, self._free_since)
        self._free_since = now
        self.counts.passes += 1
        self.counts.bytes += done.batch.nbytes
        if done.model == done.batch.models[-1]:
            done.batch.release()
        self._hand_on(answered)

    def _answer(self, done: _Pass) -> Answered:
        name, inputs = done.model, done.batch.inputs
        model = self._models[name]
        outputs, errors = evaluate_inputs(model, inputs, self._stage.width_of(name), _first(done.wait))
        done.wait = None
        scorers = {key: scorer for key, scorer in self._stage.looking(name).items() if scorer.looks}
        looks: dict[str, list[Look]] = {}
        if scorers and len(outputs):
            shown = [(array, True) for array, error in zip(inputs, errors, strict=True) if error is None]
            looks = {key: look_inside(scorer, key, model, shown) for key, scorer in scorers.items()}
        return Answered(name, done.batch.places, outputs, errors, looks)


def _first(wait: Wait | None) -> Call | None:
    return None if wait is None else lambda _: wait()
