"""A small torch network as a model of the house: quick, of four classes, with seeded weights."""

from __future__ import annotations

from typing import Any

from tests.conftest import CLASSES

from sorites.core import Model


def small(name: str = "small", seed: int = 0, act: Any = None, labels: tuple[str, ...] = CLASSES) -> Model:
    """Return a convolutional network of the classes of ``photos``; ``act`` is its activation, else ReLU."""
    import torch
    from torch import nn

    from sorites.models.preprocess import Input
    from sorites.models.torch_module import torch_model

    torch.manual_seed(seed)
    act = act or nn.ReLU
    body = nn.Sequential(nn.Conv2d(3, 8, 5, 2, 2), act(), nn.Conv2d(8, 12, 3, 2, 1), act())
    net = nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, len(labels)))
    net[-1].weight.data *= 8
    net[-1].bias.data.zero_()
    return torch_model(name, net, Input(size=(32, 32)), labels)
