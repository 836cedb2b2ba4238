"""Use a torch module as a model: by ONNX Runtime on a CPU, by torch itself on a GPU or if the export fails."""

from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head, Model, Outputs
from sorites.errors import SoritesError
from sorites.models._checked import Forward, checked
from sorites.models._export import NAMES, exported, trial_pictures
from sorites.models._fingerprint import cache_fingerprint, fingerprint
from sorites.models._preprocess import Input
from sorites.torch_tools import computing, device_of, one_thread

if TYPE_CHECKING:
    from torch import nn


def torch_model(
    name: str, module: nn.Module, wants: Input, labels: Sequence[str] | None = None, head: Head | None = None
) -> Model:
    """Return a model from a module that maps normalised N x 3 x H x W to logits, or to (logits, features)."""

    module = module.eval().float()
    graph = _graph(module, wants)
    how = computing()
    device = device_of(how.device)
    on_torch = _on_torch(graph, device)
    trial = _trial(on_torch, wants)
    version = fingerprint(module, wants, trial)
    if how.precision not in (None, "float32"):
        forward = _on_torch(_int8(graph, device), device) if how.precision == "int8" else _on_torch(graph, device, how.precision)
    else:
        forward = on_torch if device != "cpu" else _on_cpu(name, graph, on_torch, wants, version, trial)
    named = None if labels is None else tuple(labels)
    size = sum(weights.numel() for weights in module.parameters())
    cached = functools.partial(cache_fingerprint, module, wants)
    return Model(name, checked(name, forward), wants.prepare, named, head, version, size, graph, cached, input=wants.described)


def _trial(on_torch: Forward, wants: Input) -> Outputs | None:
    """Return what a module gives for the trial pictures, or None if it fails on them; that is said when it is tried."""
    try:
        with one_thread():
            return on_torch(trial_pictures(wants.size))
    except Exception:  # a module raises whatever it likes
        return None


def linear_head(layer: nn.Module) -> Head | None:
    """Return the weights C x D and bias C of a linear layer, or None if the layer is something else."""
    from torch import nn

    if not isinstance(layer, nn.Linear):
        return None
    weight = layer.weight.detach().float().cpu().numpy()
    bias = np.zeros(len(weight), np.float32) if layer.bias is None else layer.bias.detach().float().cpu().numpy()
    return weight, bias


def with_features(network: nn.Module, parts: Callable[[Any, Any], tuple[Any, Any]]) -> nn.Module:
    """Wrap a network whose own forward gives only logits: ``parts(network, x)`` are its logits and features together."""
    import torch
    from torch import nn

    class OnePass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return parts(self.network, x)

        def _get_name(self) -> str:
            return "OnePass"  # enters cache_fingerprint

    return OnePass()


def _graph(module: nn.Module, wants: Input) -> nn.Module:
    """Lay a graph around a module that takes 8-bit N x H x W x 3 and gives (logits,) or (logits, features)."""
    import torch
    from torch import nn

    class Graph(nn.Module):
        mean: torch.Tensor
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.register_buffer("mean", torch.tensor(wants.mean, dtype=torch.float64).mul(255).float().view(1, 3, 1, 1))
            self.register_buffer("scale", torch.tensor(wants.std, dtype=torch.float64).mul(255).float().view(1, 3, 1, 1))

        def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = self.module((pictures.permute(0, 3, 1, 2).float() - self.mean) / self.scale)
            return tuple(given)[:2] if isinstance(given, tuple | list) else (given,)

    return Graph().eval()


def _int8(graph: nn.Module, device: str) -> nn.Module:
    """Return a copy whose linear layers compute with 8-bit weights, scaled by what they see."""
    import torch
    from torch import nn

    if device != "cpu" or not any(isinstance(layer, nn.Linear) for layer in graph.modules()):
        raise SoritesError("precision int8 is for models with linear layers, on a CPU; take bfloat16 or float16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize: Any = torch.ao.quantization.quantize_dynamic
        made: nn.Module = quantize(copy.deepcopy(graph), {nn.Linear}, dtype=torch.qint8)
    return made


def _on_torch(graph: nn.Module, device: str, precision: str = "float32") -> Forward:
    """Return a pass by torch with repeatable kernels, on any device, in full float32 precision unless another is named."""
    import torch

    graph = graph.to(device)
    kind, number = device.partition(":")[0], getattr(torch, precision)

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        lower = torch.autocast(kind, number) if precision != "float32" else contextlib.nullcontext()
        with torch.inference_mode(), exact, lower:
            given = graph(torch.from_numpy(np.stack(pictures)).to(device))
        return Outputs(**{name: value.float().cpu().numpy() for name, value in zip(NAMES, given, strict=False)})

    return forward


def _on_cpu(name: str, graph: nn.Module, on_torch: Forward, wants: Input, version: str, trial: Outputs | None) -> Forward:
    """Return a pass by ONNX Runtime if it can be made to agree with torch, else by torch, with one warning."""
    try:
        return exported(graph, on_torch, wants, version, trial)
    except Exception as error:  # the exporter raises exceptions of many kinds; torch still runs
        reason = str(error).strip().split("\n")[0]
        warnings.warn(f"model {name} runs on torch, which is slower: there is no ONNX graph of it ({reason})", stacklevel=4)
        return on_torch
