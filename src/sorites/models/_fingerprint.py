"""The version of a torch module: what its answers depend on, and nothing that a rename would move."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from sorites.core import Outputs
from sorites.models._preprocess import Input
from sorites.rng import digest

if TYPE_CHECKING:
    from torch import nn

BEST = 5
"""Labels of each trial picture that enter a version, best first: rounding on another processor does not reorder them."""
CACHE_INPUT = ("size", "mean", "std", "crop_pct", "filter", "mode")
"""The fields of ``Input`` that enter the name of a cache."""


def fingerprint(module: nn.Module, wants: Input, trial: Outputs | None = None) -> str:
    """Return a hash of every weight by name, of how each layer is set, of the preprocessing, and of the best labels of some
    trial pictures.

    Names of classes are left out, except those of torch itself, which are operations; two layers of other classes that hold no
    weights are told apart by what the model says of the trial pictures.
    """
    said = (
        "" if trial is None or trial.logits is None else str(np.argsort(-trial.logits, axis=1, kind="stable")[:, :BEST].tolist())
    )
    return weights_hash(module, digest(_layers(module), wants.model_dump_json(exclude_defaults=True), said))


def cache_fingerprint(module: nn.Module, wants: Input) -> str:
    """Return a hash of every weight by name, of the layers as torch prints them, and of the preprocessing.

    It is what caches of features are named by, and it enters the versions of the referees ``cifar`` and ``toy``.
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
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(list(repr(value).encode()), dtype=torch.uint8)
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        hasher.update(digest(key, tensor.dtype, tuple(tensor.shape)))
        hasher.update(flat.view(torch.uint8).numpy().data)
    return hasher.hexdigest()[:32]
