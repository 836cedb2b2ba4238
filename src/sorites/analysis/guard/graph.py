"""Write a model and its fitted scorer as one ONNX graph, or the scorer alone on top of a model's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from sorites.core import Graph, Scorer
from sorites.core.errors import MissingExtra
from sorites.deploy.guard import FEATURES, LOGITS, SCORE
from sorites.models.trial import TINY
from sorites.scorers.graphs import LEAST_OPSET, Nodes, append_scorer

OPSET = 17


def guarded(graph: Graph, scorer: Scorer, classes: int, width: int) -> bytes:
    """Return the graph of a model with the nodes of a scorer.

    Args:
        graph: The graph of the model.
        scorer: The fitted scorer.
        classes: The number of logits that are used.
        width: The number of features; 0 if there are none.
    """
    onnx = _onnx()
    model = onnx.load_model_from_string(graph.data)
    if _opset(model) < LEAST_OPSET:
        model = onnx.version_converter.convert_version(model, OPSET)
    nodes = Nodes(classes=classes, width=width)
    logits = nodes.add("Cast", graph.logits, to=onnx.TensorProto.FLOAT)
    if graph.log:
        logits = nodes.add("Log", nodes.add("Max", logits, nodes.constant([[TINY]], np.float32)))
    if graph.columns is not None:
        logits = nodes.add("Gather", logits, nodes.constant(graph.columns, np.int64), axis=1)
    features = (
        None if graph.features is None else nodes.add("Cast", graph.features, to=onnx.TensorProto.FLOAT)
    )
    outputs = _appended(nodes, scorer, logits, features)
    model.graph.node.extend(nodes.nodes)
    model.graph.initializer.extend(nodes.constants)
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def scorer_alone(scorer: Scorer, classes: int, width: int) -> bytes:
    """Return the graph of a scorer, with the inputs ``logits`` and ``features``."""
    onnx = _onnx()
    nodes = Nodes(classes=classes, width=width)
    outputs = _appended(nodes, scorer, "logits", "features" if width else None)
    used = {name for node in nodes.nodes for name in node.input}
    sizes = {"logits": classes, "features": width}
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in sizes.items()
        if name in used
    ]
    graph = onnx.helper.make_graph(nodes.nodes, "scorer", inputs, outputs, nodes.constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _appended(nodes: Nodes, scorer: Scorer, logits: str, features: str | None) -> list[Any]:
    """Append the nodes of a scorer and return the outputs of the graph."""
    onnx = _onnx()
    nodes.logits = nodes.wide(logits)
    nodes.features = None if features is None else nodes.wide(features)
    score = append_scorer(nodes, scorer)
    named: dict[str, tuple[str, int, list[str | int]]] = {
        SCORE: (nodes.add("Reshape", score, nodes.constant([-1], np.int64)), onnx.TensorProto.DOUBLE, ["n"])
    }
    named[LOGITS] = logits, onnx.TensorProto.FLOAT, ["n", nodes.classes]
    if features is not None:
        named[FEATURES] = features, onnx.TensorProto.FLOAT, ["n", nodes.width]
    outputs = []
    for name, (tensor, kind, shape) in named.items():
        nodes.nodes.append(onnx.helper.make_node("Identity", [tensor], [name]))
        outputs.append(onnx.helper.make_tensor_value_info(name, kind, shape))
    return outputs


def _opset(model: Any) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def _onnx() -> Any:
    try:
        import onnx
        import onnx.version_converter
    except ImportError as error:
        raise MissingExtra("a guard", "torch") from error
    return onnx
