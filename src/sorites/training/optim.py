"""Optimisers, parameter groups and learning-rate schedules.

OpticsBench trained its Flowers-102 models with "a layer-wise exponentially decaying learning rate with
increased distance to the model head", and its Stanford Cars models without. The paper does not give the
factor; 0.75 is the value of BEiT and timm.
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

DEFAULT_LAYER_DECAY = 0.75

# Parameter group of an optimiser with ``params``, ``lr`` and ``weight_decay``.
Group = dict[str, Any]


def layer_of(network: nn.Module) -> dict[str, int]:
    """Map each parameter name to its layer number: 0 at the input, the highest at the head.

    timm networks define their own groups. For other networks a layer is a numbered block (``blocks.3``) or a
    child module (``stem``) in definition order; a norm belongs to the child before it.
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
    for block, ndim in dimensions.items():
        numbers[block] = max(numbers.values(), default=-1) + (1 if ndim > 1 or not numbers else 0)
    return {name: numbers[_block(name)] for name, _ in network.named_parameters()}


def _block(name: str) -> str:
    """Return the block of a parameter: its name up to the first number, or the child module."""
    parts = name.split(".")
    end = next((i for i, part in enumerate(parts[:-1]) if part.isdecimal()), 0)
    return ".".join(parts[: end + 1])


def layer_groups(
    network: nn.Module, lr: float, weight_decay: float, decay: float = DEFAULT_LAYER_DECAY
) -> list[Group]:
    """Return parameter groups with learning rate ``lr * decay ** (distance of the layer from the head)``.

    Biases and norms get no weight decay, as in timm's ``param_groups_layer_decay``. Frozen parameters are
    left out.
    """
    layers = layer_of(network)
    top = max(layers.values(), default=0)
    groups: dict[tuple[int, bool], Group] = {}
    for name, weights in network.named_parameters():
        if not weights.requires_grad:
            continue
        layer, is_bias_or_norm = layers.get(name, top), weights.ndim <= 1
        group = groups.setdefault(
            (layer, is_bias_or_norm),
            {
                "params": [],
                "lr": lr * decay ** (top - layer),
                "weight_decay": 0.0 if is_bias_or_norm else weight_decay,
            },
        )
        group["params"].append(weights)
    return list(groups.values())


# Optimisers.


def set_mode(network: Network, stage: Stage) -> None:
    """Put the layers that a stage trains into training mode, and freeze the others."""
    module = network.module
    module.train(not stage.head_only)
    for parameter in module.parameters():
        parameter.requires_grad_(not stage.head_only)
    if stage.head_only:
        if not network.head:
            raise SoritesError(f"head_only: cannot tell which layer of {network.layers} is its head")
        for name in network.head:
            module.get_submodule(name).train().requires_grad_(True)


def optimiser(network: Network, stage: Stage) -> torch.optim.Optimizer:
    """Return the optimiser of a stage; each group stores its peak learning rate as ``highest``."""
    import torch

    config = stage.optimiser
    groups = [{**group, "highest": group["lr"]} for group in _groups(network, stage)]
    if config.kind == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def _groups(network: Network, stage: Stage) -> list[dict[str, Any]]:
    config = stage.optimiser
    if config.layer_decay is not None:
        inner: Any = getattr(network.module, "network", network.module)
        return layer_groups(inner, config.lr, config.weight_decay, config.layer_decay)
    trained: list[nn.Parameter] = [
        parameter for parameter in network.module.parameters() if parameter.requires_grad
    ]
    return [{"params": trained, "lr": config.lr}]


# Learning-rate schedules. They equal torch's schedulers but are stateless: resuming needs only the step.


# One cycle starts at this share of the peak rate, and ends at this share of the starting rate.
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1e-4


def rate(schedule: Schedule, highest: float, step: int, steps: int, per_epoch: int) -> float:
    """Return the learning rate of a step, counted from the start of a stage of ``steps`` steps."""
    warm = min(round(schedule.warm_up * per_epoch), steps)
    if step < warm:
        return highest * (schedule.warm_up_from + (1 - schedule.warm_up_from) * step / warm)
    step, steps = step - warm, steps - warm
    if schedule.kind == "step":
        every = max(1, round(schedule.every * per_epoch))
        return highest * schedule.factor ** (step // every)
    if schedule.kind == "cosine":
        return _cosine(highest, schedule.floor, step / steps)
    if schedule.kind == "one_cycle":
        return _one_cycle(highest, schedule.rise, step, steps)
    return highest


def _one_cycle(highest: float, rise: float, step: int, steps: int) -> float:
    """Return the learning rate of Smith and Topin's one-cycle schedule with cosine annealing."""
    top, end = rise * steps - 1, steps - 1
    start = highest * ONE_CYCLE_START
    if step <= top:
        return _cosine(start, highest, step / top)
    return _cosine(highest, start * ONE_CYCLE_END, (step - top) / (end - top)) if end > top else highest


def _cosine(start: float, end: float, share: float) -> float:
    """Interpolate from ``start`` to ``end`` along half a cosine."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


# Reduction on plateaus, as in torch's ``ReduceLROnPlateau``.


# A loss is an improvement if it is lower than the best by more than this share.
PLATEAU_THRESHOLD = 1e-4


def plateau_multiplier(losses: Iterable[float], schedule: Schedule) -> float:
    """Return the learning-rate multiplier after these validation losses.

    1 unless the schedule is ``plateau``.

    The rate is multiplied by ``factor`` whenever more than ``patience`` consecutive losses did not improve.
    """
    best, stalled, multiplier = float("inf"), 0, 1.0
    for loss in losses if schedule.kind == "plateau" else ():
        if loss < best * (1 - PLATEAU_THRESHOLD):
            best, stalled = loss, 0
        else:
            stalled += 1
        if stalled > schedule.patience:
            multiplier, stalled = multiplier * schedule.factor, 0
    return multiplier
