"""Parameter groups whose learning rate falls layer by layer from the head, and those of a head alone.

OpticsBench's models for Flowers-102 were trained with "a layer-wise exponentially decaying learning
rate with increased distance to the model head", those for Stanford Cars without. The paper does not
print the factor; 0.75 is BEiT's and timm's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sorites.core.errors import SoritesError
from sorites.models.trained import Network
from sorites.training.recipe import Schedule, Stage

if TYPE_CHECKING:
    import torch
    from torch import nn

DECAY = 0.75

# A parameter group of an optimiser: ``params``, ``lr``, ``weight_decay``.
Group = dict[str, Any]


def layer_of(network: nn.Module) -> dict[str, int]:
    """Map the name of each parameter to its layer, 0 at the input; the last is the head.

    A network of timm's says itself which parameters belong together. In any other a layer is a
    numbered block (``blocks.3``) or a member of the network (``stem``), in the order in which the
    network holds them, and a norm belongs to the member before it.
    """
    matcher = getattr(network, "group_matcher", None)
    if matcher is not None:
        from timm.models import group_parameters

        return dict(group_parameters(network, matcher(coarse=False), reverse=True))
    dimensions: dict[str, int] = {}
    for name, weights in network.named_parameters():
        block = _block(name)
        dimensions[block] = max(dimensions.get(block, 0), weights.ndim)
    numbers: dict[str, int] = {}
    for block, most in dimensions.items():
        numbers[block] = max(numbers.values(), default=-1) + (1 if most > 1 or not numbers else 0)
    return {name: numbers[_block(name)] for name, _ in network.named_parameters()}


def _block(name: str) -> str:
    """Return the name of the block that a parameter is in: up to the first number, else the
    network's member.
    """
    parts = name.split(".")
    end = next((i for i, part in enumerate(parts[:-1]) if part.isdecimal()), 0)
    return ".".join(parts[: end + 1])


def layer_groups(network: nn.Module, lr: float, weight_decay: float, decay: float = DECAY) -> list[Group]:
    """Return groups in which a layer's rate is ``lr`` x ``decay`` to the power of its distance from the head.

    Biases and norms get no weight decay, as in timm's ``param_groups_layer_decay``; parameters that
    are frozen are left out.
    """
    layers = layer_of(network)
    top = max(layers.values(), default=0)
    groups: dict[tuple[int, bool], Group] = {}
    for name, weights in network.named_parameters():
        if not weights.requires_grad:
            continue
        layer, plain = layers.get(name, top), weights.ndim <= 1
        group = groups.setdefault(
            (layer, plain),
            {"params": [], "lr": lr * decay ** (top - layer), "weight_decay": 0.0 if plain else weight_decay},
        )
        group["params"].append(weights)
    return list(groups.values())


# Torch's optimisers over the layers that a stage trains.


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
    return torch.optim.SGD(
        groups, lr=asked.lr, momentum=asked.momentum, nesterov=asked.nesterov, weight_decay=asked.weight_decay
    )


def _groups(network: Network, stage: Stage) -> list[dict[str, Any]]:
    asked = stage.optimiser
    if asked.layer_decay is not None:
        inner: Any = getattr(network.module, "network", network.module)
        return layer_groups(inner, asked.lr, asked.weight_decay, asked.layer_decay)
    trained: list[nn.Parameter] = [
        parameter for parameter in network.module.parameters() if parameter.requires_grad
    ]
    return [{"params": trained, "lr": asked.lr}]


# The learning rate at each step of a stage, as torch's own schedulers have it, without their state: a
# stopped training that goes on needs only its step.


# One cycle begins at this share of the highest rate, and ends at this share of where it began.
CYCLE_FROM, CYCLE_TO = 1 / 25, 1e-4


def rate(schedule: Schedule, highest: float, step: int, steps: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from the beginning of its stage of ``steps`` steps."""
    warm = min(round(schedule.warm_up * per_epoch), steps)
    if step < warm:
        return highest * (schedule.warm_up_from + (1 - schedule.warm_up_from) * step / warm)
    step, steps = step - warm, steps - warm
    if schedule.kind == "step":
        every = max(1, round(schedule.every * per_epoch))
        return highest * schedule.factor ** (step // every)
    if schedule.kind == "cosine":
        return _eased(highest, schedule.floor, step / steps)
    if schedule.kind == "one_cycle":
        return _one_cycle(highest, schedule.rise, step, steps)
    return highest


def _one_cycle(highest: float, rise: float, step: int, steps: int) -> float:
    """Return the rate of Smith and Topin's one cycle, eased by cosines."""
    top, end = rise * steps - 1, steps - 1
    start = highest * CYCLE_FROM
    if step <= top:
        return _eased(start, highest, step / top)
    return _eased(highest, start * CYCLE_TO, (step - top) / (end - top)) if end > top else highest


def _eased(start: float, end: float, share: float) -> float:
    """Return the value a share of the way along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


# A learning rate that falls when the validation loss no longer does, as torch's ``ReduceLROnPlateau`` has
# it.


# A loss counts as lower if it is so by more than this share of the lowest.
THRESHOLD = 1e-4


def share(losses: Iterable[float], schedule: Schedule) -> float:
    """Return what the rate is multiplied by after these validation losses, 1 for schedules of another kind.

    It is ``factor`` for each time that more than ``patience`` losses in a row were not lower than the lowest.
    """
    best, bad, found = float("inf"), 0, 1.0
    for loss in losses if schedule.kind == "plateau" else ():
        if loss < best * (1 - THRESHOLD):
            best, bad = loss, 0
        else:
            bad += 1
        if bad > schedule.patience:
            found, bad = found * schedule.factor, 0
    return found
