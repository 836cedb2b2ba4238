"""Checkpoints: weights, optimiser state and progress in one safetensors file, written atomically.

The file name ends with the digest of the content, and the state names the training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, JsonValue

from sorites.core.errors import Damaged
from sorites.io.digests import Verifier, all_shards_in, named_digests, shards_in, write_shard
from sorites.training.history import HistoryState

if TYPE_CHECKING:
    import torch
    from torch import nn

CHECKPOINT, BEST = "checkpoint", "best"
SUFFIX = ".safetensors"
MODEL, OPTIMISER = "model/", "optimiser/"
REMEDY = "Delete it and repeat the command, which resumes from an earlier checkpoint or from the start."

Tensors = dict[str, "torch.Tensor"]


class Best(BaseModel):
    """The best validation so far.

    Attributes:
        accuracy: Its accuracy; -1 before the first validation.
        step: The step after which it was measured.
        since: The number of validations since then.
        last: The accuracy of the latest validation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    accuracy: float = -1.0
    step: int = 0
    since: int = 0
    last: float | None = None

    def validated(self, accuracy: float, step: int) -> Best:
        """Return the best validation after a further one."""
        if accuracy > self.accuracy:
            return Best(accuracy=accuracy, step=step, last=accuracy)
        return self.model_copy(update={"since": self.since + 1, "last": accuracy})


class State(BaseModel):
    """The progress of a training, stored in a checkpoint beside the tensors.

    Attributes:
        step: The number of steps taken.
        training: The hash of the training.
        best: The best validation so far.
        history: The history; None in a checkpoint of the best weights.
        scaler: The state of the gradient scaler of torch, where there is one.
        numbers: The state of the optimiser that is not a tensor, by parameter and key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    step: int
    training: str
    best: Best = Best()
    history: HistoryState | None = None
    scaler: dict[str, float | int] | None = None
    numbers: dict[str, JsonValue] = {}


def save(
    folder: Path,
    kind: str,
    module: nn.Module,
    optimiser: torch.optim.Optimizer | None,
    state: State,
) -> None:
    """Write a checkpoint and delete the former ones of its kind.

    Args:
        folder: The training folder.
        kind: ``CHECKPOINT`` or ``BEST``. Of the best weights the former ones stay until ``drop``, because the
            last checkpoint refers to them.
        module: The network.
        optimiser: Its optimiser, if its state is needed.
        state: The progress; its ``numbers`` are taken from the optimiser.
    """
    from safetensors.torch import save as serialize

    tensors = {f"{MODEL}{name}": _plain(tensor) for name, tensor in module.state_dict().items()}
    numbers: dict[str, JsonValue] = {}
    if optimiser is not None:
        for name, parameter in module.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                if hasattr(value, "detach"):
                    tensors[f"{OPTIMISER}{name}/{key}"] = _plain(value)
                else:
                    numbers[f"{name}/{key}"] = value
    stored = state.model_copy(update={"numbers": numbers}).model_dump()
    data = serialize(tensors, {"state": json.dumps(stored)})
    written = write_shard(folder, f"{kind}-{state.step:09d}", SUFFIX, data)
    if kind == CHECKPOINT:
        drop(folder, kind, written)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def checkpoints_in(folder: Path, kind: str) -> dict[int, Path]:
    """Return the checkpoints of a training folder by step, in order."""
    parts = {stem.partition("-"): path for stem, path in shards_in(folder, SUFFIX).items()}
    return {int(step): path for (name, _, step), path in parts.items() if name == kind and step.isdecimal()}


def drop(folder: Path, kind: str, keep: Path | None = None) -> None:
    """Delete the checkpoints of a kind except one."""
    for paths in all_shards_in(folder, SUFFIX).values():
        for path in paths:
            if path.name.startswith(f"{kind}-") and path != keep:
                path.unlink(missing_ok=True)


def read(path: Path, training: str) -> tuple[Tensors, State]:
    """Return the tensors and the state of a checkpoint.

    Args:
        path: The file.
        training: The hash of the training that it must belong to.

    Raises:
        Damaged: The file does not match its digest, or belongs to another training.
    """
    from safetensors import safe_open

    Verifier(path.parent, remember=False).require(named_digests([path]), REMEDY)
    try:
        with safe_open(str(path), framework="pt") as file:
            state = State.model_validate(json.loads((file.metadata() or {})["state"]))
            if state.training != training:
                raise Damaged(path, "it belongs to another training", REMEDY)
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except Damaged:
        raise
    except Exception as error:  # a file that is none of ours makes safetensors raise nearly anything
        raise Damaged(path, error, REMEDY) from error


def restore_module(module: nn.Module, tensors: Tensors) -> None:
    """Load weights in place, which keeps their memory format."""
    weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
    module.load_state_dict(weights)


def restore_optimiser(
    optimiser: torch.optim.Optimizer, module: nn.Module, tensors: Tensors, numbers: Mapping[str, JsonValue]
) -> None:
    """Restore the state of an optimiser from a checkpoint."""
    import torch

    for name, parameter in module.named_parameters():
        prefix = f"{OPTIMISER}{name}/"
        state: dict[str, Any] = {}
        for key, value in tensors.items():
            if key.startswith(prefix):
                like = value.shape == parameter.shape and value.dim() > 0
                state[key.removeprefix(prefix)] = torch.empty_like(parameter).copy_(value) if like else value
        state |= {
            key.removeprefix(f"{name}/"): value
            for key, value in numbers.items()
            if key.startswith(f"{name}/")
        }
        if state:
            optimiser.state[parameter] = state
