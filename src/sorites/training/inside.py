"""The torch module behind a model, for what needs its gradients: explanations and attacks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sorites.core import Model
from sorites.errors import SoritesError

if TYPE_CHECKING:
    import torch


def module_of(model: Model, verb: str) -> Any:
    """Return the torch module of a model that classifies; any other model is refused by name."""
    if model.output != "label":
        raise SoritesError(f"{verb} wants a model that classifies, and {model.name} finds boxes")
    if model.module is None:
        raise SoritesError(
            f"{verb} needs gradients, and {model.name} has none: an ONNX file or a plain function only gives answers. "
            "Name the torch network itself: lite0, timm:NAME, timm:NAME@WEIGHTS or trained:DIR, or pass it as a torch module "
            "from Python."
        )
    return model.module


def device_of(module: Any) -> Any:
    """Return the device on which a module has its weights; the CPU where it has none."""
    import torch

    return next((weights.device for weights in module.parameters()), torch.device("cpu"))


def logits_of(module: Any, pictures: torch.Tensor) -> torch.Tensor:
    """Return the logits of pictures N x H x W x 3 in 0..255."""
    given = module(pictures)
    logits: torch.Tensor = given[0] if isinstance(given, tuple | list) else given
    return logits


@contextlib.contextmanager
def without_weight_gradients(module: Any) -> Iterator[None]:
    """Take no gradients of the weights inside: only those of pictures and maps are wanted, and they cost half as much alone."""
    asked = [weights for weights in module.parameters() if weights.requires_grad]
    for weights in asked:
        weights.requires_grad_(False)
    try:
        yield
    finally:
        for weights in asked:
            weights.requires_grad_(True)
