"""Any ONNX classifier: ``onnx:PATH``.

Layout, type and size are read from the graph (a free size is 224). What a graph cannot say stands in its metadata,
or in a JSON file beside it called ``PATH.json``, under the same keys, the file winning:

- ``size mean std crop_pct filter mode``: as in ``sorites.models._preprocess.Input``; mean and std are those of
  pixels in 0..1 and default to ImageNet's (a graph that wants 0..255 has mean 0 and std 1/255);
- ``labels``: class ids in the order of the logits, or ``"imagenet"``;
- ``layout``: ``"NCHW"`` or ``"NHWC"``, only where the graph leaves it open.

A graph with 8-bit input is fed pictures as they are. Its 2-D output is taken as logits; a second one named like
features is the features. Where the graph ends in a linear layer and the ``onnx`` package is installed, that layer is
the head, what it reads are the features, and what it makes are the logits even if a softmax follows; without the
package, probabilities are turned back into logits (up to a constant a row) by their logarithm.
"""

from __future__ import annotations

import hashlib
import json
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
from sorites.models._export import probe
from sorites.models._preprocess import Input

KEYS = (*Input.model_fields, "labels", "layout")


@add_model
def onnx(argument: str | None) -> Model:
    """onnx:PATH: an ONNX classifier; mean, std, labels from its metadata or from PATH.json."""
    if argument is None or not Path(argument).is_file():
        raise SoritesError(f"model onnx: wanted a file, got {argument or 'nothing'}. Type: onnx:PATH")
    path, name = Path(argument), f"onnx:{argument}"
    session = _open(path)
    config = _config(path, session)
    labels, layout = config.pop("labels", None), config.pop("layout", "")
    into = _ends.into(session, str(layout), path)
    wants = Input.read(config | ({} if into.size is None else {"size": into.size}), str(path))
    session, out, head = _with_head(path, session, _ends.out(session, path))
    forward = _forward(session, into, out, wants)
    first = _first_pass(name, forward, wants)
    if _are_probabilities(first):
        forward = _log(forward)
    return Model(name, checked(name, forward), wants.prepare, _labels(labels, first.shape[1], path), head, _version(path))


def _open(path: Path) -> Any:
    try:
        return _session.session(str(path))
    except Exception as error:  # ONNX Runtime has a class for each way a file can be wrong
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"{path} is not an ONNX model that ONNX Runtime can run: {reason}") from error


def _config(path: Path, session: Any) -> dict[str, Any]:
    held = session.get_modelmeta().custom_metadata_map
    config = {key: _plain(held[key]) for key in KEYS if key in held}
    beside = Path(f"{path}.json")
    if not beside.is_file():
        return config
    try:
        said = json.loads(beside.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoritesError(f"{beside} is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise SoritesError(f"{beside}: wanted an object with some of the keys {', '.join(KEYS)}, got {type(said).__name__}")
    return config | said


def _plain(text: str) -> Any:
    """Metadata is text: JSON where it reads as JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _labels(said: Any, classes: int, path: Path) -> tuple[str, ...] | None:
    if said is None:
        return None
    ids = imagenet().ids if said == "imagenet" else said
    if not isinstance(ids, list | tuple) or not all(isinstance(i, str) for i in ids) or len(ids) != classes:
        raise SoritesError(f'{path}: wanted labels: a list of {classes} class ids, or "imagenet" for 1000, got {str(said)[:60]}')
    return tuple(ids)


def _with_head(path: Path, session: Any, out: _ends.Out) -> tuple[Any, _ends.Out, Any]:
    """The last linear layer, where it can be read, and the session with both its ends among the outputs."""
    try:
        from onnx import load
    except ImportError:
        return session, out, None
    model = load(str(path), load_external_data=False)
    last = _graph.last_linear(model.graph, out.logits)
    if last is None or any(tensor.external_data for tensor in model.graph.initializer):
        return session, out, None
    seen = _ends.Out(last.makes, last.reads)
    return _session.session(_graph.exposed(model, [last.makes, last.reads])), seen, (last.weight, last.bias)


def _forward(session: Any, into: _ends.Into, out: _ends.Out, wants: Input) -> Forward:
    names = [name for name in (out.logits, out.features) if name is not None]

    def forward(pictures: list[NDArray[Any]]) -> Outputs:
        logits, *rest = _session.run(session, into.shaped(np.stack(pictures), wants), names, into.batch)
        return Outputs(logits, rest[0] if rest else None)

    return forward


def _first_pass(name: str, forward: Forward, wants: Input) -> NDArray[np.float32]:
    """The logits of the probe, so that a graph that cannot run says so now and not in the middle of a run."""
    pictures = probe(wants.size)
    try:
        given = forward(list(pictures))
    except Exception as error:  # ONNX Runtime again
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


def _version(path: Path) -> str:
    """The file's SHA-256, with those of its weights (PATH.data) and settings (PATH.json) where they stand beside it."""
    beside = [Path(f"{path}{suffix}") for suffix in ("", ".data", ".json")]
    hasher = hashlib.sha256()
    for part in beside:
        if part.is_file():
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    hasher.update(block)
    return hasher.hexdigest()
