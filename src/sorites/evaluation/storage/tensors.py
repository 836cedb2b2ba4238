"""Read and write outputs of models stored as safetensors in ``features/``, ``fits/`` and ``heads/``."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Head, Outputs
from sorites.core.errors import Damaged
from sorites.core.table import repair
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage.shards import HEADS, SAFETENSORS, slug, tensor_files
from sorites.io import digests
from sorites.io.sealed_tensors import sorted_header

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
        Damaged: The file does not match its digest, or its parts disagree.
    """
    from safetensors.numpy import load

    data = digests.read_shard(path, repair(path.parent.parent))
    about, arrays = _metadata(path, data), load(data)
    chosen = {name: arrays[name] for name in sorted(arrays) if parts is None or name in parts}
    if problem := _problem(about, chosen, lists):
        raise _damaged(path, problem)
    return about, chosen


def write_tensors(folder: Path, stem: str, arrays: Mapping[str, NDArray[Any]], **about: Any) -> Path:
    """Write arrays and their metadata as a safetensors file, and return its path.

    Args:
        folder: The folder.
        stem: The name of the file without digest and suffix.
        arrays: The arrays.
        about: The metadata.
    """
    from safetensors.numpy import save

    metadata = {name: json.dumps(value) for name, value in about.items()}
    data = sorted_header(save(dict(arrays), metadata=metadata or None))
    return digests.write_shard(folder, stem, SAFETENSORS, data)


def arrays_of(outputs: Outputs) -> Arrays:
    """Return the logits and features of outputs, as far as they have them."""
    parts = {"features": outputs.features, "logits": outputs.logits}
    return {name: array for name, array in parts.items() if array is not None}


def read_header(path: Path) -> About:
    """Return the metadata of a file.

    Raises:
        Damaged: It does not match its digest.
    """
    return _metadata(path, digests.read_shard(path, repair(path.parent.parent)))


def _metadata(path: Path, data: bytes) -> About:
    try:
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        return {key: json.loads(text) for key, text in header.get("__metadata__", {}).items()}
    except (struct.error, ValueError) as error:
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
    stored = tensor_files(folder, HEADS)
    for name, model in plan.models.items():
        if model.head is not None and slug(name) not in stored:
            weight, bias = (np.ascontiguousarray(part, np.float32) for part in model.head)
            write_tensors(folder / HEADS, slug(name), {"weight": weight, "bias": bias})


def read_head(folder: Path, model: str) -> Head | None:
    """Read a model's head; None if it was not stored."""
    path = tensor_files(folder, HEADS).get(slug(model))
    return None if path is None else read_head_file(path)


def read_head_file(path: Path) -> Head:
    """Read weight and bias of a last layer.

    Raises:
        Damaged: The file does not match its digest.
    """
    _, parts = read_tensors(path, ())
    if not {"weight", "bias"} <= parts.keys():
        raise _damaged(path, "it contains no weight and bias")
    return parts["weight"], parts["bias"]
