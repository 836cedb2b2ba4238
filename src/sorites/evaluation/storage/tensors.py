"""Read and write outputs of models stored as safetensors in ``features/``, ``fits/`` and ``heads/``."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head
from sorites.core.errors import Damaged
from sorites.core.table import repair
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage import shards
from sorites.io.files import local_copies, write_bytes
from sorites.io.stores import read_span

Arrays = dict[str, NDArray[np.float32]]
# Metadata of a file: lists with one entry per row, and counts.
About = dict[str, Any]


def read_tensors(
    path: Path, lists: Collection[str], parts: Sequence[str] | None = None
) -> tuple[About, Arrays]:
    """Return the metadata and arrays of a file.

    Args:
        path: The file.
        lists: Metadata that must have one entry per row.
        parts: Names of arrays to read; None reads all.

    Raises:
        Damaged: The file cannot be read or its parts disagree.
    """
    from safetensors import safe_open

    try:
        with safe_open(local_copies([path])[0], "numpy") as file:
            about = {key: json.loads(text) for key, text in (file.metadata() or {}).items()}
            names = sorted(file.keys())
            arrays = {name: file.get_tensor(name) for name in names if parts is None or name in parts}
        problem = _problem(about, arrays, lists)
    except Exception as error:  # corrupt bytes can make the reader raise nearly anything
        raise _damaged(path, error) from error
    if problem:
        raise _damaged(path, problem)
    return about, arrays


def read_header(path: Path) -> About:
    """Return the metadata of a file without reading its arrays.

    Raises:
        Damaged: It is truncated.
    """
    try:
        (length,) = struct.unpack("<Q", read_span(path, 0, 8))
        size = path.stat().st_size
        if length > size:
            raise ValueError("it is cut short")
        header = json.loads(read_span(path, 8, length))
        about = header.pop("__metadata__", {})
        if 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0) != size:
            raise ValueError("it is cut short")
        return {key: json.loads(text) for key, text in about.items()}
    except Exception as error:  # corrupt bytes can make the reader raise nearly anything
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> Damaged:
    return Damaged(path, why, repair(path.parent.parent))


def _problem(about: About, arrays: Arrays, lists: Collection[str]) -> str:
    for name in lists:
        if not isinstance(about.get(name), list):
            return f"it has no {name} for its rows"
    sizes = {len(about[name]) for name in lists} | (
        {len(array) for array in arrays.values()} if lists else set()
    )
    return f"its parts have {' and '.join(map(str, sorted(sizes)))} rows" if len(sizes) > 1 else ""


# Last linear layers, stored with features for scorers that are added to a finished run.


def keep_heads(plan: Plan, folder: Path) -> None:
    """Write the heads of the plan's models that are not stored yet."""
    from safetensors.numpy import save

    for name, model in plan.models.items():
        if model.head is not None and not shards.head(folder, name).exists():
            weight, bias = (np.ascontiguousarray(part, np.float32) for part in model.head)
            write_bytes(save({"weight": weight, "bias": bias}), shards.head(folder, name))


def read_head(folder: Path, model: str) -> Head | None:
    """Read a model's head; None if it was not stored."""
    path = shards.head(folder, model)
    return read_head_file(path) if path.exists() else None


def read_head_file(path: Path) -> Head:
    """Read weight and bias of a last layer.

    Raises:
        Damaged: The file cannot be read.
    """
    _, parts = read_tensors(path, ())
    if not {"weight", "bias"} <= parts.keys():
        raise Damaged(path, "it contains no weight and bias", repair(path.parent.parent))
    return parts["weight"], parts["bias"]
