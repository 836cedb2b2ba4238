"""Guided backpropagation (Springenberg et al. 2015): what speaks for an answer, followed back to the pixels.

At a ReLU only positive gradients pass, and only where the unit fires. For any activation the rule here is the same: what comes
from above passes where it is positive and where the activation's output is positive, times the activation's own derivative. For
ReLU that is the published rule; for ReLU6 units at 6 pass nothing; for smooth ones (SiLU, GELU, Hardswish) the slope stays and
the dip below zero passes nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

MODULES = frozenset(
    {
        "relu", "relu6", "leakyrelu", "elu", "celu", "silu", "swish", "swishme", "memoryefficientswish", "gelu", "gelutanh",
        "quickgelu", "hardswish", "hardswishme", "mish", "mishme",
    }
)  # fmt: skip
"""Class names of activations in torch, torchvision, timm and efficientnet packages, in small letters."""
FUNCTIONS = ("relu", "relu_", "relu6", "leaky_relu", "elu", "celu", "silu", "gelu", "hardswish", "mish")
"""The same as functions of torch."""


@contextlib.contextmanager
def guided(module: Any) -> Iterator[None]:
    """Guide the gradients of a module inside: at activations that are modules, and at those that are called as functions."""
    acts = [part for part in module.modules() if type(part).__name__.lower() in MODULES]
    hooks = [part.register_forward_hook(lambda _, __, given: _gate()(given)) for part in acts]
    try:
        with _functions()():
            yield
    finally:
        for hook in hooks:
            hook.remove()


@functools.cache
def _gate() -> Any:
    """Return a function that gives back an activation's output and lets back only what is positive, where it fires.

    Applied twice it does the same, so that a module that calls a function of torch may be met as both.
    """
    import torch

    class Gate(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(given > 0)
            return given.clone()

        @staticmethod
        def backward(ctx: Any, *above: torch.Tensor) -> torch.Tensor:
            passed: torch.Tensor = above[0].clamp(min=0) * ctx.saved_tensors[0]
            return passed

    return Gate.apply


@functools.cache
def _functions() -> Any:
    """Return a mode of torch in which the activations among its functions are guided."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    places = (functional, torch, torch.Tensor)
    known = {getattr(place, name) for place in places for name in FUNCTIONS if hasattr(place, name)}

    class Guided(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = func(*args, **(kwargs or {}))
            return _gate()(given) if func in known else given

    return Guided
