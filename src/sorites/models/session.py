"""Run ONNX Runtime so that all cores are used whether one thread calls it or many.

Measured on two cores with EfficientNet-lite0, in images per second: a session with two threads reaches
154 with one caller and 126 with two (their pools compete); a session with one thread reaches 87 and 170.
Therefore sessions have one thread, and batches are split into one part per core, so that a single caller
uses the whole machine. Splitting costs no processor time (12 to 15 ms per image, 12 to 22 without it, both
on a busy machine), and the results of lite0 are bit-identical for any batch size.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.torch_tools import compute_options

T = TypeVar("T")
Result = TypeVar("Result")


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="sorites-onnx")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def runtime() -> Any:
    """Import ONNX Runtime with its telemetry disabled, which is only possible before the import."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def session(graph: str | bytes) -> Any:
    """Open an ONNX Runtime session for a file or a serialised model, on a GPU if available."""
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    available = onnxruntime.get_available_providers()
    preferred = _providers(compute_options().device, available)
    return onnxruntime.InferenceSession(
        graph, options, providers=[name for name in preferred if _provider_name(name) in available]
    )


Provider = str | tuple[str, dict[str, Any]]


def _provider_name(provider: Provider) -> str:
    return provider if isinstance(provider, str) else provider[0]


def _providers(device: str | None, available: Sequence[str]) -> list[Provider]:
    """Return execution providers in order of preference: the requested device, otherwise GPU, then CPU."""
    on_cpu = "CPUExecutionProvider"
    kind, _, number = (device or "").partition(":")
    if kind == "cpu":
        return [on_cpu]
    if kind and (kind != "cuda" or "CUDAExecutionProvider" not in available):
        raise SoritesError(
            f"device {device}: this build of ONNX Runtime supports {', '.join(available)}. Remove"
            f" {option('device', None)}."
        )
    on_gpu: Provider = (
        ("CUDAExecutionProvider", {"device_id": int(number)}) if number else "CUDAExecutionProvider"
    )
    return [on_gpu, on_cpu]


def run(
    session: Any, batch: NDArray[Any], outputs: Sequence[str], fixed: int | None = None
) -> list[NDArray[Any]]:
    """Run a batch on all cores and return the named outputs; ``fixed`` is a fixed batch size of the graph."""
    feed = session.get_inputs()[0].name
    parts = _parts(session, batch) if fixed is None else _padded_parts(batch, fixed)
    if len(parts) == 1:
        results = [session.run(list(outputs), {feed: parts[0]})]
    else:
        results = list(_pool().map(lambda part: session.run(list(outputs), {feed: part}), parts))
    return [np.concatenate(column)[: len(batch)] for column in zip(*results, strict=True)]


def each(do: Callable[[T], Result], objects: Sequence[T]) -> list[Result]:
    """Call ``do`` for each object on all cores and return the results."""
    return [do(obj) for obj in objects] if len(objects) == 1 else list(_pool().map(do, objects))


def _parts(session: Any, batch: NDArray[Any]) -> list[NDArray[Any]]:
    on_cpu = session.get_providers()[0] == "CPUExecutionProvider"
    return np.array_split(batch, min(cores(), len(batch)) if on_cpu else 1)


def _padded_parts(batch: NDArray[Any], fixed: int) -> list[NDArray[Any]]:
    """Split a batch into parts of exactly ``fixed`` images, padding with copies of the last image."""
    missing = -len(batch) % fixed
    padded = np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)])
    return np.split(padded, len(padded) // fixed)
