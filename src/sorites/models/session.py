"""Run ONNX Runtime so that all cores are busy whether one thread calls it or many.

Measured on two cores with EfficientNet-lite0, in images per second: a session of two threads
gives 154 to one caller and 126 to two (their pools compete); a session of one thread gives 87 and
170. So a session has one thread, and a batch is cut into one part per core, so that a single caller
can use the whole machine. The cut costs no processor time (12 to 15 ms per image, 12 to 22
without it, both on a busy machine) and does not show in lite0's results, which are equal bit for
bit whatever the batch.
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
from sorites.core.torch_tools import computing

T = TypeVar("T")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), thread_name_prefix="sorites-onnx")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def runtime() -> Any:
    """Return ONNX Runtime. It reports its use to its makers unless that is forbidden before it is
    imported.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    return onnxruntime


def session(graph: str | bytes) -> Any:
    """Open an ONNX Runtime session over a file or a serialised model; it uses a GPU if this build
    of ONNX Runtime can.
    """
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    available = onnxruntime.get_available_providers()
    wanted = _providers(computing().device, available)
    return onnxruntime.InferenceSession(
        graph, options, providers=[name for name in wanted if _named(name) in available]
    )


Provider = str | tuple[str, dict[str, Any]]


def _named(provider: Provider) -> str:
    return provider if isinstance(provider, str) else provider[0]


def _providers(device: str | None, available: Sequence[str]) -> list[Provider]:
    """Return what computes a graph, the first that is there: the device asked for, else a GPU and
    then the CPU.
    """
    on_cpu = "CPUExecutionProvider"
    kind, _, number = (device or "").partition(":")
    if kind == "cpu":
        return [on_cpu]
    if kind and (kind != "cuda" or "CUDAExecutionProvider" not in available):
        raise SoritesError(
            f"device {device}: this build of ONNX Runtime has {', '.join(available)}. Leave --device out."
        )
    on_gpu: Provider = (
        ("CUDAExecutionProvider", {"device_id": int(number)}) if number else "CUDAExecutionProvider"
    )
    return [on_gpu, on_cpu]


def run(
    session: Any, batch: NDArray[Any], outputs: Sequence[str], fixed: int | None = None
) -> list[NDArray[Any]]:
    """Return the named outputs for a batch, computed on all cores; ``fixed`` is the batch size, if
    the graph insists on one.
    """
    feed = session.get_inputs()[0].name
    parts = _parts(session, batch) if fixed is None else _full(batch, fixed)
    if len(parts) == 1:
        done = [session.run(list(outputs), {feed: parts[0]})]
    else:
        done = list(_pool().map(lambda part: session.run(list(outputs), {feed: part}), parts))
    return [np.concatenate(column)[: len(batch)] for column in zip(*done, strict=True)]


def each(do: Callable[[T], Result], objects: Sequence[T]) -> list[Result]:
    """Return what ``do`` gives for each object, one call per object, on all cores."""
    return [do(obj) for obj in objects] if len(objects) == 1 else list(_pool().map(do, objects))


def _parts(session: Any, batch: NDArray[Any]) -> list[NDArray[Any]]:
    on_cpu = session.get_providers()[0] == "CPUExecutionProvider"
    return np.array_split(batch, min(cores(), len(batch)) if on_cpu else 1)


def _full(batch: NDArray[Any], fixed: int) -> list[NDArray[Any]]:
    """Cut a batch into parts of exactly ``fixed`` images; the last part is filled up by repeating
    its last image.
    """
    short = -len(batch) % fixed
    whole = np.concatenate([batch, np.repeat(batch[-1:], short, axis=0)])
    return np.split(whole, len(whole) // fixed)
