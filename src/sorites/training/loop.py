"""Train a model by a recipe.

An interrupted training (Ctrl-C or kill -9) resumes from its last checkpoint when the same call is repeated,
and ends with bit-identical weights on the same machine and device.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import option
from sorites.core.progress import TextBar
from sorites.core.torch_tools import one_thread
from sorites.io.files import locked, sweep_temporaries
from sorites.io.paths import reason
from sorites.training import session as folders
from sorites.training.recipe import Recipe, load
from sorites.training.session import Training

CHECKPOINT_SECONDS = 60.0


def no_progress(name: str, steps: int, done: int) -> Callable[[int, str], None]:
    return lambda count, text: None


def train(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    device: str | None = None,
    workers: int | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    bar: TextBar = no_progress,
    say: Callable[[str], None] = lambda text: None,
    command: str = "",
    **changes: Any,
) -> Path:
    """Train a model by a recipe.

    An unfinished training of the same recipe in ``out`` is resumed; a finished one is left unchanged.

    Args:
        recipe: A recipe, its name, or the path of a TOML file.
        out: Folder for checkpoints and the trained model.
        device: Torch device; by default a GPU if there is one.
        workers: Number of threads that decode images.
        checkpoint_seconds: Time between two checkpoints.
        bar: Creates a progress bar; called with a name, the number of steps and those done.
        say: Receives messages about the training.
        command: The command line, stored in ``train.json``.
        **changes: Recipe keys to override, such as ``model="lite0"``, ``epochs=3`` or
        ``**{"optimiser.lr": 0.01}``. ``source``, ``labels``, ``limit``, ``validation``, ``size``, ``augment``
        and ``lr`` are short for keys of ``data``, ``augment`` and ``optimiser``.

    Returns:
        The folder, usable as the model ``trained:DIR``.
    """
    wanted_recipe = load(recipe).override(named_changes(changes))
    folder = Path(out)
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("training", "train") from error
    with locked(folder, "training", ".sorites.lock"), one_thread(), torch.random.fork_rng():
        sweep_temporaries(folder)
        before = folders.read(folder)
        if before is not None:
            folders.check_same_recipe(before.recipe, wanted_recipe, folder)
        if folders.is_finished(folder):
            say(f"{folder} already has this trained model; nothing to do")
            return folder
        training = Training(wanted_recipe, folder, _device(device), workers or _workers(), say, command)
        training.run(bar, checkpoint_seconds)
    return folder


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


def _device(requested: str | None) -> str:
    """Return the requested device if it works, or the default: a GPU if there is one, else the CPU."""
    import torch

    if requested is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=requested)
    except (RuntimeError, AssertionError) as error:
        raise SoritesError(
            f"Device {requested!r} is not available ({reason(error)}). Use {option('device', 'cpu')}."
        ) from error
    return requested


def _workers() -> int:
    return max(1, min(8, (os.cpu_count() or 1) - 1))
