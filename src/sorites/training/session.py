"""A training in its folder: its steps, looks at the validation part, checkpoints, and the trained model at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.models._networks import start
from sorites.models._preprocess import Input
from sorites.models._trained_folder import Record, write
from sorites.progress import ToldBar
from sorites.training import checkpoints, plateau
from sorites.training import folder as folders
from sorites.training.batches import Batch, Prepared
from sorites.training.data import TrainingData, pictures
from sorites.training.history import History
from sorites.training.recipe import Recipe
from sorites.training.steps import BrokenLoss, Steps
from sorites.training.validation import validate

BROKEN = "broken.json"
"""The file that lists the pictures at which a training failed."""


class Training:
    """A training in its folder, from where it stands to its end."""

    def __init__(
        self, recipe: Recipe, folder: Path, device: str, workers: int, say: Callable[[str], None], command: str = ""
    ) -> None:
        self.recipe, self.folder, self.workers, self.say = recipe, folder, workers, say
        self.data = pictures(recipe)
        classes, examples = self.data.labels.ids, _examples(self.data)
        network = start(recipe.model, classes, recipe.data.size, recipe.seed, examples, keep_head=recipe.keep_head)
        self.network = network
        self.steps = Steps(recipe, network, self.data, device)
        self.begun = folders.claim(folder, recipe, self.data, command)
        for name, there, here in self.begun.other_versions():
            say(f"it was begun with {name} {there}, and goes on with {here}: the weights may differ")
        self.validation = (
            None if self.data.validation is None else Prepared(self.data.validation, network.wants, self.data.framed)
        )
        self.history = History(self.steps.total)
        self.best: dict[str, Any] = {"accuracy": -1.0, "step": 0, "since": 0}
        self.step = 0
        self._restore()

    def _restore(self) -> None:
        path = self.folder / checkpoints.FILE
        if not path.exists():
            self.steps.enter(0)
            return
        tensors, state = checkpoints.read(path)
        self.step, self.best = state["step"], state["best"]
        self.history.restore(state["history"])
        self._look_for_plateau()
        self.steps.enter(self.step, (tensors, state))
        self.say(f"going on after step {self.step} of {self.steps.total}")

    def checkpoint(self) -> None:
        """Write where the training stands; the history beside it is for those who look while it runs."""
        self._check_weights()
        state = {"step": self.step, "best": self.best, "history": self.history.state(), "scaler": self.steps.scaler_state()}
        checkpoints.save(self.folder / checkpoints.FILE, self.network.module, self.steps.optimiser, state)
        self.history.write(self.folder)

    def _check_weights(self) -> None:
        if not self.steps.is_finite():
            raise BrokenLoss("some weights are no longer finite", self.step - 1)

    def run(self, bar: ToldBar, checkpoint_seconds: float) -> None:
        """Take all steps that are left, then write the model."""
        import torch

        tick = bar("training", self.steps.total, self.step)
        stopped = self._is_patience_over()
        batches = self.steps.batches.between(self.step, 0 if stopped else self.steps.total, self.workers)
        repeatable = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True)
        try:
            with repeatable:
                self.take_all(batches, tick, checkpoint_seconds)
            self._check_weights()
        except BrokenLoss as error:
            raise SoritesError(self._broken(error)) from error
        finally:
            batches.close()
        self._finish()

    def take_all(self, batches: Iterable[Batch], tick: Callable[[int, str], None], checkpoint_seconds: float) -> None:
        """Take the steps of some batches, with validation, history and checkpoints on the way."""
        written = time.monotonic()
        for batch in batches:
            taken = self.steps.take(batch)
            self.step = batch.step + 1
            self.history.add(batch.step, *taken, self.steps.rate, self.epoch)
            validated = self._validate_if_due()
            tick(1, self._text())
            if time.monotonic() - written > checkpoint_seconds or validated:
                self.checkpoint()
                written = time.monotonic()
            if validated and self._is_patience_over():
                self.say(f"stopped after step {self.step}: the validation accuracy no longer rises")
                break

    @property
    def epoch(self) -> float:
        return self.step / self.steps.batches.per_epoch

    def _text(self) -> str:
        return self.history.text(self.best.get("last"))

    def _validate_if_due(self) -> bool:
        if self.validation is None or not self.steps.is_validation_due(self.step):
            return False
        loss, right, n = validate(self.network, self.validation, self.steps)
        self.history.validated(self.step, self.epoch, loss, right, n)
        self._look_for_plateau()
        accuracy = right / n
        self.best["last"] = accuracy
        if accuracy > self.best["accuracy"]:
            self.best |= {"accuracy": accuracy, "step": self.step, "since": 0, "right": right, "n": n}
            if self.recipe.early_stopping is not None:
                checkpoints.save(self.folder / checkpoints.BEST, self.network.module, None, {"step": self.step})
        else:
            self.best["since"] += 1
        return True

    def _look_for_plateau(self) -> None:
        """Let the rate fall where the schedule asks for that and the validation loss no longer falls."""
        stretch = next((s for s in self.steps.stretches if self.step < s.last), self.steps.stretches[-1])
        since = [row for row in self.history.rows if "validation_loss" in row and row["step"] > stretch.first]
        self.steps.plateau = plateau.share([row["validation_loss"] for row in since], stretch.stage.schedule)

    def _is_patience_over(self) -> bool:
        asked = self.recipe.early_stopping
        return asked is not None and self.best["since"] >= asked.patience

    def _broken(self, error: BrokenLoss) -> str:
        """Say where a training broke off, and what to do."""
        ids = self.steps.batches.ids(error.step)
        write_bytes(
            json.dumps({"step": error.step + 1, "why": str(error), "pictures": ids}, indent=2).encode(), self.folder / BROKEN
        )
        shown = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        held = self.folder / checkpoints.FILE
        kept = f"The last good checkpoint is kept in {held}" if held.exists() else "There is no checkpoint yet"
        return (
            f"{error} at step {error.step + 1} of {self.steps.total} (pictures {shown}; all in {self.folder / BROKEN}). {kept}. "
            "Try a lower learning rate in another folder: --set optimiser.lr=..., or a warm-up: --set schedule.warm_up=1"
        )

    def _finish(self) -> None:
        """Write the trained model; what only a training in progress needs is deleted after that."""
        module, step = self.network.module, self.step
        if self.recipe.early_stopping is not None and (self.folder / checkpoints.BEST).exists():
            tensors, state = checkpoints.read(self.folder / checkpoints.BEST)
            checkpoints.restore_module(module, tensors)
            step = state["step"]
        self.history.write(self.folder)
        record = Record(
            network=self.network.layers,
            classes=self.data.labels.ids,
            input=self.network.wants,
            recipe={"name": self.recipe.name, **self.recipe.described()},
            recipe_hash=self.recipe.hash(),
            data_hash=self.begun.data_hash,
            pictures={"training": len(self.data.train)}
            | ({} if self.validation is None else {"validation": len(self.validation)}),
            parent=self.network.parent,
            steps=step,
            validation=self._validated(step),
            versions=self.begun.versions,
        )
        write(self.folder, record, module.state_dict())
        for name in (checkpoints.FILE, checkpoints.BEST, BROKEN):
            (self.folder / name).unlink(missing_ok=True)

    def _validated(self, step: int) -> dict[str, Any] | None:
        rows = [row for row in self.history.rows if "validation_accuracy" in row and row["step"] == step]
        if not rows:
            return None
        return {"accuracy": rows[-1]["validation_accuracy"], **{key: rows[-1][key] for key in ("n", "low", "high")}}


def _examples(data: TrainingData) -> Callable[[Input, int], list[Any]]:
    """Return a function that gives some training pictures at an input's size: a fixed choice, whatever the seed."""

    def some(wants: Input, count: int) -> list[Any]:
        prepared = Prepared(data.train, wants, data.framed)
        places = np.arange(min(count, len(prepared)))
        return list(prepared.several(places, 0, 0))

    return some
