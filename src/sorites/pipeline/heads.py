"""The last linear layers of models, kept beside features for scorers that are added to a finished run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sorites.core import Head
from sorites.errors import Damaged
from sorites.files import write_bytes
from sorites.pipeline import shards
from sorites.pipeline.plan import Plan
from sorites.pipeline.tensors import read_tensors
from sorites.table import repair


def keep_heads(plan: Plan, folder: Path) -> None:
    """Write the heads of the plan's models that are not there yet."""
    from safetensors.numpy import save

    for name, model in plan.models.items():
        if model.head is not None and not shards.head(folder, name).exists():
            weight, bias = (np.ascontiguousarray(part, np.float32) for part in model.head)
            write_bytes(save({"weight": weight, "bias": bias}), shards.head(folder, name))


def read_head(folder: Path, model: str) -> Head | None:
    """Read a model's head, or return None where none was kept."""
    path = shards.head(folder, model)
    return read_head_file(path) if path.exists() else None


def read_head_file(path: Path) -> Head:
    """Read the weight and bias of a last layer; a file that is damaged is an error that names it."""
    _, parts = read_tensors(path, ())
    if not {"weight", "bias"} <= parts.keys():
        raise Damaged(path, "it holds no weight and bias", repair(path.parent.parent))
    return parts["weight"], parts["bias"]
