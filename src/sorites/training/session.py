"""A training in its folder: metadata, steps, validation, checkpoints, and the trained model at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core.compute.arithmetic import exact
from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import option
from sorites.core.progress import TextBar
from sorites.core.rng import digest
from sorites.io.digests import digest_of, read_sealed, write_sealed
from sorites.io.files import write_bytes
from sorites.io.listed import digests_of, read_verified
from sorites.io.tables import parquet_bytes
from sorites.models.preprocess import Input
from sorites.models.trained import DATA, RECORD, UNFINISHED, Network, Record, start, write
from sorites.training import checkpoints, history
from sorites.training.batches import Batch, Prepared
from sorites.training.checkpoints import Best, State
from sorites.training.data import TrainingData, data_hash, images
from sorites.training.detection.start import start_detector
from sorites.training.detection.steps import DetectorSteps
from sorites.training.history import History
from sorites.training.loader import THREADS, chosen_kind
from sorites.training.optim import plateau_multiplier
from sorites.training.processes import ALONE, Processes
from sorites.training.recipe import Recipe, recorded
from sorites.training.steps import BrokenLoss, Steps, Taken

# The training folder: train.json, the list of images, and the check that both still match.


LABELS = "labels.txt"
RESTORE = f"Restore it from a backup, or use another {option('out', 'DIR')}."
WRITTEN_AGAIN = "Delete it and repeat the command, which writes it again."
LIBRARIES = ("torch", "numpy", "pillow")
USE_OTHER_FOLDER = f"Use another {option('out', 'DIR')}, or the recipe and images it was started with."


@dataclass(frozen=True)
class TrainingRecord:
    """The content of ``train.json``: what the training was started with, and the digests of its lists."""

    recipe: Recipe
    data_hash: str
    versions: dict[str, str]
    files: dict[str, str]

    @property
    def hash(self) -> str:
        """A hash of recipe and images, which the checkpoints contain."""
        return digest(self.recipe.hash(), self.data_hash).hex()

    def other_versions(self) -> list[tuple[str, str, str]]:
        """Return libraries whose version changed: name, version at the start, version now."""
        return [
            (name, recorded_version, version(name))
            for name, recorded_version in self.versions.items()
            if version(name) != recorded_version
        ]


def is_finished(folder: Path) -> bool:
    """Return whether a training folder has its final record."""
    return (folder / RECORD).is_file()


def read(folder: Path) -> TrainingRecord | None:
    """Return what a training was started with, or None for a new folder."""
    path = folder / UNFINISHED
    if not path.exists():
        return None
    content = read_sealed(path, RESTORE)
    try:
        recipe = recorded(
            {"name": content["name"], "about": content.get("about", ""), **content["recipe"]}, str(path)
        )
        return TrainingRecord(recipe, content["data_hash"], content["versions"], content["files"])
    except (SoritesError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, error, RESTORE) from error


def claim(folder: Path, recipe: Recipe, data: TrainingData, command: str = "") -> TrainingRecord:
    """Write a new training's metadata, or check that an existing folder has the same recipe and images.

    Raises:
        SoritesError: If the folder was started with a different recipe or different images.
    """
    before = read(folder)
    if before is not None:
        check_same_recipe(before.recipe, recipe, folder)
    recorded_images = None if before is None else _recorded_images(folder, before)
    listed = data.listed(recorded_images)
    if before is not None and before.data_hash != data_hash(listed):
        raise SoritesError(
            f"{folder} was started with different images: "
            f"{_describe_change(recorded_images, listed)}. {USE_OTHER_FOLDER}"
        )
    lists = {DATA: parquet_bytes(listed), LABELS: ("\n".join(data.labels.ids) + "\n").encode()}
    files = {name: digest_of(content) for name, content in lists.items()}
    versions = {name: version(name) for name in LIBRARIES}
    now = before or TrainingRecord(recipe, data_hash(listed), versions, files)
    _write_lists(folder, now, lists, before is None, command)
    return now


def _write_lists(
    folder: Path, record: TrainingRecord, lists: Mapping[str, bytes], is_new: bool, command: str
) -> None:
    """Write the lists that are missing, and ``train.json`` of a new training.

    A list is written again only with the content that ``train.json`` has a digest of.
    """
    for name, content in lists.items():
        if (not (folder / name).exists() and record.files.get(name) == digest_of(content)) or is_new:
            write_bytes(content, folder / name)
    if is_new:
        about = {"name": record.recipe.name, "about": record.recipe.about}
        causes = {"recipe": record.recipe.described(), "data_hash": record.data_hash}
        further = {"versions": record.versions, "command": command, "files": record.files}
        write_sealed({**about, **causes, **further}, folder / UNFINISHED)


def _recorded_images(folder: Path, record: TrainingRecord) -> pl.DataFrame | None:
    """Return the list of images when the training started, or None if the file was deleted."""
    if not (folder / DATA).exists():
        return None
    return pl.read_parquet(read_verified(folder / DATA, digests_of(record.files, DATA), WRITTEN_AGAIN))


def _describe_change(before: pl.DataFrame | None, now: pl.DataFrame) -> str:
    """Describe the first difference between two lists of images."""
    if before is None or before.height != now.height:
        return f"{'?' if before is None else before.height} images at the start, {now.height} now"
    for then, here in zip(before.iter_rows(named=True), now.iter_rows(named=True), strict=True):
        if (then["part"], then["id"]) != (here["part"], here["id"]):
            return f"{then['id']} at the start, {here['id']} now"
        if then["label"] != here["label"]:
            return f"the label of {then['id']} was {then['label']} and is {here['label']} now"
        if then.get("boxes") != here.get("boxes"):
            return f"the boxes of {then['id']} have changed"
        if then["content"] != here["content"]:
            return f"{then['id']} has changed"
    return "their order changed"


def check_same_recipe(then: Recipe, now: Recipe, folder: Path) -> None:
    """Raise an error that names the first differing key if two recipes differ."""
    theirs, ours = (dict(_flatten(recipe.described())) for recipe in (then, now))
    for key in dict.fromkeys([*ours, *theirs]):
        if theirs.get(key) != ours.get(key):
            has_progress = is_finished(folder) or checkpoints.checkpoints_in(folder, checkpoints.CHECKPOINT)
            advice = (
                USE_OTHER_FOLDER
                if has_progress
                else f"It has no checkpoint yet, so it can be deleted. {USE_OTHER_FOLDER}"
            )
            raise SoritesError(
                f"{folder} was started with a different recipe: {key} is {theirs.get(key)!r} there "
                f"and {ours.get(key)!r} now. {advice}"
            )


def _flatten(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted key; list items are keyed by number."""
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
        yield from _flatten(value, f"{path}.{key}" if path else str(key))


# Lists the images of the step at which a training failed.
FAILED_IMAGES_FILE = "broken.json"


def delete_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a finished training; a process may have been killed before it did so."""
    for kind in (checkpoints.CHECKPOINT, checkpoints.BEST):
        checkpoints.drop(folder, kind)


# Off the CPU the numbers of this many steps are read together, since reading waits for the device.
STEPS_PER_READ = 20


class Training:
    """A training in its folder; ``run`` takes it from its current step to the end.

    Args:
        recipe: The recipe.
        folder: The folder.
        device: The torch device.
        workers: The number of threads or processes that decode images.
        say: Receives messages.
        command: The command that started it, for its record.
        loader: ``threads`` or ``processes``; default processes with a GPU.
        processes: The processes of this training; the first one writes the folder.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        device: str,
        workers: int,
        say: Callable[[str], None],
        command: str = "",
        loader: str | None = None,
        processes: Processes = ALONE,
    ) -> None:
        self.recipe, self.folder, self.workers, self.say = recipe, folder, workers, say
        self.processes = processes
        self.data = images(recipe)
        self.network, self.steps = _started(recipe, self.data, device, processes)
        self.loader = self._chosen_loader(loader)
        if processes.is_first:
            self.begun = claim(folder, recipe, self.data, command)
        processes.wait()
        if not processes.is_first:
            self.begun = claim(folder, recipe, self.data, command)
        for name, before, now in self.begun.other_versions():
            say(f"{name} was {before} when this training started and is {now} now; the weights may differ")
        self.validation = (
            None if self.data.validation is None else self.steps.prepared(self.data, self.data.validation)
        )
        self.history = History(self.steps.total)
        self.best = Best()
        self.step = 0
        self._unread: list[Taken] = []
        self._read_at = time.perf_counter()
        self._restore()

    def _chosen_loader(self, asked: str | None) -> str:
        batches = self.steps.batches
        if asked is None and batches.prepared.is_cached and batches.augment is None:
            return THREADS  # images are decoded once and then copied
        return chosen_kind(asked, self.steps.device.type, self.workers, batches.maker)

    def _restore(self) -> None:
        found = checkpoints.checkpoints_in(self.folder, checkpoints.CHECKPOINT)
        if not found:
            self.steps.enter(0)
            return
        tensors, state = checkpoints.read(found[max(found)], self.begun.hash)
        self.step, self.best = state.step, state.best
        if state.history is not None:
            self.history.restore(state.history)
        self._update_plateau()
        self.steps.enter(self.step, (tensors, state))
        self.say(f"resuming after step {self.step} of {self.steps.total}")

    def checkpoint(self) -> None:
        """Write a checkpoint, and the history for users who watch the training."""
        self._read()
        self._check_weights()
        if not self.processes.is_first:
            return
        state = State(
            step=self.step,
            training=self.begun.hash,
            best=self.best,
            history=self.history.state(),
            scaler=self.steps.scaler_state(),
        )
        checkpoints.save(
            self.folder, checkpoints.CHECKPOINT, self.network.module, self.steps.optimiser, state
        )
        best = checkpoints.checkpoints_in(self.folder, checkpoints.BEST)
        checkpoints.drop(self.folder, checkpoints.BEST, best.get(self.best.step))
        self.history.write(self.folder)

    def _check_weights(self) -> None:
        if not self.steps.is_finite():
            raise BrokenLoss("some weights are not finite", self.step - 1)

    def run(self, bar: TextBar, checkpoint_seconds: float) -> None:
        """Run the remaining steps, then write the model."""
        tick = bar("training", self.steps.total, self.step)
        stopped = self._is_patience_over()
        last = 0 if stopped else self.steps.total
        batches = self.steps.batches.between(self.step, last, self.workers, self.loader)
        try:
            with exact(self.steps.device, tf32=True):
                self.take_all(batches, tick, checkpoint_seconds)
                self._read()
            self._check_weights()
        except BrokenLoss as error:
            raise SoritesError(self._explain_failure(error)) from error
        finally:
            batches.close()
        if self.processes.is_first:
            self._finish()
        self.processes.wait()

    def take_all(
        self, batches: Iterable[Batch], tick: Callable[[int, str], None], checkpoint_seconds: float
    ) -> None:
        """Run the steps of some batches, with validation, history and checkpoints."""
        written = time.monotonic()
        self._read_at = time.perf_counter()
        for batch in batches:
            self._unread.append(self.steps.take(batch))
            self.step = batch.step + 1
            if self.steps.device.type == "cpu" or len(self._unread) >= STEPS_PER_READ:
                self._read()
            validated = self._validate_if_due()
            tick(1, self._text())
            if time.monotonic() - written > checkpoint_seconds or validated:
                self.checkpoint()
                written = time.monotonic()
            if validated and self._is_patience_over():
                self.say(f"stopped after step {self.step}: the validation accuracy no longer rises")
                break

    def _read(self) -> None:
        """Add the steps since the last call to the history.

        Raises:
            BrokenLoss: One of them was not finite.
        """
        if not self._unread:
            return
        taken, self._unread = self.steps.read(self._unread), []
        if self.steps.device.type != "cpu":  # steps are submitted long before they are computed
            elapsed = (time.perf_counter() - self._read_at) / len(taken)
            taken = [replace(step, seconds=elapsed) for step in taken]
        for step in taken:
            epoch = (step.step + 1) / self.steps.batches.per_epoch
            right = step.right if self.steps.has_accuracy else None
            self.history.add(step.step, step.loss, right, step.seen, step.seconds, step.rate, epoch)
        self._read_at = time.perf_counter()

    @property
    def epoch(self) -> float:
        return self.step / self.steps.batches.per_epoch

    def _text(self) -> str:
        return self.history.text(self.best.last)

    def _validate_if_due(self) -> bool:
        if self.validation is None or not self.steps.is_validation_due(self.step):
            return False
        self._read()
        validated = self.steps.validate(self.validation)
        self.history.validated(self.step, self.epoch, validated.loss, validated.right, validated.n)
        self._update_plateau()
        if validated.right is None:
            return True
        self.best = self.best.validated(validated.right / validated.n, self.step)
        saves = self.recipe.early_stopping is not None and self.processes.is_first
        if self.best.since == 0 and saves:
            state = State(step=self.step, training=self.begun.hash)
            checkpoints.save(self.folder, checkpoints.BEST, self.network.module, None, state)
        return True

    def _update_plateau(self) -> None:
        """Lower the learning rate if the schedule is ``plateau`` and the validation loss has stalled."""
        stretch = next((s for s in self.steps.stretches if self.step < s.last), self.steps.stretches[-1])
        since = [row for row in self.history.rows if "validation_loss" in row and row["step"] > stretch.first]
        self.steps.plateau = plateau_multiplier(
            [row["validation_loss"] for row in since], stretch.stage.schedule
        )

    def _is_patience_over(self) -> bool:
        config = self.recipe.early_stopping
        return config is not None and self.best.since >= config.patience

    def _explain_failure(self, error: BrokenLoss) -> str:
        """Record the images of the failed step, and return an error message with advice."""
        ids = self.steps.batches.ids(error.step)
        content = json.dumps({"step": error.step + 1, "why": str(error), "images": ids}, indent=2).encode()
        if self.processes.is_first:
            write_bytes(content, self.folder / FAILED_IMAGES_FILE)
        listed = ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
        found = checkpoints.checkpoints_in(self.folder, checkpoints.CHECKPOINT)
        state = f"The last good checkpoint is {found[max(found)]}" if found else "There is no checkpoint yet"
        return (
            f"{error} at step {error.step + 1} of {self.steps.total} (images {listed}; all in "
            f"{self.folder / FAILED_IMAGES_FILE}). {state}. Try a lower learning rate "
            "(optimiser.lr) or a warm-up (schedule.warm_up = 1) in another folder."
        )

    def _finish(self) -> None:
        """Write the trained model, then delete checkpoints."""
        module, step = self.network.module, self.step
        if self.recipe.early_stopping is not None and self.best.step:
            step = self._restore_best()
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
            validation=self._final_validation(step),
            versions=self.begun.versions,
        )
        write(self.folder, record, module.state_dict(), [history.FILE, DATA, LABELS])
        delete_checkpoints(self.folder)
        (self.folder / FAILED_IMAGES_FILE).unlink(missing_ok=True)

    def _restore_best(self) -> int:
        """Load the best weights, and return their step.

        Raises:
            Damaged: Their file is missing or damaged.
        """
        best = checkpoints.checkpoints_in(self.folder, checkpoints.BEST).get(self.best.step)
        if best is None:
            name = f"{checkpoints.BEST}-{self.best.step:09d}{checkpoints.SUFFIX}"
            raise Damaged(
                self.folder / name,
                "it is missing",
                f"Restore it from a backup, or delete {self.folder} to train again.",
            )
        tensors, state = checkpoints.read(best, self.begun.hash)
        checkpoints.restore_module(self.network.module, tensors)
        return state.step

    def _final_validation(self, step: int) -> dict[str, Any] | None:
        rows = [row for row in self.history.rows if "validation_accuracy" in row and row["step"] == step]
        if not rows:
            return None
        return {
            "accuracy": rows[-1]["validation_accuracy"],
            **{key: rows[-1][key] for key in ("n", "low", "high")},
        }


def _started(recipe: Recipe, data: TrainingData, device: str, processes: Processes) -> tuple[Network, Steps]:
    """Return the network that a training starts from, and its steps."""
    classes = data.labels.ids
    if recipe.task == "boxes":
        network = start_detector(recipe.model, classes, recipe.data.size, recipe.seed)
        return network, DetectorSteps(recipe, network, data, device, processes)
    network = start(
        recipe.model, classes, recipe.data.size, recipe.seed, _examples(data), keep_head=recipe.keep_head
    )
    return network, Steps(recipe, network, data, device, processes)


def _examples(data: TrainingData) -> Callable[[Input, int], list[Any]]:
    """Return a function that gives the first training images at an input size."""

    def first_images(wants: Input, count: int) -> list[Any]:
        prepared = Prepared(data.train, wants, data.framed)
        indices = np.arange(min(count, len(prepared)))
        return list(prepared.several(indices, 0, 0))

    return first_images
