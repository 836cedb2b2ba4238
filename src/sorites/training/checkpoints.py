"""Checkpoints: weights, optimiser state and progress in one safetensors file, written atomically.

The file name ends with the digest of the content, and the state names the training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.core.errors import Damaged
from sorites.io.digests import Verifier, all_shards_in, named_digests, shards_in, write_shard

if TYPE_CHECKING:
    import torch
    from torch import nn

CHECKPOINT, BEST = "checkpoint", "best"
SUFFIX = ".safetensors"
MODEL, OPTIMISER = "model/", "optimiser/"
REMEDY = "Delete it and repeat the command, which resumes from an earlier checkpoint or from the start."

Tensors = dict[str, "torch.Tensor"]


def save(
    folder: Path,
    kind: str,
    module: nn.Module,
    optimiser: torch.optim.Optimizer | None,
    state: dict[str, Any],
) -> None:
    """Write a checkpoint and delete the former ones of its kind.

    Args:
        folder: The training folder.
        kind: ``CHECKPOINT`` or ``BEST``. Of the best weights the former ones stay until ``drop``, because the
            last checkpoint refers to them.
        module: The network.
        optimiser: Its optimiser, if its state is needed.
        state: JSON-serializable values, with the ``step`` and the hash of the ``training``.
    """
    from safetensors.torch import save as serialize

    tensors = {f"{MODEL}{name}": _plain(tensor) for name, tensor in module.state_dict().items()}
    numbers: dict[str, Any] = {}
    if optimiser is not None:
        for name, parameter in module.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                if hasattr(value, "detach"):
                    tensors[f"{OPTIMISER}{name}/{key}"] = _plain(value)
                else:
                    numbers[f"{name}/{key}"] = value
    data = serialize(tensors, {"state": json.dumps({**state, "numbers": numbers})})
    written = write_shard(folder, f"{kind}-{state['step']:09d}", SUFFIX, data)
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


def read(path: Path, training: str) -> tuple[Tensors, dict[str, Any]]:
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
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
            if state["training"] != training:
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
    optimiser: torch.optim.Optimizer, module: nn.Module, tensors: Tensors, numbers: dict[str, Any]
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
