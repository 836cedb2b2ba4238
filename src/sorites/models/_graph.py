"""Read an ONNX graph backwards from its logits, to find the last linear layer and what goes into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
WeightBiasInput = tuple[Array, Array, str]
"""The weight and bias of a linear layer, and the name of the tensor it reads."""


@dataclass(frozen=True)
class LastLinear:
    """The last linear layer: weights C x D, bias C, and the names of the tensors it reads (D wide) and makes (C wide)."""

    weight: Array
    bias: Array
    reads: str
    makes: str


def last_linear(graph: Any, logits: str) -> LastLinear | None:
    """Return the layer that makes ``logits``, looking past a closing softmax; None if the graph ends otherwise."""
    from onnx import numpy_helper

    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer if not tensor.external_data}
    constants |= {n.output[0]: n.attribute[0].t for n in graph.node if n.op_type == "Constant" and n.attribute[0].name == "value"}

    def value(name: str) -> Array | None:
        return numpy_helper.to_array(constants[name]).astype(np.float32) if name in constants else None

    node = makers.get(logits)
    while node is not None and node.op_type in ("Softmax", "LogSoftmax", "Identity"):
        node = makers.get(node.input[0])
    if node is None:
        return None
    found = _gemm(node, value) if node.op_type == "Gemm" else _matmul(node, makers, value)
    return (
        None
        if found is None or found[1].size != len(found[0])
        else LastLinear(found[0], found[1].reshape(-1), found[2], node.output[0])
    )


def _gemm(node: Any, value: Callable[[str], Array | None]) -> WeightBiasInput | None:
    attributes = {a.name: a for a in node.attribute}
    scaled = any(attributes[key].f != 1 for key in ("alpha", "beta") if key in attributes)
    weight_transposed = "transB" in attributes and attributes["transB"].i
    input_transposed = "transA" in attributes and attributes["transA"].i
    weight = value(node.input[1])
    if weight is None or scaled or input_transposed:
        return None
    weight = weight if weight_transposed else np.ascontiguousarray(weight.T)
    bias = value(node.input[2]) if len(node.input) > 2 else np.zeros(len(weight), np.float32)
    return None if bias is None else (weight, bias, node.input[0])


def _matmul(node: Any, makers: dict[str, Any], value: Callable[[str], Array | None]) -> WeightBiasInput | None:
    """Read a MatMul alone, or a MatMul and then an Add with its operands in either order."""
    bias: Array | None = None
    if node.op_type == "Add":
        sides = [(value(node.input[i]), makers.get(node.input[1 - i])) for i in (0, 1)]
        bias, node = next(((b, n) for b, n in sides if b is not None and n is not None), (None, node))
    if node.op_type != "MatMul":
        return None
    weight = value(node.input[1])
    if weight is None or weight.ndim != 2:
        return None
    weight = np.ascontiguousarray(weight.T)
    return weight, np.zeros(len(weight), np.float32) if bias is None else bias, node.input[0]


def exposed(model: Any, names: list[str]) -> bytes:
    """Return the same model, serialised, with further inner tensors among its outputs."""
    from onnx import ValueInfoProto

    there = {output.name for output in model.graph.output}
    model.graph.output.extend(ValueInfoProto(name=name) for name in names if name not in there)
    return bytes(model.SerializeToString())
