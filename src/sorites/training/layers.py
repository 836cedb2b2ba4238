"""Parameter groups whose learning rate falls layer by layer from the head, and those of a head alone.

OpticsBench's models for Flowers-102 were trained with "a layer-wise exponentially decaying learning rate with increased distance
to the model head", those for Stanford Cars without. The paper does not print the factor; 0.75 is BEiT's and timm's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

DECAY = 0.75

Group = dict[str, Any]
"""A parameter group of an optimiser: ``params``, ``lr``, ``weight_decay``."""


def layer_of(network: nn.Module) -> dict[str, int]:
    """Map the name of each parameter to its layer, 0 at the input; the last is the head.

    A network of timm's says itself which parameters belong together. In any other a layer is a numbered block (``blocks.3``) or a
    member of the network (``stem``), in the order in which the network holds them, and a norm belongs to the member before it.
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
    """Return the name of the block that a parameter is in: up to the first number, else the network's member."""
    parts = name.split(".")
    end = next((i for i, part in enumerate(parts[:-1]) if part.isdecimal()), 0)
    return ".".join(parts[: end + 1])


def layer_groups(network: nn.Module, lr: float, weight_decay: float, decay: float = DECAY) -> list[Group]:
    """Return groups in which a layer's rate is ``lr`` x ``decay`` to the power of its distance from the head.

    Biases and norms get no weight decay, as in timm's ``param_groups_layer_decay``; parameters that are frozen are left out.
    """
    layers = layer_of(network)
    top = max(layers.values(), default=0)
    groups: dict[tuple[int, bool], Group] = {}
    for name, weights in network.named_parameters():
        if not weights.requires_grad:
            continue
        layer, plain = layers.get(name, top), weights.ndim <= 1
        group = groups.setdefault(
            (layer, plain), {"params": [], "lr": lr * decay ** (top - layer), "weight_decay": 0.0 if plain else weight_decay}
        )
        group["params"].append(weights)
    return list(groups.values())
