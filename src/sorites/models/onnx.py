"""Use any ONNX classifier: ``onnx:PATH``.

Layout, type and size are read from the graph (a free size is 224). What a graph cannot say is read
from its metadata, or from a JSON file beside it called ``PATH.json``, which has the same keys and
takes precedence:

- ``size mean std crop_pct filter mode``: as in ``sorites.models.preprocess.Input``; mean and std are those of
  pixels in 0..1 and default to ImageNet's (a graph that wants 0..255 has mean 0 and std 1/255);
- ``labels``: class ids in the order of the logits, or ``"imagenet"``;
- ``layout``: ``"NCHW"`` or ``"NHWC"``, only if the graph leaves it open.

A graph with 8-bit input is fed images as they are. Its 2-D output is taken as logits; a second
one named like features is the features. If the graph ends in a linear layer and the ``onnx``
package is installed, that layer is the head, its input is the features, and its output is the
logits even if a softmax follows; without the package, probabilities are turned back into logits (up
to a constant per row) by their logarithm.
"""

from __future__ import annotations

import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.io.paths import is_file
from sorites.io.readers import json_file, json_value
from sorites.models import session as _session
from sorites.models.export import Forward, checked, rows, trial_images
from sorites.models.preprocess import Channels, Input

# Read the two ends of an ONNX classifier: its input, and which of its outputs are logits and features.


TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}
FEATURES = re.compile(r"feat|embed|pre_?logit|penult|pool", re.IGNORECASE)
LOGITS = re.compile(r"logit|prob|class|score|pred", re.IGNORECASE)


class Normalised(Protocol):
    """Anything with what normalising needs: mean and std of pixels in 0..1."""

    @property
    def mean(self) -> Channels: ...

    @property
    def std(self) -> Channels: ...


@dataclass(frozen=True)
class GraphInput:
    """The one input of a graph: its layout and type, and its size and batch if the graph fixes them."""

    layout: str
    dtype: type[np.generic]
    size: tuple[int, int] | None
    batch: int | None

    def shaped(self, images: NDArray[np.uint8], wants: Normalised) -> NDArray[Any]:
        """Return images (8 bits, N x H x W x 3) as the graph wants them; an 8-bit input is not
        normalised.
        """
        batch: NDArray[Any] = images
        if self.dtype is not np.uint8:
            mean, std = (np.float32(np.multiply(part, 255.0)) for part in (wants.mean, wants.std))
            batch = ((images - mean) / std).astype(self.dtype)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) if self.layout == "NCHW" else batch


@dataclass(frozen=True)
class GraphOutputs:
    """The names of the outputs that are read as logits and features."""

    logits: str
    features: str | None = None


def read_input(session: Any, layout: str, path: Path) -> GraphInput:
    """Return the input of a session; ``layout`` counts only if the graph leaves it open."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise SoritesError(
            f"{path}: wanted one input (images), got {len(inputs)}: {', '.join(i.name for i in inputs)}"
        )
    return read_images(inputs[0].shape, inputs[0].type, layout, path)


def read_images(shape: list[Any], kind: str, layout: str, path: Path) -> GraphInput:
    """Return an input of this shape and type, which must be one for images."""
    if kind not in TYPES:
        raise SoritesError(f"{path}: wanted an input of {', '.join(TYPES)}, got {kind}")
    places = _layout(shape, layout)
    if places is None:
        raise SoritesError(f"{path}: wanted an input of N x 3 x H x W or N x H x W x 3, got {shape}")
    fixed = [side if isinstance(side, int) else None for side in shape]
    height, width = (fixed[places.index(axis)] for axis in "HW")
    return GraphInput(
        places, TYPES[kind], None if height is None or width is None else (height, width), fixed[0]
    )


def _layout(shape: list[Any], hint: str) -> str | None:
    if len(shape) != 4:
        return None
    open_ones = [name for name in ("NCHW", "NHWC") if not isinstance(shape[name.index("C")], int)]
    sure = [name for name in ("NCHW", "NHWC") if shape[name.index("C")] == 3]
    if len(sure) == 1:
        return sure[0]
    either = sure or open_ones
    return hint if hint in either else next(iter(either), None)


def read_outputs(session: Any, path: Path) -> GraphOutputs:
    """Return the outputs of a session: logits are the 2-D output named so, else the first that is
    not named like features.
    """
    outputs = session.get_outputs()
    flat = [o.name for o in outputs if len(o.shape or (0, 0)) == 2 and "float" in o.type]
    if not flat:
        came = ", ".join(f"{o.name} {o.shape}" for o in outputs)
        raise SoritesError(f"{path}: wanted a 2-D output (images x classes), got {came}")
    plain = [name for name in flat if not FEATURES.search(name)] or flat[:1]
    logits = next((name for name in plain if LOGITS.search(name)), plain[0])
    return GraphOutputs(
        logits, next((name for name in flat if FEATURES.search(name) and name != logits), None)
    )


# The files in which an ONNX graph keeps its weights, read from the graph itself and without the ``onnx``
# package.


# Nested parts that are followed: a graph inside a branch inside a function is about ten deep.
DEEPEST = 24

_TENSOR: dict[int, str] = {13: "entry"}
# Kind of message to its fields that lead on, by number; an ``entry`` is a key (1) and its value
# (2).
_PATHS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": _TENSOR,
}
_VARINT, _EIGHT, _NESTED, _FOUR = 0, 1, 2, 5


def external_files(path: Path) -> list[Path]:
    """Return the files beside a graph that hold some of its weights, in order of their names; none
    where it cannot be read.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            named = sorted(set(_locations(data, 0, len(data), "model", 0)))
    except (OSError, ValueError, IndexError):
        return []
    inside = [name for name in named if name and not PurePosixPath(name).is_absolute() and "\0" not in name]
    return [place for name in inside if (place := path.parent / name).is_file()]


def _locations(data: mmap.mmap, start: int, stop: int, kind: str, depth: int) -> Iterator[str]:
    """Yield the value of every ``location`` among the external data of the tensors of a message."""
    if depth > DEEPEST:
        return
    for number, first, last in _fields(data, start, stop):
        inner = _PATHS[kind].get(number)
        if inner == "entry":
            entry = {key: data[a:b] for key, a, b in _fields(data, first, last)}
            if entry.get(1) == b"location":
                yield entry.get(2, b"").decode("utf-8")
        elif inner is not None:
            yield from _locations(data, first, last, inner, depth + 1)


def _fields(data: mmap.mmap, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield the number and the place of each nested field; others are passed over."""
    while start < stop:
        key, start = _number(data, start, stop)
        if key & 7 == _VARINT:
            _, start = _number(data, start, stop)
            continue
        wide = {_EIGHT: 8, _FOUR: 4}.get(key & 7)
        if wide is None and key & 7 != _NESTED:
            raise ValueError("not a protocol buffer")
        length, start = (wide, start) if wide is not None else _number(data, start, stop)
        if start + length > stop:
            raise ValueError("a field ends behind its message")
        if wide is None:
            yield key >> 3, start, start + length
        start += length


def _number(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    """Return a number of seven bits per byte, and where it ends."""
    value = 0
    for place in range(start, min(stop, start + 10)):
        value |= (data[place] & 127) << (7 * (place - start))
        if data[place] < 128:
            return value, place + 1
    raise ValueError("a number without an end")


# Read an ONNX graph backwards from its logits, to find the last linear layer and what goes into it.


Array = NDArray[np.float32]
# The weight and bias of a linear layer, and the name of the tensor it reads.
WeightBiasInput = tuple[Array, Array, str]


@dataclass(frozen=True)
class LastLinear:
    """The last linear layer: weights C x D, bias C, and the names of the tensors it reads (D wide)
    and makes (C wide).
    """

    weight: Array
    bias: Array
    reads: str
    makes: str


def last_linear(graph: Any, logits: str) -> LastLinear | None:
    """Return the layer that makes ``logits``, looking past a closing softmax; None if the graph
    ends otherwise.
    """
    from onnx import numpy_helper

    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer if not tensor.external_data}
    constants |= {
        n.output[0]: n.attribute[0].t
        for n in graph.node
        if n.op_type == "Constant" and n.attribute[0].name == "value"
    }

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


def _matmul(
    node: Any, makers: dict[str, Any], value: Callable[[str], Array | None]
) -> WeightBiasInput | None:
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


# An ONNX graph in a file: opening it, and the hash that identifies it.


def opened(path: Path) -> Any:
    """Return a session over the graph; a file that ONNX Runtime cannot run is named."""
    try:
        return _session.session(str(path))
    except Exception as error:  # ONNX Runtime has an exception for each way a file can be wrong
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"{path} is not an ONNX model that ONNX Runtime can run: {reason}") from error


def version_of(path: Path) -> str:
    """Return one SHA-256 of the file, of its weights and settings beside it (PATH.data, PATH.json),
    and of every other file in which the graph says its weights are.
    """
    beside = [Path(f"{path}{suffix}") for suffix in ("", ".data", ".json")]
    hasher = hashlib.sha256()
    for part in [*beside, *(file for file in external_files(path) if file not in beside)]:
        if part.is_file():
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    hasher.update(block)
    return hasher.hexdigest()


KEYS = (*Input.model_fields, "labels", "layout")


@add_model
def onnx(argument: str | None) -> Model:
    """Run an ONNX classifier (onnx:PATH); mean, std and labels come from its metadata or from PATH.json."""
    if argument is None or not is_file(argument):
        raise SoritesError(f"model onnx: wanted a file, got {argument or 'nothing'}. Type: onnx:PATH")
    path, name = Path(argument), f"onnx:{argument}"
    session = opened(path)
    config = _config(path, session)
    labels, layout = config.pop("labels", None), config.pop("layout", "")
    graph_input = read_input(session, str(layout), path)
    wants = Input.read(config | ({} if graph_input.size is None else {"size": graph_input.size}), str(path))
    session, outputs, head = _with_head(path, session, read_outputs(session, path))
    forward = _forward(session, graph_input, outputs, wants)
    first = _first_pass(name, forward, wants)
    if _are_probabilities(first):
        forward = _log(forward)
    known = _labels(labels, first.shape[1], path)
    return Model(
        name, checked(name, forward), wants.prepare, known, head, version_of(path), input=wants.described
    )


def _config(path: Path, session: Any) -> dict[str, Any]:
    """Return the keys that the metadata and the JSON file beside the graph give."""
    metadata = session.get_modelmeta().custom_metadata_map
    config = {key: _plain(metadata[key]) for key in KEYS if key in metadata}
    beside = Path(f"{path}.json")
    if not is_file(beside):
        return config
    from_file = json_file(beside)
    if not isinstance(from_file, dict):
        kind = type(from_file).__name__
        raise SoritesError(f"{beside}: wanted an object with some of the keys {', '.join(KEYS)}, got {kind}")
    return config | from_file


def _plain(text: str) -> Any:
    """Return a value of the metadata, which is text: as JSON if it reads as JSON, else as it is."""
    try:
        return json_value(text)
    except ValueError:
        return text


def _labels(given: Any, classes: int, path: Path) -> tuple[str, ...] | None:
    if given is None:
        return None
    ids = imagenet().ids if given == "imagenet" else given
    if not isinstance(ids, list | tuple) or not all(isinstance(i, str) for i in ids) or len(ids) != classes:
        raise SoritesError(
            f'{path}: wanted labels: a list of {classes} class ids, or "imagenet" for 1000, got'
            f" {str(given)[:60]}"
        )
    return tuple(ids)


def _with_head(path: Path, session: Any, outputs: GraphOutputs) -> tuple[Any, GraphOutputs, Any]:
    """Return a session with both ends of the last linear layer among its outputs, their names, and the layer.

    If the layer cannot be read, the session and the names are those given, and the layer is None.
    """
    try:
        from onnx import load
    except ImportError:
        return session, outputs, None
    model = load(str(path), load_external_data=False)
    last = last_linear(model.graph, outputs.logits)
    if last is None or any(tensor.external_data for tensor in model.graph.initializer):
        return session, outputs, None
    ends = GraphOutputs(last.makes, last.reads)
    return _session.session(exposed(model, [last.makes, last.reads])), ends, (last.weight, last.bias)


def _forward(session: Any, graph_input: GraphInput, outputs: GraphOutputs, wants: Input) -> Forward:
    names = [name for name in (outputs.logits, outputs.features) if name is not None]

    def forward(images: list[NDArray[Any]]) -> Outputs:
        logits, *rest = _session.run(
            session, graph_input.shaped(np.stack(images), wants), names, graph_input.batch
        )
        return Outputs(logits, rest[0] if rest else None)

    return forward


def _first_pass(name: str, forward: Forward, wants: Input) -> NDArray[np.float32]:
    """Return the logits of the trial images, so that a graph that cannot run says so now and not
    in the middle of a run.
    """
    images = trial_images(wants.size)
    try:
        given = forward(list(images))
    except Exception as error:  # ONNX Runtime has many exceptions for this too
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"model {name} does not run on images of {wants.size}: {reason}") from error
    return rows(name, "logits", given.logits, len(images))


def _are_probabilities(values: NDArray[np.float32]) -> bool:
    return values.shape[1] > 1 and bool((values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=1e-3))


def _log(forward: Forward) -> Callable[[list[NDArray[Any]]], Outputs]:
    tiny = np.finfo(np.float32).tiny

    def logged(images: list[NDArray[Any]]) -> Outputs:
        given = forward(images)
        return Outputs(np.log(np.maximum(np.asarray(given.logits, np.float32), tiny)), given.features)

    return logged
