"""Write small files of TensorFlow Lite with the schema that LiteRT itself contains."""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

SIZE, CLASSES = 8, 5


def weights() -> NDArray[np.float32]:
    """The weights of the only layer: classes x (8 x 8 x 3)."""
    rng = np.random.default_rng(0)
    return (rng.normal(size=(CLASSES, SIZE * SIZE * 3)) / 10).astype(np.float32)


def _tensor(name: str, shape: list[int], buffer: int, kind: int) -> schema.TensorT:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer, tensor.type = name, shape, buffer, kind
    if shape[0] == 1:
        tensor.shapeSignature = [-1, *shape[1:]]
    return tensor


def _scaled(tensor: schema.TensorT, scale: float, zero: int) -> schema.TensorT:
    tensor.quantization = schema.QuantizationParametersT()
    tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero]
    return tensor


def _operator(code: int, inputs: list[int], outputs: list[int]) -> schema.OperatorT:
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = code, inputs, outputs
    return operator


def _codes(*builtins: int) -> list[schema.OperatorCodeT]:
    codes = []
    for builtin in builtins:
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = builtin, min(builtin, 127), 1
        codes.append(code)
    return codes


def build(path: Path, quantised: bool = False) -> Path:
    """Write a linear layer on pixels N x 8 x 8 x 3; with ``quantised``, input and output are 8-bit."""
    kinds, builtins = schema.TensorType, schema.BuiltinOperator
    constants = [b"", weights().tobytes(), np.zeros(CLASSES, np.float32).tobytes()]
    tensors = [
        _tensor("images", [1, SIZE, SIZE, 3], 0, kinds.FLOAT32),
        _tensor("weights", [CLASSES, SIZE * SIZE * 3], 1, kinds.FLOAT32),
        _tensor("bias", [CLASSES], 2, kinds.FLOAT32),
        _tensor("logits", [1, CLASSES], 0, kinds.FLOAT32),
    ]
    layer = _operator(0, [0, 1, 2], [3])
    layer.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    layer.builtinOptions = schema.FullyConnectedOptionsT()
    operators, first, last = [layer], 0, 3
    if quantised:
        tensors += [
            _scaled(_tensor("images8", [1, SIZE, SIZE, 3], 0, kinds.INT8), 0.02, -3),
            _scaled(_tensor("logits8", [1, CLASSES], 0, kinds.INT8), 0.05, 4),
        ]
        operators, first, last = [_operator(1, [4], [0]), layer, _operator(2, [3], [5])], 4, 5
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, operators, [first], [last]
    model = schema.ModelT()
    model.version, model.subgraphs = 3, [graph]
    model.operatorCodes = _codes(builtins.FULLY_CONNECTED, builtins.DEQUANTIZE, builtins.QUANTIZE)
    model.buffers = []
    for constant in constants:
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(constant, np.uint8) if constant else None
        model.buffers.append(buffer)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
