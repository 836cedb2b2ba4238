"""Train a model by a recipe.

An interrupted training (Ctrl-C or kill -9) resumes from its last checkpoint when the same call is repeated,
and ends with bit-identical weights on the same machine and device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.core.compute.torch_tools import device_of, one_thread
from sorites.core.errors import MissingExtra, inform
from sorites.core.progress import TextBar
from sorites.io.files import locked, sweep_temporaries
from sorites.io.listed import digests_of, read_verified
from sorites.models.trained import TRAIN_AGAIN, read_record
from sorites.reports.training import training_page
from sorites.training import history
from sorites.training import session as folders
from sorites.training.options import CHECKPOINT_SECONDS, TrainOptions
from sorites.training.processes import default_workers, device_for, joined, requested
from sorites.training.recipe import Recipe, defaults, load
from sorites.training.session import Training

# Name of the page of a training, in its folder.
PAGE = "train.html"


def no_progress(name: str, steps: int, done: int) -> Callable[[int, str], None]:
    """Draw no progress bar."""
    return lambda count, text: None


def train(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    model: str | None = None,
    source: str | None = None,
    labels: str | None = None,
    validation: float | str | None = None,
    augment: str | None = None,
    head_only: bool | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    limit: int | None = None,
    seed: int | None = None,
    device: str | None = None,
    workers: int | None = None,
    loader: str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    max_pixels: int | None = None,
    bar: TextBar = no_progress,
    say: Callable[[str], None] = inform,
    **changes: Any,
) -> Path:
    """Train a model by a recipe, and write its page ``train.html``.

    An unfinished training of the same recipe in ``out`` is resumed; a finished one is left unchanged.

    Args:
        recipe: A recipe (NAME or NAME@VARIANT), or the path of a .toml file.
        out: The folder for the trained model.
        model: Initial model: small, lite0, timm:NAME, timm:NAME@WEIGHTS, trained:DIR; NAME@random has random
            weights.
        source: Read images from this source: stamps, folder:PATH, webdataset:PATH.
        labels: A file of class names, or found: the classes of the source.
        validation: Validate on a fraction of the images (0.1), or on this source.
        augment: Augmentations: optics, augmix, optics,augmix, cascade, none.
        head_only: Train only the last layer.
        epochs: Number of training epochs.
        steps: Number of training steps.
        batch: Batch size.
        limit: Use only the first N samples of a fixed random order.
        seed: Random seed.
        device: cpu, cuda, cuda:1; default: a GPU if available.
        workers: Number of threads or processes that decode images.
        loader: Decode and augment images in threads or in processes; default: processes with a GPU, else
            threads.
        checkpoint_seconds: Write a checkpoint at least this often.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        changes: Further keys of the recipe: optimiser.lr=0.01. As keywords, such as ``size=32`` or
            ``**{"optimiser.lr": 0.01}``; ``size`` and ``lr`` are short for ``data.size`` and
            ``optimiser.lr``.
        bar: Creates a progress bar; called with a name, the number of steps and those done.
        say: Receives messages about the training; by default they are logged.

    Returns:
        The folder, usable as the model ``trained:DIR``.
    """
    options = TrainOptions(
        recipe=recipe,
        out=out,
        model=model,
        source=source,
        labels=labels,
        validation=validation,
        augment=augment,
        head_only=head_only,
        epochs=epochs,
        steps=steps,
        batch=batch,
        limit=limit,
        seed=seed,
        device=device,
        workers=workers,
        loader=loader,
        checkpoint_seconds=checkpoint_seconds,
        max_pixels=max_pixels,
        changes=changes,
    )
    return train_model(options, bar, say)


def train_model(
    options: TrainOptions, bar: TextBar = no_progress, say: Callable[[str], None] = inform
) -> Path:
    """Train a model, like ``train``, with options as one object."""
    wanted_recipe = load(options.recipe).override(named_changes(options.recipe_changes()))
    folder = Path(options.out)
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("training", "train") from error
    is_first = requested().is_first
    if not is_first:
        say, bar = _quiet, no_progress
    with (
        options.reading(),
        locked(folder, "training", ".sorites.lock") if is_first else contextlib.nullcontext(),
        one_thread(),
        torch.random.fork_rng(),
    ):
        if is_first:
            sweep_temporaries(folder)
        before = folders.read(folder)
        if before is not None:
            folders.check_same_recipe(before.recipe, wanted_recipe, folder)
        if folders.is_finished(folder):
            folders.delete_checkpoints(folder)
            say(f"{folder} already has this trained model; nothing to do")
        else:
            _run(options, wanted_recipe, folder, bar, say)
    if is_first:
        _write_page(folder)
    return folder


def _run(
    options: TrainOptions, recipe: Recipe, folder: Path, bar: TextBar, say: Callable[[str], None]
) -> None:
    """Train, with the other processes that ``torchrun`` started, if any."""
    device = device_for(device_of(options.device))
    workers = options.workers or default_workers()
    command = options.command_line("train run")
    with joined(device) as processes:
        training = Training(recipe, folder, device, workers, say, command, options.loader, processes)
        training.run(bar, options.checkpoint_seconds)


def _quiet(text: str) -> None:
    """Say nothing: the first process speaks for all."""


def _write_page(folder: Path) -> None:
    record = read_record(folder)
    rows = read_verified(folder / history.FILE, digests_of(record.files, history.FILE), TRAIN_AGAIN)
    training_page(record.model_dump(mode="json"), history.parse(rows), folder / PAGE, defaults())


def named_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Expand short keys such as ``source`` to full recipe keys such as ``data.source``."""
    short = {
        "source": "data.source",
        "labels": "data.labels",
        "limit": "data.limit",
        "validation": "data.validation",
        "size": "data.size",
        "augment": "augment.names",
        "lr": "optimiser.lr",
    }
    return {short.get(key, key): value for key, value in changes.items()}
