"""Export a torch graph to ONNX, verify it against torch, and run it with ONNX Runtime.

The graph takes 8-bit images (N x H x W x 3) and returns logits and features in one pass; it includes
transposing and normalising. It is cached under a hash of the weights, the layers, the input and the
library versions, and compared with torch on three trial images whenever it is loaded: a damaged or stale
file is exported again, and a graph that disagrees is not used.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Backend, Graph, Outputs
from sorites.core.compute.passes import then, unless_empty
from sorites.core.compute.torch_tools import one_thread
from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.io.files import cache, write_bytes
from sorites.models import session as _session
from sorites.models.preprocess import Input
from sorites.models.trial import Forward, trial_images

if TYPE_CHECKING:
    from torch import nn

# The contract of every model: N images give N rows of finite logits.


def rows(name: str, what: str, values: Any, n: int) -> NDArray[np.float32]:
    """Return ``values`` (anything array-like, including torch tensors) as a float32 array N x C.

    Raises:
        SoritesError: The values are not ``n`` rows of finite numbers.
    """
    if hasattr(values, "detach"):
        values = values.detach().float().cpu()
    try:
        array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SoritesError(
            f"model {name}: expected {what} as {n} rows of numbers, got {type(values).__name__}"
        ) from error
    if array.ndim != 2 or len(array) != n or array.shape[1] == 0:
        raise SoritesError(
            f"model {name}: expected {what} of shape ({n}, C) for {n} images, got {array.shape}"
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array).all(axis=1)).sum())
        raise SoritesError(f"model {name}: expected finite {what}, got NaN or infinity in {bad} of {n} rows")
    return array


def checked(name: str, forward: Callable[[list[NDArray[Any]]], Outputs]) -> Forward:
    """Wrap a forward function so that its outputs are validated; no images give empty outputs."""

    def check(n: int, outputs: Outputs) -> Outputs:
        if outputs.logits is not None:
            outputs.logits = rows(name, "logits", outputs.logits, n)
        if outputs.features is not None:
            outputs.features = rows(name, "features", outputs.features, n)
        return outputs

    return unless_empty(then(forward, check), Outputs)


# The version of the wrapper graph; increase it when the graph changes.
VERSION = 1
# The maximum difference between exported logits and those of torch.
TOLERANCE = 1e-4
NAMES = ("logits", "features")
OPSET = 17

_exporting = threading.Lock()


def exported(
    graph: nn.Module, on_torch: Forward, wants: Input, version: str, trial: Outputs | None = None
) -> tuple[Forward, Backend]:
    """Return the graph on ONNX Runtime, from the cache or exported now, and where it runs.

    Args:
        graph: The torch module to export.
        on_torch: The forward function of the same graph in torch.
        wants: The input of the model.
        version: The version of the model, which names the file in the cache.
        trial: The outputs of torch for the trial images, if they are known.

    Raises:
        Exception: The graph cannot be exported or disagrees with torch.
    """
    images = trial_images(wants.size)
    path = _path(version)
    with _exporting:
        with one_thread():
            ground_truth = on_torch(images) if trial is None else trial
        runner = _from_cache(path, ground_truth, images)
        if runner is None:
            data = _export(graph, np.stack(images[:2]), ground_truth)
            runner = _runner(data)
            _compare(runner[0](images), ground_truth)
            _to_cache(data, path)
    return runner


def graph_of(graph: nn.Module, on_torch: Forward, wants: Input, version: str) -> Graph:
    """Return a torch graph as ONNX, verified against torch.

    Raises:
        Exception: The graph cannot be exported or disagrees with torch.
    """
    images = trial_images(wants.size)
    with one_thread():
        ground_truth = on_torch(images)
    exported(graph, on_torch, wants, version, ground_truth)
    path = _path(version)
    data = path.read_bytes() if path.is_file() else _export(graph.cpu(), np.stack(images[:2]), ground_truth)
    return Graph(data, features="features" if ground_truth.features is not None else None)


def _path(version: str) -> Path:
    import onnx
    import torch

    toolchain = digest(torch.__version__, onnx.__version__, OPSET, VERSION, size=6).hex()
    return cache("onnx", f"{version}-{toolchain}.onnx")


def _export(graph: nn.Module, batch: NDArray[np.uint8], ground_truth: Outputs) -> bytes:
    """Export with the older of torch's two exporters, which only needs onnx and is ten times faster.

    Both emit warnings.
    """
    import torch

    names = [name for name in NAMES if getattr(ground_truth, name) is not None]
    dynamic = {name: {0: "n"} for name in ("images", *names)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        path = Path(folder, "graph.onnx")
        torch.onnx.export(
            graph,
            (torch.from_numpy(batch),),
            path,
            dynamo=False,
            opset_version=OPSET,
            input_names=["images"],
            output_names=names,
            dynamic_axes=dynamic,
        )
        return path.read_bytes()


def _runner(data: bytes) -> tuple[Forward, Backend]:
    session = _session.session(data)
    names = [output.name for output in session.get_outputs()]

    def forward(images: list[NDArray[Any]]) -> Outputs:
        values = _session.run(session, np.stack(images), names)
        return Outputs(**dict(zip(names, values, strict=True)))

    return forward, _session.backend(session)


def _compare(outputs: Outputs, ground_truth: Outputs) -> None:
    for name in NAMES:
        ours, theirs = getattr(outputs, name), getattr(ground_truth, name)
        if theirs is None:
            continue
        allowed = TOLERANCE if name == "logits" else TOLERANCE * max(1.0, float(np.abs(theirs).max()))
        gap = float(np.abs(ours - theirs).max())
        if not gap <= allowed:
            raise SoritesError(
                f"its {name} differ from torch by {gap:.2g}, more than the tolerance of {allowed:.2g}"
            )


def _from_cache(
    path: Path, ground_truth: Outputs, images: list[NDArray[np.uint8]]
) -> tuple[Forward, Backend] | None:
    """Return the cached graph if it loads and agrees with torch."""
    if not path.is_file():
        return None
    try:
        runner = _runner(path.read_bytes())
        _compare(runner[0](images), ground_truth)
    except Exception:  # ONNX Runtime raises many kinds of errors for damaged or stale files; export again
        return None
    return runner


def _to_cache(data: bytes, path: Path) -> None:
    """Write the graph atomically; if the cache is not writable, the next run exports again."""
    with contextlib.suppress(SoritesError, OSError):
        write_bytes(data, path)
