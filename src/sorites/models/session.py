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

from sorites.core import Backend
from sorites.core.compute.machine import cores
from sorites.core.compute.torch_tools import compute_options
from sorites.core.errors import SoritesError
from sorites.core.messages import option

T = TypeVar("T")
Result = TypeVar("Result")


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


ON_CPU, ON_GPU = "CPUExecutionProvider", "CUDAExecutionProvider"
# Without TF32, and with one convolution kernel instead of the fastest of several, which varies.
CUDA_OPTIONS = {"use_tf32": "0", "cudnn_conv_algo_search": "DEFAULT"}

Provider = tuple[str, dict[str, str]]


# Execution providers of ONNX Runtime by the names that specs use.
NAMED_PROVIDERS = {
    "cpu": ON_CPU,
    "cuda": ON_GPU,
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
}


def session(graph: str | bytes, provider: str | None = None) -> Any:
    """Open an ONNX Runtime session for a file or a serialised model, on a GPU if available.

    Args:
        graph: The file or the serialised model.
        provider: A name of ``NAMED_PROVIDERS``; None follows the requested device.

    Raises:
        SoritesError: The requested device or provider is not available.
    """
    onnxruntime = runtime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    device = compute_options().device
    available = onnxruntime.get_available_providers()
    preferred = providers(device, available) if provider is None else named_provider(provider, available)
    options.use_deterministic_compute = len(preferred) > 1
    opened = onnxruntime.InferenceSession(graph, options, providers=preferred)
    if provider is not None and opened.get_providers()[0] != NAMED_PROVIDERS[provider]:
        raise SoritesError(f"provider {provider}: ONNX Runtime has it, but its libraries do not load")
    if (device or "").startswith("cuda") and backend(opened).kind != "cuda":
        raise SoritesError(
            f"device {device}: ONNX Runtime cannot use the GPU; its CUDA or cuDNN libraries do not load. Use"
            f" {option('device', 'cpu')}"
        )
    return opened


def named_provider(name: str, available: Sequence[str]) -> list[Provider]:
    """Return a provider by name, followed by the CPU for operators that it does not have.

    Raises:
        SoritesError: This build of ONNX Runtime does not have it.
    """
    full = NAMED_PROVIDERS.get(name, name)
    if full not in available:
        there = [short for short, long in NAMED_PROVIDERS.items() if long in available]
        raise SoritesError(
            f"provider {name}: this build of ONNX Runtime has {', '.join(there)}. Providers are installed"
            " with builds of their own, such as onnxruntime-gpu or onnxruntime-openvino."
        )
    chosen: list[Provider] = [(full, CUDA_OPTIONS if full == ON_GPU else {})]
    return chosen if full == ON_CPU else [*chosen, (ON_CPU, {})]


def providers(device: str | None, available: Sequence[str]) -> list[Provider]:
    """Return execution providers in order of preference: the requested device, otherwise GPU, then CPU.

    Raises:
        SoritesError: This build of ONNX Runtime does not support the device.
    """
    kind, _, number = (device or "").partition(":")
    if kind not in ("", "cpu") and (kind != "cuda" or ON_GPU not in available):
        raise SoritesError(
            f"device {device}: this build of ONNX Runtime supports {', '.join(available)}. Remove"
            f" {option('device', None)}."
        )
    on_gpu = [(ON_GPU, {**CUDA_OPTIONS, "device_id": number or "0"})] if ON_GPU in available else []
    return [*([] if kind == "cpu" else on_gpu), (ON_CPU, {})]


def backend(session: Any, batch_matters: bool = True) -> Backend:
    """Return where a session really runs: ONNX Runtime uses the CPU if it cannot use the GPU.

    Args:
        session: The session.
        batch_matters: False if each pass has one image.
    """
    first = session.get_providers()[0]
    if first != ON_GPU:
        named = next((name for name, full in NAMED_PROVIDERS.items() if full == first), "cpu")
        library = "onnxruntime" if named == "cpu" else f"onnxruntime {named}"
        return Backend(library, batch_matters=batch_matters and named != "cpu")
    number = session.get_provider_options()[ON_GPU].get("device_id", "0")
    return Backend("onnxruntime", f"cuda:{number}", batch_matters=batch_matters)


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
    on_cpu = session.get_providers()[0] == ON_CPU
    return np.array_split(batch, min(cores(), len(batch)) if on_cpu else 1)


def _padded_parts(batch: NDArray[Any], fixed: int) -> list[NDArray[Any]]:
    """Split a batch into parts of exactly ``fixed`` images, padding with copies of the last image."""
    missing = -len(batch) % fixed
    padded = np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)])
    return np.split(padded, len(padded) // fixed)
