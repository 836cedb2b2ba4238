"""The version of a torch module: what its answers depend on, and nothing that a rename would move."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head, Model, Outputs
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.torch_tools import computing, device_of, one_thread
from sorites.models.export import NAMES, Forward, checked, exported, trial_images
from sorites.models.preprocess import Input

if TYPE_CHECKING:
    import torch
    from torch import nn

# Labels of each trial image that enter a version, best first: rounding on another processor does
# not reorder them.
BEST = 5
# The fields of ``Input`` that enter the name of a cache.
CACHE_INPUT = ("size", "mean", "std", "crop_pct", "filter", "mode")


def fingerprint(module: nn.Module, wants: Input, trial: Outputs | None = None) -> str:
    """Return a hash of every weight by name, of how each layer is set, of the preprocessing, and of
    the best labels of some trial images.

    Names of classes are left out, except those of torch itself, which are operations; two layers of
    other classes that hold no weights are told apart by what the model says of the trial images.
    """
    said = (
        ""
        if trial is None or trial.logits is None
        else str(np.argsort(-trial.logits, axis=1, kind="stable")[:, :BEST].tolist())
    )
    return weights_hash(module, digest(_layers(module), wants.model_dump_json(exclude_defaults=True), said))


def cache_fingerprint(module: nn.Module, wants: Input) -> str:
    """Return a hash of every weight by name, of the layers as torch prints them, and of the preprocessing.

    It is what caches of features are named by, and it enters the versions of the encoders ``cifar``
    and ``toy``.
    """
    return weights_hash(module, digest(module, wants.model_dump_json(include=set(CACHE_INPUT))))


def _layers(module: nn.Module) -> str:
    lines = []
    for path, layer in module.named_modules():
        of_torch = type(layer).__module__.startswith("torch.nn.")
        lines.append(f"{path} {type(layer).__name__ if of_torch else ''}({layer.extra_repr()})")
    return "\n".join(lines)


def weights_hash(module: nn.Module, start: bytes) -> str:
    """Return a hash of every weight by name, after what ``start`` holds."""
    import torch

    hasher = hashlib.sha256(start)
    for key, value in module.state_dict().items():
        tensor = (
            value
            if isinstance(value, torch.Tensor)
            else torch.tensor(list(repr(value).encode()), dtype=torch.uint8)
        )
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        hasher.update(digest(key, tensor.dtype, tuple(tensor.shape)))
        hasher.update(flat.view(torch.uint8).numpy().data)
    return hasher.hexdigest()[:32]


# Use a torch module as a model: by ONNX Runtime on a CPU, by torch itself on a GPU or if the export
# fails.


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
        forward = (
            _on_torch(_int8(graph, device), device)
            if how.precision == "int8"
            else _on_torch(graph, device, how.precision)
        )
    else:
        forward = on_torch if device != "cpu" else _on_cpu(name, graph, on_torch, wants, version, trial)
    named = None if labels is None else tuple(labels)
    size = sum(weights.numel() for weights in module.parameters())
    cached = functools.partial(cache_fingerprint, module, wants)
    return Model(
        name,
        checked(name, forward),
        wants.prepare,
        named,
        head,
        version,
        size,
        graph,
        cached,
        input=wants.described,
    )


def _trial(on_torch: Forward, wants: Input) -> Outputs | None:
    """Return what a module gives for the trial images, or None if it fails on them; that is said
    when it is tried.
    """
    try:
        with one_thread():
            return on_torch(trial_images(wants.size))
    except Exception:  # a module raises whatever it likes
        return None


def linear_head(layer: nn.Module) -> Head | None:
    """Return the weights C x D and bias C of a linear layer, or None if the layer is something else."""
    from torch import nn

    if not isinstance(layer, nn.Linear):
        return None
    weight = layer.weight.detach().float().cpu().numpy()
    bias = (
        np.zeros(len(weight), np.float32) if layer.bias is None else layer.bias.detach().float().cpu().numpy()
    )
    return weight, bias


def with_features(network: nn.Module, parts: Callable[[Any, Any], tuple[Any, Any]]) -> nn.Module:
    """Wrap a network whose own forward gives only logits: ``parts(network, x)`` are its logits and
    features together.
    """
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
    """Lay a graph around a module that takes 8-bit N x H x W x 3 and gives (logits,) or (logits,
    features).
    """
    import torch
    from torch import nn

    class Graph(nn.Module):
        mean: torch.Tensor
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.register_buffer(
                "mean", torch.tensor(wants.mean, dtype=torch.float64).mul(255).float().view(1, 3, 1, 1)
            )
            self.register_buffer(
                "scale", torch.tensor(wants.std, dtype=torch.float64).mul(255).float().view(1, 3, 1, 1)
            )

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = self.module((images.permute(0, 3, 1, 2).float() - self.mean) / self.scale)
            return tuple(given)[:2] if isinstance(given, tuple | list) else (given,)

    return Graph().eval()


def _int8(graph: nn.Module, device: str) -> nn.Module:
    """Return a copy whose linear layers compute with 8-bit weights, scaled by what they see."""
    import torch
    from torch import nn

    if device != "cpu" or not any(isinstance(layer, nn.Linear) for layer in graph.modules()):
        raise SoritesError(
            "precision int8 is for models with linear layers, on a CPU; take bfloat16 or float16"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize: Any = torch.ao.quantization.quantize_dynamic
        made: nn.Module = quantize(copy.deepcopy(graph), {nn.Linear}, dtype=torch.qint8)
    return made


def _on_torch(graph: nn.Module, device: str, precision: str = "float32") -> Forward:
    """Return a pass by torch with repeatable kernels, on any device, in full float32 precision
    unless another is named.
    """
    import torch

    graph = graph.to(device)
    kind, number = device.partition(":")[0], getattr(torch, precision)

    def forward(images: list[NDArray[Any]]) -> Outputs:
        exact = torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        )
        lower = torch.autocast(kind, number) if precision != "float32" else contextlib.nullcontext()
        with torch.inference_mode(), exact, lower:
            given = graph(torch.from_numpy(np.stack(images)).to(device))
        return Outputs(
            **{name: value.float().cpu().numpy() for name, value in zip(NAMES, given, strict=False)}
        )

    return forward


def _on_cpu(
    name: str, graph: nn.Module, on_torch: Forward, wants: Input, version: str, trial: Outputs | None
) -> Forward:
    """Return a pass by ONNX Runtime if it can be made to agree with torch, else by torch, with one
    warning.
    """
    try:
        return exported(graph, on_torch, wants, version, trial)
    except Exception as error:  # the exporter raises exceptions of many kinds; torch still runs
        reason = str(error).strip().split("\n")[0]
        warnings.warn(
            f"model {name} runs on torch, which is slower: there is no ONNX graph of it ({reason})",
            stacklevel=4,
        )
        return on_torch


# The torch module behind a model, for what needs its gradients: explanations and attacks.


def module_of(model: Model, verb: str) -> Any:
    """Return the torch module of a model that classifies; any other model is refused by name."""
    if model.output != "label":
        raise SoritesError(f"{verb} wants a model that classifies, and {model.name} finds boxes")
    if model.module is None:
        raise SoritesError(
            f"{verb} needs gradients, and {model.name} has none: an ONNX file or a plain function only gives"
            " answers. Name the torch network itself: lite0, timm:NAME, timm:NAME@WEIGHTS or trained:DIR, or"
            " pass it as a torch module from Python."
        )
    return model.module


def module_device(module: Any) -> Any:
    """Return the device on which a module has its weights; the CPU where it has none."""
    import torch

    return next((weights.device for weights in module.parameters()), torch.device("cpu"))


def logits_of(module: Any, images: torch.Tensor) -> torch.Tensor:
    """Return the logits of images N x H x W x 3 in 0..255."""
    given = module(images)
    logits: torch.Tensor = given[0] if isinstance(given, tuple | list) else given
    return logits


@contextlib.contextmanager
def without_weight_gradients(module: Any) -> Iterator[None]:
    """Take no gradients of the weights inside: only those of images and maps are wanted, and they
    cost half as much alone.
    """
    asked = [weights for weights in module.parameters() if weights.requires_grad]
    for weights in asked:
        weights.requires_grad_(False)
    try:
        yield
    finally:
        for weights in asked:
            weights.requires_grad_(True)
