"""Copies between the memory of the host and that of a device.

A pass needs one copy of its images to the device and one copy of its outputs back. Both are asynchronous if
the host's memory is page-locked, and the host waits once, for the copy back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


def start_fetch(tensors: Sequence[torch.Tensor]) -> Callable[[], list[NDArray[np.float32]]]:
    """Start to copy tensors to the host as float32, in one copy if they are rows.

    Args:
        tensors: Tensors of one device.

    Returns:
        A function that waits for the copy and returns the arrays.
    """
    import torch

    floats = [tensor.detach().float() for tensor in tensors]
    device = floats[0].device
    if device.type == "cpu":
        arrays = [tensor.numpy() for tensor in floats]
        return lambda: arrays
    rows = all(tensor.dim() == 2 and len(tensor) == len(floats[0]) for tensor in floats)
    joined = [torch.cat(floats, 1)] if rows and len(floats) > 1 else floats
    widths = [tensor.shape[1] for tensor in floats] if len(joined) < len(floats) else None
    if device.type != "cuda":
        return lambda: _split([tensor.cpu().numpy() for tensor in joined], widths)
    copies = [torch.empty(tensor.shape, pin_memory=True) for tensor in joined]
    for copy, tensor in zip(copies, joined, strict=True):
        copy.copy_(tensor, non_blocking=True)
    # The next pass may be queued behind this one, so the host waits for this copy and not for the device.
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))

    def wait() -> list[NDArray[np.float32]]:
        event.synchronize()
        return _split([copy.numpy() for copy in copies], widths)

    return wait


def _split(arrays: list[NDArray[np.float32]], widths: Sequence[int] | None) -> list[NDArray[np.float32]]:
    if widths is None:
        return [np.array(array) for array in arrays]
    edges = np.cumsum(widths)[:-1]
    return [np.ascontiguousarray(part) for part in np.split(arrays[0], edges, axis=1)]


def host_buffer(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an uninitialised array; if this process uses CUDA, in page-locked memory."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or dtype != np.uint8:
        return np.empty(shape, dtype)
    array: NDArray[Any] = torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()
    return array


@dataclass
class Transfers:
    """Copies between host and device.

    Attributes:
        to_device: The number of copies to a device.
        bytes_to_device: Their bytes.
        from_device: The number of copies from a device; the host waits for each of them.
    """

    to_device: int = 0
    bytes_to_device: int = 0
    from_device: int = 0


def counted_transfers(do: Callable[[], object]) -> Transfers:
    """Call a function and count the copies that torch makes meanwhile in this thread."""
    from torch.utils._python_dispatch import TorchDispatchMode

    counts = Transfers()

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = func._schema.name
            if name == "aten::_local_scalar_dense":
                counts.from_device += args[0].device.type != "cpu"
            elif name in ("aten::_to_copy", "aten::copy_"):
                source, target = (args[0], result) if name == "aten::_to_copy" else (args[1], args[0])
                _count(counts, source, target)
            return result

    def _count(counts: Transfers, source: torch.Tensor, target: torch.Tensor) -> None:
        to_host, from_host = target.device.type == "cpu", source.device.type == "cpu"
        if from_host and not to_host:
            counts.to_device += 1
            counts.bytes_to_device += source.nbytes
        counts.from_device += to_host and not from_host

    with Counting():  # type: ignore[no-untyped-call]
        do()
    return counts
