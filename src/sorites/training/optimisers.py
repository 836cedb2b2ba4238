"""Torch's optimisers over the layers that a stage trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sorites.errors import SoritesError
from sorites.models._networks import Network
from sorites.training.layers import layer_groups
from sorites.training.recipe_parts import Stage

if TYPE_CHECKING:
    import torch
    from torch import nn


def set_mode(network: Network, stage: Stage) -> None:
    """Put the layers that a stage trains into training mode, and freeze the others."""
    module = network.module
    module.train(not stage.head_only)
    for parameter in module.parameters():
        parameter.requires_grad_(not stage.head_only)
    if stage.head_only:
        if not network.head:
            raise SoritesError(f"head_only: it is not known which layer of {network.layers} is its head")
        for name in network.head:
            module.get_submodule(name).train().requires_grad_(True)


def optimiser(network: Network, stage: Stage) -> torch.optim.Optimizer:
    """Return the optimiser of a stage; each of its groups keeps its highest learning rate as ``highest``."""
    import torch

    asked = stage.optimiser
    groups = [{**group, "highest": group["lr"]} for group in _groups(network, stage)]
    if asked.kind == "adamw":
        return torch.optim.AdamW(groups, lr=asked.lr, betas=asked.betas, weight_decay=asked.weight_decay)
    return torch.optim.SGD(groups, lr=asked.lr, momentum=asked.momentum, nesterov=asked.nesterov, weight_decay=asked.weight_decay)


def _groups(network: Network, stage: Stage) -> list[dict[str, Any]]:
    asked = stage.optimiser
    if asked.layer_decay is not None:
        inner: Any = getattr(network.module, "network", network.module)
        return layer_groups(inner, asked.lr, asked.weight_decay, asked.layer_decay)
    trained: list[nn.Parameter] = [parameter for parameter in network.module.parameters() if parameter.requires_grad]
    return [{"params": trained, "lr": asked.lr}]
