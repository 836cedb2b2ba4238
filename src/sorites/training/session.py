"""A training in its folder: its steps, looks at the validation part, checkpoints, and the trained
model at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core.errors import Damaged, SoritesError
from sorites.core.progress import ToldBar
from sorites.io.files import read_json, write_bytes
from sorites.models.preprocess import Input
from sorites.models.trained import RECORD, UNFINISHED, Record, start, write
from sorites.training import optim as plateau
from sorites.training import steps as checkpoints
from sorites.training.batches import Batch, Prepared
from sorites.training.data import TrainingData, data_hash, images
from sorites.training.history import History
from sorites.training.recipe import Recipe, recorded
from sorites.training.steps import BrokenLoss, Steps, validate

# The folder of a training: whose it is, what it was begun with, and whether it is finished.


DATA, LABELS = "data.parquet", "labels.txt"
LIBRARIES = ("torch", "numpy", "pillow")
OTHER = "Choose another --out DIR, or type what it was begun with."


@dataclass(frozen=True)
class Begun:
    """The content of ``train.json``."""

    recipe: Recipe
    data_hash: str
    versions: dict[str, str]

    def other_versions(self) -> list[tuple[str, str, str]]:
        """Return the libraries that are others now: name, version then, version now."""
        return [
            (name, there, version(name)) for name, there in self.versions.items() if version(name) != there
        ]


def is_finished(folder: Path) -> bool:
    """Return whether the folder holds a trained model."""
    return (folder / RECORD).is_file()


def read(folder: Path) -> Begun | None:
    """Return what a training was begun with, or None where none was."""
    path = folder / UNFINISHED
    if not path.exists():
        return None
    try:
        held = read_json(path)
        recipe = recorded({"name": held["name"], "about": held.get("about", ""), **held["recipe"]}, str(path))
        return Begun(recipe, held["data_hash"], held["versions"])
    except (SoritesError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, error, "Choose another --out DIR") from error


def claim(folder: Path, recipe: Recipe, data: TrainingData, command: str = "") -> Begun:
    """Describe the training in its folder, or refuse a folder that was begun with another recipe or
    other images.
    """
    before = read(folder)
    if before is not None:
        refuse_other(before.recipe, recipe, folder)
    listed = data.listed(_known(folder))
    now = Begun(recipe, data_hash(listed), {name: version(name) for name in LIBRARIES})
    if before is not None:
        if before.data_hash != now.data_hash:
            raise SoritesError(
                f"{folder} was begun with other images: {_changed(_known(folder), listed)}. {OTHER}"
            )
        return before
    held = {
        "name": recipe.name,
        "about": recipe.about,
        "recipe": recipe.described(),
        "data_hash": now.data_hash,
    }
    held |= {"versions": now.versions, "command": command}
    buffer = _parquet(listed)
    write_bytes(buffer, folder / DATA)
    write_bytes(("\n".join(data.labels.ids) + "\n").encode(), folder / LABELS)
    write_bytes((json.dumps(held, indent=2) + "\n").encode(), folder / UNFINISHED)
    return now


def _parquet(frame: pl.DataFrame) -> bytes:
    import io

    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _known(folder: Path) -> pl.DataFrame | None:
    try:
        return pl.read_parquet(folder / DATA, glob=False) if (folder / DATA).exists() else None
    except (pl.exceptions.PolarsError, OSError):
        return None


def _changed(before: pl.DataFrame | None, now: pl.DataFrame) -> str:
    """Say in a few words what is different about the images."""
    if before is None or before.height != now.height:
        return f"{'?' if before is None else before.height} images then, {now.height} now"
    for then, here in zip(before.iter_rows(named=True), now.iter_rows(named=True), strict=True):
        if (then["part"], then["id"]) != (here["part"], here["id"]):
            return f"{then['id']} then, {here['id']} now"
        if then["label"] != here["label"]:
            return f"{then['id']} had the label {then['label']} then and has {here['label']} now"
        if then["content"] != here["content"]:
            return f"{then['id']} is a different image now"
    return "their order changed"


def refuse_other(then: Recipe, now: Recipe, folder: Path) -> None:
    """Refuse a folder whose training was begun with another recipe, and name the first key that differs."""
    theirs, ours = (dict(_flat(recipe.described())) for recipe in (then, now))
    for key in dict.fromkeys([*ours, *theirs]):
        if theirs.get(key) != ours.get(key):
            begun = is_finished(folder) or (folder / checkpoints.FILE).exists()
            what = OTHER if begun else f"Nothing is trained in it yet: delete it. {OTHER}"
            raise SoritesError(
                f"{folder} was begun with another recipe: {key} is {theirs.get(key)!r} there and"
                f" {ours.get(key)!r} now. {what}"
            )


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted key; lists are taken apart by number."""
    items = (
        data.items()
        if isinstance(data, Mapping)
        else enumerate(data)
        if isinstance(data, list | tuple)
        else ()
    )
    if not items and not isinstance(data, Mapping | list | tuple):
        yield path, data
    for key, value in items:
        yield from _flat(value, f"{path}.{key}" if path else str(key))


# The file that lists the images at which a training failed.
BROKEN = "broken.json"


class Training:
    """A training in its folder, from where it stands to its end."""

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        device: str,
        workers: int,
        say: Callable[[str], None],
        command: str = "",
    ) -> None:
        self.recipe, self.folder, self.workers, self.say = recipe, folder, workers, say
        self.data = images(recipe)
        classes, examples = self.data.labels.ids, _examples(self.data)
        network = start(
            recipe.model, classes, recipe.data.size, recipe.seed, examples, keep_head=recipe.keep_head
        )
        self.network = network
        self.steps = Steps(recipe, network, self.data, device)
        self.begun = claim(folder, recipe, self.data, command)
        for name, there, here in self.begun.other_versions():
            say(f"it was begun with {name} {there}, and goes on with {here}: the weights may differ")
        self.validation = (
            None
            if self.data.validation is None
            else Prepared(self.data.validation, network.wants, self.data.framed)
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
        state = {
            "step": self.step,
            "best": self.best,
            "history": self.history.state(),
            "scaler": self.steps.scaler_state(),
        }
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
        repeatable = torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=True
        )
        try:
            with repeatable:
                self.take_all(batches, tick, checkpoint_seconds)
            self._check_weights()
        except BrokenLoss as error:
            raise SoritesError(self._broken(error)) from error
        finally:
            batches.close()
        self._finish()

    def take_all(
        self, batches: Iterable[Batch], tick: Callable[[int, str], None], checkpoint_seconds: float
    ) -> None:
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
                checkpoints.save(
                    self.folder / checkpoints.BEST, self.network.module, None, {"step": self.step}
                )
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
            json.dumps({"step": error.step + 1, "why": str(error), "images": ids}, indent=2).encode(),
            self.folder / BROKEN,
        )
        shown = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        held = self.folder / checkpoints.FILE
        kept = (
            f"The last good checkpoint is kept in {held}" if held.exists() else "There is no checkpoint yet"
        )
        return (
            f"{error} at step {error.step + 1} of {self.steps.total} (images {shown}; all in"
            f" {self.folder / BROKEN}). {kept}. Try a lower learning rate in another folder: --set"
            " optimiser.lr=..., or a warm-up: --set schedule.warm_up=1"
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
            images={"training": len(self.data.train)}
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
        return {
            "accuracy": rows[-1]["validation_accuracy"],
            **{key: rows[-1][key] for key in ("n", "low", "high")},
        }


def _examples(data: TrainingData) -> Callable[[Input, int], list[Any]]:
    """Return a function that gives some training images at an input's size: a fixed choice,
    whatever the seed.
    """

    def some(wants: Input, count: int) -> list[Any]:
        prepared = Prepared(data.train, wants, data.framed)
        places = np.arange(min(count, len(prepared)))
        return list(prepared.several(places, 0, 0))

    return some
