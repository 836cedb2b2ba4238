"""Use torch modules as models: versions, ONNX export, precision, and access to gradients."""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.core import Backend, Head, Model, Outputs
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.passes import Inputs, Staged, Wait
from sorites.core.compute.torch_tools import compute_options, device_of
from sorites.core.compute.transfers import start_fetch
from sorites.core.errors import Notice, SoritesError
from sorites.core.rng import digest
from sorites.io.paths import FileState, file_states
from sorites.models.export import NAMES, checked, exported, graph_of
from sorites.models.preprocess import Input
from sorites.models.trial import TINY, Forward, are_probabilities, note_probabilities, trial_images

if TYPE_CHECKING:
    import torch
    from torch import nn

# The number of top labels of each trial image that enter a version; rounding on other processors does not
# reorder them.
BEST = 5
# The fields of ``Input`` that enter cache keys.
CACHE_INPUT = ("size", "mean", "std", "crop_pct", "filter", "mode")


def fingerprint(
    module: nn.Module, wants: Input, trial: Outputs | None = None, files: Sequence[Path] = ()
) -> str:
    """Return a hash of all weights, of the configuration of each layer, of the preprocessing, and of the top
    labels of the trial images.

    Class names are only included for torch's own layers, so that renaming a class does not change the
    version; other layers without weights are distinguished by the outputs for the trial images.
    """
    top_labels = (
        ""
        if trial is None or trial.logits is None
        else str(np.argsort(-trial.logits, axis=1, kind="stable")[:, :BEST].tolist())
    )
    start = digest(_layers(module), wants.model_dump_json(exclude_defaults=True), top_labels)
    known = _known_hash(file_states(files), start) if files else []
    if not known:
        known.append(weights_hash(module, start))
    return known[0]


@functools.lru_cache(maxsize=64)
def _known_hash(files: tuple[FileState, ...], start: bytes) -> list[str]:
    """Return the list that keeps the hash of the weights in these files; it is empty before the first use."""
    return []


def cache_fingerprint(module: nn.Module, wants: Input) -> str:
    """Return a hash of all weights, of the layers as torch prints them, and of the preprocessing.

    It is the key of feature caches, and part of the versions of the encoders ``cifar`` and ``toy``.
    """
    return weights_hash(module, digest(module, wants.model_dump_json(include=set(CACHE_INPUT))))


def _layers(module: nn.Module) -> str:
    lines = []
    for path, layer in module.named_modules():
        of_torch = type(layer).__module__.startswith("torch.nn.")
        lines.append(f"{path} {type(layer).__name__ if of_torch else ''}({layer.extra_repr()})")
    return "\n".join(lines)


def weights_hash(module: nn.Module, start: bytes) -> str:
    """Return a hash of ``start`` followed by all weights with their names."""
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


# Models from torch modules: on ONNX Runtime for a CPU, on torch for a GPU or if the export fails.


def torch_model(
    name: str,
    module: nn.Module,
    wants: Input,
    labels: Sequence[str] | None = None,
    head: Head | None = None,
    files: Sequence[Path] = (),
) -> Model:
    """Return a model from a torch module.

    Args:
        name: The name of the model.
        module: Maps normalised N x 3 x H x W to logits, or to (logits, features).
        wants: The input of the model.
        labels: The class ids in the order of the logits.
        head: The weights and bias of the last linear layer.
        files: The files that contain all weights of the module. Weights from unchanged files are hashed
            once per process.
    """

    module = module.eval().float()
    graph = _graph(module, wants)
    settings = compute_options()
    device, precision = device_of(settings.device), settings.precision or "float32"
    on_torch, backend = _on_torch(graph, device), Backend("torch", device, precision, batch_matters=True)
    trial = _trial(on_torch, wants)
    version = fingerprint(module, wants, trial, files)
    probabilities = trial is not None and trial.logits is not None and are_probabilities(trial.logits)
    if probabilities:
        graph = _graph(module, wants, log=True)
        on_torch = _on_torch(graph, device)
        trial, version = _trial(on_torch, wants), digest(version, "log").hex()
    forward = on_torch
    if precision == "int8":
        forward, backend = (
            _one_by_one(_on_torch(_int8(graph, device), device)),
            Backend("torch", device, precision),
        )
    elif precision != "float32":
        forward = _on_torch(graph, device, precision)
    elif device == "cpu":
        forward, backend = _on_cpu(name, graph, on_torch, wants, version, trial) or (on_torch, backend)
    class_ids = None if labels is None else tuple(labels)
    size = sum(weights.numel() for weights in module.parameters())
    cache_version = functools.cache(functools.partial(cache_fingerprint, module, wants))
    model = Model(
        name,
        checked(name, forward),
        wants.prepare,
        class_ids,
        head,
        version,
        size,
        graph,
        cache_version,
        input=wants.described,
        scale="logits",
        backend=backend,
        graph=functools.partial(graph_of, graph, on_torch, wants, version),
    )
    return note_probabilities(model) if probabilities else model


def _trial(on_torch: Forward, wants: Input) -> Outputs | None:
    """Return the outputs for the trial images, or None if the module fails on them; the error is raised when
    the model is used.
    """
    try:
        return on_torch(trial_images(wants.size))
    except Exception:  # a user's module may raise anything
        return None


def linear_head(layer: nn.Module) -> Head | None:
    """Return the weights C x D and bias C of a linear layer, or None for other layers."""
    from torch import nn

    if not isinstance(layer, nn.Linear):
        return None
    weight = layer.weight.detach().float().cpu().numpy()
    bias = (
        np.zeros(len(weight), np.float32) if layer.bias is None else layer.bias.detach().float().cpu().numpy()
    )
    return weight, bias


def with_features(network: nn.Module, parts: Callable[[Any, Any], tuple[Any, Any]]) -> nn.Module:
    """Wrap a network whose forward gives only logits; ``parts(network, x)`` returns logits and features."""
    from torch import nn

    class OnePass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return parts(self.network, x)

        def _get_name(self) -> str:
            return "OnePass"  # part of cache_fingerprint

    return OnePass()


def _graph(module: nn.Module, wants: Input, log: bool = False) -> nn.Module:
    """Wrap a module so that it takes 8-bit N x H x W x 3 and returns (logits,) or (logits, features).

    With ``log``, the module returns probabilities, and logits are their logarithm.
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
            outputs = self.module((images.permute(0, 3, 1, 2).float() - self.mean) / self.scale)
            logits, *features = tuple(outputs)[:2] if isinstance(outputs, tuple | list) else (outputs,)
            return (logits.clamp(min=TINY).log() if log else logits, *features)

    return Graph().eval()


def _int8(graph: nn.Module, device: str) -> nn.Module:
    """Return a copy with dynamically quantised 8-bit linear layers."""
    import torch
    from torch import nn

    if device != "cpu" or not any(isinstance(layer, nn.Linear) for layer in graph.modules()):
        raise SoritesError(
            "precision int8 needs a model with linear layers on a CPU; use bfloat16 or float16 instead"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize: Any = torch.ao.quantization.quantize_dynamic
        quantised: nn.Module = quantize(copy.deepcopy(graph), {nn.Linear}, dtype=torch.qint8)
    return quantised


def _on_torch(graph: nn.Module, device: str, precision: str = "float32") -> Forward:
    """Return a forward function on torch with deterministic kernels, in the given precision."""
    import torch

    graph = graph.to(device)
    kind, dtype = device.partition(":")[0], getattr(torch, precision)

    def start(images: Inputs) -> Wait:
        autocast = torch.autocast(kind, dtype) if precision != "float32" else contextlib.nullcontext()
        batch = torch.from_numpy(images if isinstance(images, np.ndarray) else np.stack(images))
        with torch.inference_mode(), reproducible(device), autocast:
            outputs = graph(batch.to(device, non_blocking=True))
            fetched = start_fetch(outputs[: len(NAMES)])

        def wait() -> Outputs:
            logits, *features = fetched()
            return Outputs(logits, features[0] if features else None)

        return wait

    return Staged(start)


def _one_by_one(forward: Forward) -> Forward:
    """Return a forward function with one image per pass: 8-bit layers scale activations by the largest value
    of a pass.
    """
    return lambda images: Outputs.join([forward([image]) for image in images])


def _on_cpu(
    name: str, graph: nn.Module, on_torch: Forward, wants: Input, version: str, trial: Outputs | None
) -> tuple[Forward, Backend] | None:
    """Return a forward function on ONNX Runtime, or None with a warning if the export fails."""
    try:
        return exported(graph, on_torch, wants, version, trial)
    except Exception as error:  # the exporter raises many kinds of errors
        reason = str(error).strip().split("\n")[0]
        text = f"model {name} runs on torch, which is slower: it has no ONNX graph ({reason})"
        warnings.warn(Notice(text, code="not_exported", model=name), stacklevel=4)
        return None


# The torch module behind a model, for explanations and attacks, which need gradients.


def module_of(model: Model, verb: str) -> Any:
    """Return the torch module of a classifier; raise ``SoritesError`` for other models."""
    if model.output != "label":
        raise SoritesError(f"{verb} needs a classifier, but {model.name} is a detector")
    if model.module is None:
        raise SoritesError(
            f"{verb} needs gradients, which {model.name} does not provide, because it is an ONNX file or a"
            " plain function. Use a torch network: lite0, timm:NAME, timm:NAME@WEIGHTS or trained:DIR, or"
            " pass a torch module from Python."
        )
    return model.module


def module_device(module: Any) -> Any:
    """Return the device of the weights of a module; the CPU if it has none."""
    import torch

    return next((weights.device for weights in module.parameters()), torch.device("cpu"))


def logits_of(module: Any, images: torch.Tensor) -> torch.Tensor:
    """Return the logits of images N x H x W x 3 in 0..255."""
    outputs = module(images)
    logits: torch.Tensor = outputs[0] if isinstance(outputs, tuple | list) else outputs
    return logits


def in_passes(
    function: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor, size: int | None
) -> torch.Tensor:
    """Apply a function to rows in passes of exactly ``size`` rows, filled up with copies of the last row,
    whose results are dropped; None takes all rows at once.
    """
    import torch

    if size is None:
        return function(rows)
    missing = -len(rows) % size
    padded = torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing else rows
    return torch.cat([function(part) for part in torch.split(padded, size)])[: len(rows)]


@contextlib.contextmanager
def without_weight_gradients(module: Any) -> Iterator[None]:
    """Disable gradients of the weights, which halves the cost of gradients of images."""
    trainable = [weights for weights in module.parameters() if weights.requires_grad]
    for weights in trainable:
        weights.requires_grad_(False)
    try:
        yield
    finally:
        for weights in trainable:
            weights.requires_grad_(True)
