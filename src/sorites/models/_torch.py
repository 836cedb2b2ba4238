"""Use a torch module as a model: by ONNX Runtime on a CPU, by torch itself on a GPU or if the export fails."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs
from sorites.models._checked import Forward, checked
from sorites.models._export import NAMES, exported
from sorites.models._preprocess import Input
from sorites.rng import digest

if TYPE_CHECKING:
    from torch import nn

Head = tuple[NDArray[np.float32], NDArray[np.float32]]


def torch_model(
    name: str, module: nn.Module, wants: Input, labels: Sequence[str] | None = None, head: Head | None = None
) -> Model:
    """Return a model from a module that maps normalised N x 3 x H x W to logits, or to (logits, features)."""
    import torch

    module = module.eval().float()
    version = fingerprint(module, wants)
    graph = _graph(module, wants)
    forward = _on_torch(graph, "cuda") if torch.cuda.is_available() else _on_cpu(name, graph, wants, version)
    named = None if labels is None else tuple(labels)
    size = sum(weights.numel() for weights in module.parameters())
    return Model(name, checked(name, forward), wants.prepare, named, head, version, size, graph)


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

    return OnePass()


def fingerprint(module: nn.Module, wants: Input) -> str:
    """Return a hash of every weight by name, of the layers as torch prints them, and of the preprocessing."""
    import torch

    hasher = hashlib.sha256(digest(module, wants.model_dump_json()))
    for key, value in module.state_dict().items():
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(list(repr(value).encode()), dtype=torch.uint8)
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        hasher.update(digest(key, tensor.dtype, tuple(tensor.shape)))
        hasher.update(flat.view(torch.uint8).numpy().data)
    return hasher.hexdigest()[:32]


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


def _on_torch(graph: nn.Module, device: str) -> Forward:
    """Return a pass by torch with full float32 precision and repeatable kernels, on any device."""
    import torch

    graph = graph.to(device)

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            given = graph(torch.from_numpy(np.stack(pictures)).to(device))
        return Outputs(**{name: value.float().cpu().numpy() for name, value in zip(NAMES, given, strict=False)})

    return forward


def _on_cpu(name: str, graph: nn.Module, wants: Input, version: str) -> Forward:
    """Return a pass by ONNX Runtime if it can be made to agree with torch, else by torch, with one warning."""
    on_torch = _on_torch(graph, "cpu")
    try:
        return exported(graph, on_torch, wants, version)
    except Exception as error:  # the exporter raises exceptions of many kinds; torch still runs
        reason = str(error).strip().split("\n")[0]
        warnings.warn(f"model {name} runs on torch, which is slower: there is no ONNX graph of it ({reason})", stacklevel=4)
        return on_torch
