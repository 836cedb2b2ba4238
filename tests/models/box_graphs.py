"""ONNX graphs with known outputs, in the layouts in which detectors are exported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

IMAGES = {"images": (TensorProto.FLOAT, (1, 3, 64, 64))}
CELLS = 84
"""The cells of an input of 64 px: 64 of stride 8, 16 of stride 16, 4 of stride 32."""


def save(
    path: Path,
    nodes: list[Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    constants: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write a graph; inputs and outputs are (type, shape) by name."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    save_model(model, str(path))
    return str(path)


def constant(
    path: Path,
    outputs: Mapping[str, np.ndarray],
    inputs: Mapping[str, Any] = IMAGES,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write a detector that finds the same whatever it sees."""
    arrays = {
        name: value.astype(np.float32) if value.dtype.kind == "f" else value
        for name, value in outputs.items()
    }
    nodes = [helper.make_node("Identity", [f"{name}_inner"], [name]) for name in arrays]
    kinds = {
        name: (helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in arrays.items()
    }
    return save(
        path, nodes, inputs, kinds, {f"{name}_inner": value for name, value in arrays.items()}, metadata
    )


def pixels(path: Path, size: tuple[int, int] = (64, 64), at: tuple[int, int] = (0, 0)) -> str:
    """Write a detector in rows whose three boxes, of classes 0 to 2, have the colours of one input
    pixel as scores.
    """
    y, x = at
    nodes = [
        helper.make_node("Slice", ["images", "start", "end"], ["spot"]),
        helper.make_node("Reshape", ["spot", "shape"], ["scores"]),
        helper.make_node("Concat", ["boxes", "scores", "classes"], ["rows"], axis=2),
    ]
    constants = {
        "start": np.array([0, 0, y, x]),
        "end": np.array([1, 3, y + 1, x + 1]),
        "shape": np.array([1, 3, 1]),
        "boxes": np.tile(np.array([16, 20, 32, 36], np.float32), (1, 3, 1)),
        "classes": np.array([[[0], [1], [2]]], np.float32),
    }
    return save(
        path,
        nodes,
        {"images": (TensorProto.FLOAT, (1, 3, *size))},
        {"rows": (TensorProto.FLOAT, (1, 3, 6))},
        constants,
    )


def cell(x: int, y: int) -> int:
    """Return the row of a cell of stride 8."""
    return y * 8 + x
