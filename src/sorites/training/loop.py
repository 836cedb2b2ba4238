"""Train a model by a recipe, in plain torch: steps, validation, checkpoints, and the folder of the
trained model at the end.

A training that was stopped, by Ctrl-C or kill -9, goes on where its last checkpoint stands when the
same command is typed again, and ends with the same weights, bit for bit, as one that nobody stopped
(on the same machine and device).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.progress import ToldBar
from sorites.core.torch_tools import one_thread
from sorites.io.files import locked, sweep_temporaries
from sorites.io.paths import reason
from sorites.training import session as folders
from sorites.training.recipe import Recipe, load
from sorites.training.session import Training

CHECKPOINT_SECONDS = 60.0


def no_bar(name: str, steps: int, done: int) -> Callable[[int, str], None]:
    return lambda count, text: None


def train(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    device: str | None = None,
    workers: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    bar: ToldBar = no_bar,
    say: Callable[[str], None] = lambda text: None,
    command: str = "",
    **changes: Any,
) -> Path:
    """Train a model by a recipe, by its name or path, and return the folder that ``trained:DIR`` names.

    ``changes`` replace keys of the recipe: ``model="lite0"``, ``epochs=3``, ``**{"optimiser.lr":
    0.01}``; ``source`` and ``augment`` stand for ``data.source`` and ``augment.names``. An
    unfinished training of the same recipe in the folder is continued; a finished one is left as it
    is.
    """
    asked = load(recipe).override(named_changes(changes))
    folder = Path(out)
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("training", "train") from error
    with locked(folder, "training", ".sorites.lock"), one_thread(), torch.random.fork_rng():
        sweep_temporaries(folder)
        before = folders.read(folder)
        if before is not None:
            folders.refuse_other(before.recipe, asked, folder)
        if folders.is_finished(folder):
            say(f"{folder} holds this model already; nothing is left to do")
            return folder
        training = Training(asked, folder, _device(device), workers or _workers(), say, command)
        training.run(bar, checkpoint_seconds)
    return folder


def named_changes(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes by the full names of their keys."""
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


def _device(asked: str | None) -> str:
    """Return the device to train on: the one asked for if it is there, else a GPU if there is one."""
    import torch

    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=asked)
    except (RuntimeError, AssertionError) as error:
        raise SoritesError(
            f"there is no device {asked!r} here ({reason(error)}). Type: --device cpu"
        ) from error
    return asked


def _workers() -> int:
    return max(1, min(8, (os.cpu_count() or 1) - 1))
