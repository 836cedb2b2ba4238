"""Use any ONNX classifier: ``onnx:PATH``.

Layout, type and size are read from the graph (default size: 224). Other settings are read from the
metadata of the graph, or from a JSON file ``PATH.json``, which has the same keys and takes precedence:

- ``size mean std crop_pct filter mode``: as in ``sorites.models.preprocess.Input``; mean and std refer to
  pixels in 0..1 and default to ImageNet's (for a graph that expects 0..255: mean 0 and std 1/255);
- ``labels``: class ids in the order of the logits, or ``"imagenet"``;
- ``layout``: ``"NCHW"`` or ``"NHWC"``, only used if the graph does not define it.

A graph with 8-bit input gets images without normalisation. Its 2-D output is used as logits; a second
output with a name like features is used as features. If the graph ends in a linear layer and the ``onnx``
package is installed, that layer is the head, its input the features and its output the logits, even if a
softmax follows; without the package, probabilities are converted to logits (up to a constant per row) by
their logarithm.
"""

from __future__ import annotations

import functools
import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.core import Graph, Model, Outputs, add_model
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.specs import split_path
from sorites.io.paths import FileState, file_states, is_file
from sorites.io.readers import json_file, json_value
from sorites.models import session as _session
from sorites.models.export import checked, rows
from sorites.models.options import options
from sorites.models.preprocess import Channels, Input
from sorites.models.trial import Forward, trial_images, with_logits

# Inputs and outputs of an ONNX classifier.


TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
}
FEATURES = re.compile(r"feat|embed|pre_?logit|penult|pool", re.IGNORECASE)
LOGITS = re.compile(r"logit|prob|class|score|pred", re.IGNORECASE)


class Normalised(Protocol):
    """Anything with the mean and std of pixels in 0..1."""

    @property
    def mean(self) -> Channels: ...

    @property
    def std(self) -> Channels: ...


@dataclass(frozen=True)
class GraphInput:
    """The input of a graph: layout and type, and size and batch if the graph fixes them."""

    layout: str
    dtype: type[np.generic]
    size: tuple[int, int] | None
    batch: int | None

    def shaped(self, images: NDArray[np.uint8], wants: Normalised) -> NDArray[Any]:
        """Convert 8-bit images (N x H x W x 3) to the input of the graph; 8-bit inputs are not normalised."""
        batch: NDArray[Any] = images
        if self.dtype is not np.uint8:
            mean, std = (np.float32(np.multiply(part, 255.0)) for part in (wants.mean, wants.std))
            batch = ((images - mean) / std).astype(self.dtype)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)) if self.layout == "NCHW" else batch


@dataclass(frozen=True)
class GraphOutputs:
    """The names of the outputs used as logits and features."""

    logits: str
    features: str | None = None


def read_input(session: Any, layout: str, path: Path) -> GraphInput:
    """Return the input of a session; ``layout`` is used if the graph does not define it."""
    inputs = session.get_inputs()
    if len(inputs) != 1:
        raise SoritesError(
            f"{path}: expected one input (images), got {len(inputs)}: {', '.join(i.name for i in inputs)}"
        )
    return read_images(inputs[0].shape, inputs[0].type, layout, path)


def read_images(shape: list[Any], kind: str, layout: str, path: Path) -> GraphInput:
    """Return the input for an image tensor of this shape and type."""
    if kind not in TYPES:
        raise SoritesError(f"{path}: expected an input of type {', '.join(TYPES)}, got {kind}")
    axes = _layout(shape, layout)
    if axes is None:
        raise SoritesError(f"{path}: expected an input of N x 3 x H x W or N x H x W x 3, got {shape}")
    fixed = [side if isinstance(side, int) else None for side in shape]
    height, width = (fixed[axes.index(axis)] for axis in "HW")
    return GraphInput(
        axes, TYPES[kind], None if height is None or width is None else (height, width), fixed[0]
    )


def _layout(shape: list[Any], hint: str) -> str | None:
    if len(shape) != 4:
        return None
    possible = [name for name in ("NCHW", "NHWC") if not isinstance(shape[name.index("C")], int)]
    certain = [name for name in ("NCHW", "NHWC") if shape[name.index("C")] == 3]
    if len(certain) == 1:
        return certain[0]
    candidates = certain or possible
    return hint if hint in candidates else next(iter(candidates), None)


def read_outputs(session: Any, path: Path) -> GraphOutputs:
    """Choose the outputs of a session: logits are the 2-D output with such a name, otherwise the first
    one not named like features.
    """
    outputs = session.get_outputs()
    flat = [o.name for o in outputs if len(o.shape or (0, 0)) == 2 and "float" in o.type]
    if not flat:
        actual = ", ".join(f"{o.name} {o.shape}" for o in outputs)
        raise SoritesError(f"{path}: expected a 2-D output (images x classes), got {actual}")
    plain = [name for name in flat if not FEATURES.search(name)] or flat[:1]
    logits = next((name for name in plain if LOGITS.search(name)), plain[0])
    return GraphOutputs(
        logits, next((name for name in flat if FEATURES.search(name) and name != logits), None)
    )


# External weight files of a graph, found by parsing its protocol buffer without the ``onnx`` package.


# The maximum nesting depth: a graph inside a branch inside a function is about ten levels deep.
MAX_DEPTH = 24

_TENSOR: dict[int, str] = {13: "entry"}
# Maps the kind of a message to its nested fields by number; an ``entry`` is a key (1) and a value (2).
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
    """Return the files beside a graph that contain its weights, sorted; none if it is not readable."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            locations = sorted(set(_locations(data, 0, len(data), "model", 0)))
    except (OSError, ValueError, IndexError):
        return []
    relative = [
        name for name in locations if name and not PurePosixPath(name).is_absolute() and "\0" not in name
    ]
    return [file for name in relative if (file := path.parent / name).is_file()]


def _locations(data: mmap.mmap, start: int, stop: int, kind: str, depth: int) -> Iterator[str]:
    """Yield the value of every ``location`` in the external data of the tensors of a message."""
    if depth > MAX_DEPTH:
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
    """Yield the number, start and end of each length-delimited field; other fields are skipped."""
    while start < stop:
        key, start = _varint(data, start, stop)
        if key & 7 == _VARINT:
            _, start = _varint(data, start, stop)
            continue
        width = {_EIGHT: 8, _FOUR: 4}.get(key & 7)
        if width is None and key & 7 != _NESTED:
            raise ValueError("not a protocol buffer")
        length, start = (width, start) if width is not None else _varint(data, start, stop)
        if start + length > stop:
            raise ValueError("a field extends beyond its message")
        if width is None:
            yield key >> 3, start, start + length
        start += length


def _varint(data: mmap.mmap, start: int, stop: int) -> tuple[int, int]:
    """Decode a varint (seven bits per byte, least significant first); return it and its end."""
    value = 0
    for i in range(start, min(stop, start + 10)):
        value |= (data[i] & 127) << (7 * (i - start))
        if data[i] < 128:
            return value, i + 1
    raise ValueError("a varint does not end")


# The last linear layer of a graph, found by following the graph backwards from its logits.


Array = NDArray[np.float32]
# The weight and bias of a linear layer, and the name of the tensor it reads.
WeightBiasInput = tuple[Array, Array, str]


@dataclass(frozen=True)
class LastLinear:
    """The last linear layer: weights C x D, bias C, and the names of its input and output tensors."""

    weight: Array
    bias: Array
    reads: str
    makes: str


def last_linear(graph: Any, logits: str) -> LastLinear | None:
    """Return the linear layer that produces ``logits``, ignoring a final softmax; None if there is none."""
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
    layer = _gemm(node, value) if node.op_type == "Gemm" else _matmul(node, makers, value)
    return (
        None
        if layer is None or layer[1].size != len(layer[0])
        else LastLinear(layer[0], layer[1].reshape(-1), layer[2], node.output[0])
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
    """Read a MatMul, optionally followed by an Add with its operands in either order."""
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
    """Serialise a model with additional inner tensors as outputs."""
    from onnx import ValueInfoProto

    existing = {output.name for output in model.graph.output}
    model.graph.output.extend(ValueInfoProto(name=name) for name in names if name not in existing)
    return bytes(model.SerializeToString())


# Opening and hashing a graph file.


def opened(path: Path, provider: str | None = None) -> Any:
    """Return a session; raise ``SoritesError`` if ONNX Runtime cannot run the file."""
    try:
        return _session.session(str(path), provider)
    except SoritesError:
        raise
    except Exception as error:  # ONNX Runtime raises many kinds of errors for invalid files
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"{path} is not an ONNX model that ONNX Runtime can run: {reason}") from error


def version_of(path: Path) -> str:
    """Return a SHA-256 of the file, of PATH.data and PATH.json, and of all external weight files.

    Unchanged files are hashed once per process.
    """
    beside = [Path(f"{path}{suffix}") for suffix in ("", ".data", ".json")]
    files = [*beside, *(file for file in external_files(path) if file not in beside)]
    return _hash_files(file_states(file for file in files if file.is_file()))


@functools.lru_cache(maxsize=64)
def _hash_files(files: tuple[FileState, ...]) -> str:
    hasher = hashlib.sha256()
    for name, _, _ in files:
        with open(name, "rb") as file:
            while block := file.read(1 << 20):
                hasher.update(block)
    return hasher.hexdigest()


KEYS = (*Input.model_fields, "labels", "layout")


@add_model
def onnx(argument: str | None) -> Model:
    """Run an ONNX classifier (onnx:PATH); mean, std and labels come from its metadata or from PATH.json.

    ``onnx:PATH?provider=NAME`` runs it on an execution provider of ONNX Runtime: cuda, tensorrt, openvino,
    coreml or cpu.
    """
    place, query = split_path(argument or "", "?")
    if not place or not is_file(place):
        raise SoritesError(f"model onnx: expected a file, got {argument or 'nothing'}. Use onnx:PATH")
    path, name = Path(place), f"onnx:{argument}"
    provider = options("onnx", query, ("provider",)).get("provider")
    if provider is not None and provider not in _session.NAMED_PROVIDERS:
        raise UnknownName("provider", provider, _session.NAMED_PROVIDERS, "")
    return classifier(name, path, opened(path, provider), provider)


def classifier(name: str, path: Path, session: Any, provider: str | None = None, head: bool = True) -> Model:
    """Return a classifier from a session of a file.

    Args:
        name: The name of the model.
        path: The file; settings come from its metadata or from PATH.json.
        session: A session of ONNX Runtime, or an object with the same methods.
        provider: The provider of the session, if one was chosen.
        head: Look for the last linear layer; only graphs of ONNX have it.
    """
    config = _config(path, session)
    labels, layout = config.pop("labels", None), config.pop("layout", "")
    graph_input = read_input(session, str(layout), path)
    wants = Input.read(config | ({} if graph_input.size is None else {"size": graph_input.size}), str(path))
    outputs, last = read_outputs(session, path), None
    if head:
        session, outputs, last = _with_head(path, session, outputs, provider)
    forward = _forward(session, graph_input, outputs, wants)
    first = _first_pass(name, forward, wants)
    class_ids = _labels(labels, first.shape[1], path)
    described = {**wants.described, **(wants.assumed if graph_input.dtype is not np.uint8 else {})}
    model = Model(
        name,
        checked(name, forward),
        wants.prepare,
        class_ids,
        last,
        version_of(path),
        input=described,
        backend=_session.backend(session),
        graph=functools.partial(_graph, path, graph_input, outputs, wants) if head else None,
    )
    return with_logits(model, Outputs(first))


def _config(path: Path, session: Any) -> dict[str, Any]:
    """Return the settings in the metadata and in the JSON file beside the graph."""
    metadata = session.get_modelmeta().custom_metadata_map
    config = {key: _plain(metadata[key]) for key in KEYS if key in metadata}
    beside = Path(f"{path}.json")
    if not is_file(beside):
        return config
    from_file = json_file(beside)
    if not isinstance(from_file, dict):
        kind = type(from_file).__name__
        raise SoritesError(
            f"{beside}: expected an object with some of the keys {', '.join(KEYS)}, got {kind}"
        )
    return config | from_file


def _plain(text: str) -> Any:
    """Parse a metadata value as JSON if possible, otherwise return the text."""
    try:
        return json_value(text)
    except ValueError:
        return text


def _labels(value: Any, classes: int, path: Path) -> tuple[str, ...] | None:
    if value is None:
        return None
    ids = imagenet().ids if value == "imagenet" else value
    if not isinstance(ids, list | tuple) or not all(isinstance(i, str) for i in ids) or len(ids) != classes:
        raise SoritesError(
            f'{path}: expected labels to be a list of {classes} class ids, or "imagenet" for 1000, got'
            f" {str(value)[:60]}"
        )
    return tuple(ids)


def _with_head(
    path: Path, session: Any, outputs: GraphOutputs, provider: str | None
) -> tuple[Any, GraphOutputs, Any]:
    """Expose the input and output of the last linear layer as outputs of the session.

    Returns:
        The new session, the names of features and logits, and the weights of the layer. If the layer cannot
        be read, the arguments are returned unchanged, with None for the layer.
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
    opened_again = _session.session(exposed(model, [last.makes, last.reads]), provider)
    return opened_again, ends, (last.weight, last.bias)


def _forward(session: Any, graph_input: GraphInput, outputs: GraphOutputs, wants: Input) -> Forward:
    names = [name for name in (outputs.logits, outputs.features) if name is not None]

    def forward(images: list[NDArray[Any]]) -> Outputs:
        logits, *rest = _session.run(
            session, graph_input.shaped(np.stack(images), wants), names, graph_input.batch
        )
        return Outputs(logits, rest[0] if rest else None)

    return forward


def _graph(path: Path, graph_input: GraphInput, outputs: GraphOutputs, wants: Input) -> Graph:
    """Return the graph with its weights inside, and the tensors that are used as outputs."""
    try:
        from onnx import load
    except ImportError as error:
        raise MissingExtra("an ONNX graph with a scorer", "torch") from error
    names = [name for name in (outputs.logits, outputs.features) if name is not None]
    return Graph(
        exposed(load(str(path)), names),
        outputs.logits,
        outputs.features,
        graph_input.layout,
        np.dtype(graph_input.dtype).name,
        wants.mean,
        wants.std,
        graph_input.batch,
    )


def _first_pass(name: str, forward: Forward, wants: Input) -> NDArray[np.float32]:
    """Return the logits of the trial images, so that a broken graph fails before the run starts."""
    images = trial_images(wants.size)
    try:
        outputs = forward(list(images))
    except Exception as error:  # ONNX Runtime raises many kinds of errors
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"model {name} does not run on images of {wants.size}: {reason}") from error
    return rows(name, "logits", outputs.logits, len(images))
