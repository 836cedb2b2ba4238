"""Checkpoints of a training: weights, the optimiser's state, and where it stands, in one safetensors file, whole or not at all.

No generator is in them: whatever is drawn in a step follows from the seed and the step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.errors import Damaged
from sorites.files import write_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

FILE, BEST = "checkpoint.safetensors", "best.safetensors"
MODEL, OPTIMISER = "model/", "optimiser/"
REMEDY = "Delete it, and the training begins again"

Tensors = dict[str, "torch.Tensor"]


def save(path: Path, module: nn.Module, optimiser: torch.optim.Optimizer | None, state: dict[str, Any]) -> None:
    """Write a checkpoint; ``state`` is plain data."""
    from safetensors.torch import save as packed

    tensors = {f"{MODEL}{name}": _plain(tensor) for name, tensor in module.state_dict().items()}
    numbers: dict[str, Any] = {}
    if optimiser is not None:
        for name, parameter in module.named_parameters():
            for key, value in optimiser.state.get(parameter, {}).items():
                if hasattr(value, "detach"):
                    tensors[f"{OPTIMISER}{name}/{key}"] = _plain(value)
                else:
                    numbers[f"{name}/{key}"] = value
    write_bytes(packed(tensors, {"state": json.dumps({**state, "numbers": numbers})}), path)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def read(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors of a checkpoint and its state."""
    from safetensors import safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})["state"])
            return {name: file.get_tensor(name) for name in file.keys()}, state  # noqa: SIM118
    except Exception as error:  # a damaged file makes safetensors raise nearly anything
        raise Damaged(path, error, REMEDY) from error


def restore_module(module: nn.Module, tensors: Tensors) -> None:
    """Load the weights of a checkpoint in place: how they lie in memory stays as it is."""
    weights = {name.removeprefix(MODEL): value for name, value in tensors.items() if name.startswith(MODEL)}
    module.load_state_dict(weights)


def restore_optimiser(optimiser: torch.optim.Optimizer, module: nn.Module, tensors: Tensors, numbers: dict[str, Any]) -> None:
    """Load the state of an optimiser, parameter by parameter."""
    import torch

    for name, parameter in module.named_parameters():
        mine = f"{OPTIMISER}{name}/"
        held: dict[str, Any] = {}
        for key, value in tensors.items():
            if key.startswith(mine):
                like = value.shape == parameter.shape and value.dim() > 0
                held[key.removeprefix(mine)] = torch.empty_like(parameter).copy_(value) if like else value
        held |= {key.removeprefix(f"{name}/"): value for key, value in numbers.items() if key.startswith(f"{name}/")}
        if held:
            optimiser.state[parameter] = held
