"""Use any ONNX classifier: ``onnx:PATH``.

Layout, type and size are read from the graph (a free size is 224). What a graph cannot say is read from its metadata,
or from a JSON file beside it called ``PATH.json``, which has the same keys and takes precedence:

- ``size mean std crop_pct filter mode``: as in ``sorites.models._preprocess.Input``; mean and std are those of
  pixels in 0..1 and default to ImageNet's (a graph that wants 0..255 has mean 0 and std 1/255);
- ``labels``: class ids in the order of the logits, or ``"imagenet"``;
- ``layout``: ``"NCHW"`` or ``"NHWC"``, only if the graph leaves it open.

A graph with 8-bit input is fed pictures as they are. Its 2-D output is taken as logits; a second one named like
features is the features. If the graph ends in a linear layer and the ``onnx`` package is installed, that layer is
the head, its input is the features, and its output is the logits even if a softmax follows; without the
package, probabilities are turned back into logits (up to a constant per row) by their logarithm.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs, add_model
from sorites.errors import SoritesError
from sorites.labels import imagenet
from sorites.models import _ends, _graph, _session
from sorites.models._checked import Forward, checked, rows
from sorites.models._export import trial_pictures
from sorites.models._graph_file import opened, version_of
from sorites.models._preprocess import Input
from sorites.reading.places import is_file
from sorites.reading.texts import json_file, json_value

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
    graph_input = _ends.read_input(session, str(layout), path)
    wants = Input.read(config | ({} if graph_input.size is None else {"size": graph_input.size}), str(path))
    session, outputs, head = _with_head(path, session, _ends.read_outputs(session, path))
    forward = _forward(session, graph_input, outputs, wants)
    first = _first_pass(name, forward, wants)
    if _are_probabilities(first):
        forward = _log(forward)
    known = _labels(labels, first.shape[1], path)
    return Model(name, checked(name, forward), wants.prepare, known, head, version_of(path), input=wants.described)


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
        raise SoritesError(f'{path}: wanted labels: a list of {classes} class ids, or "imagenet" for 1000, got {str(given)[:60]}')
    return tuple(ids)


def _with_head(path: Path, session: Any, outputs: _ends.GraphOutputs) -> tuple[Any, _ends.GraphOutputs, Any]:
    """Return a session with both ends of the last linear layer among its outputs, their names, and the layer.

    If the layer cannot be read, the session and the names are those given, and the layer is None.
    """
    try:
        from onnx import load
    except ImportError:
        return session, outputs, None
    model = load(str(path), load_external_data=False)
    last = _graph.last_linear(model.graph, outputs.logits)
    if last is None or any(tensor.external_data for tensor in model.graph.initializer):
        return session, outputs, None
    ends = _ends.GraphOutputs(last.makes, last.reads)
    return _session.session(_graph.exposed(model, [last.makes, last.reads])), ends, (last.weight, last.bias)


def _forward(session: Any, graph_input: _ends.GraphInput, outputs: _ends.GraphOutputs, wants: Input) -> Forward:
    names = [name for name in (outputs.logits, outputs.features) if name is not None]

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        logits, *rest = _session.run(session, graph_input.shaped(np.stack(pictures), wants), names, graph_input.batch)
        return Outputs(logits, rest[0] if rest else None)

    return forward


def _first_pass(name: str, forward: Forward, wants: Input) -> NDArray[np.float32]:
    """Return the logits of the trial pictures, so that a graph that cannot run says so now and not in the middle of a run."""
    pictures = trial_pictures(wants.size)
    try:
        given = forward(list(pictures))
    except Exception as error:  # ONNX Runtime has many exceptions for this too
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"model {name} does not run on pictures of {wants.size}: {reason}") from error
    return rows(name, "logits", given.logits, len(pictures))


def _are_probabilities(values: NDArray[np.float32]) -> bool:
    return values.shape[1] > 1 and bool((values >= 0).all() and np.allclose(values.sum(axis=1), 1, atol=1e-3))


def _log(forward: Forward) -> Callable[[list[NDArray[Any]]], Outputs]:
    tiny = np.finfo(np.float32).tiny

    def logged(pictures: list[NDArray[Any]]) -> Outputs:
        given = forward(pictures)
        return Outputs(np.log(np.maximum(np.asarray(given.logits, np.float32), tiny)), given.features)

    return logged
