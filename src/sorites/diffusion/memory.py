"""Memory of diffusion pipelines: the peak of live tensors, settings that lower it, and the batch that fits.

Peaks are measured, not guessed: every tensor that torch makes is counted until it is freed. What libraries
allocate besides tensors (workspaces of kernels, the allocator's gaps) is not counted, so a share of the free
memory is left for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.diffusion.pipeline import Pipe
from sorites.diffusion.sampler import Request, SamplerOptions, sample

# The share of the free memory that a batch may fill with tensors.
SHARE = 0.8
MAX_BATCH = 64


@dataclass(frozen=True)
class MemorySettings:
    """How training saves memory. Nothing of it changes what is learnt but for rounding.

    Attributes:
        per_pass: Images per pass through the network; gradients of several passes are added up. None for the
            whole batch.
        checkpointing: Compute activations again in the backward pass instead of keeping them.
    """

    per_pass: int | None = None
    checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.per_pass is not None and self.per_pass < 1:
            raise SoritesError(f"per_pass: expected at least 1, got {self.per_pass}")


def peak_bytes(task: Callable[[], Any]) -> int:
    """Run a task, and return the most bytes of tensors that it had made and not freed at any time."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    live, peak = {"bytes": 0}, {"bytes": 0}
    seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def free(size: int) -> None:
        live["bytes"] -= size

    def count(tensor: Any) -> None:
        storage = tensor.untyped_storage()
        if storage in seen:
            return
        size = storage.nbytes()
        seen[storage] = size
        weakref.finalize(storage, free, size)
        live["bytes"] += size
        peak["bytes"] = max(peak["bytes"], live["bytes"])

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            # What an operation was given existed before, or has been counted.
            known = {
                leaf.untyped_storage()._cdata
                for leaf in tree_leaves((args, kwargs))
                if isinstance(leaf, torch.Tensor)
            }
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in known:
                    count(leaf)
            return out

    with Counting():  # type: ignore[no-untyped-call]
        task()
    return peak["bytes"]


def parameter_bytes(pipe: Pipe) -> int:
    """Return the bytes of all weights of a pipeline."""
    parts = (part for part in pipe.parts.components.values() if hasattr(part, "parameters"))
    return sum(weight.numel() * weight.element_size() for part in parts for weight in part.parameters())


def drawing_bytes(pipe: Pipe, drawing: SamplerOptions, batch: int) -> int:
    """Return the peak of tensors while a batch of images is drawn, besides the weights.

    One noise step is measured, because all steps are alike.
    """
    one = replace(drawing, steps=1)
    requests = [Request("a", seed) for seed in range(1, batch + 1)]
    return peak_bytes(lambda: sample(pipe, requests, one, batch))


def free_bytes(device: str) -> int:
    """Return the bytes of memory that are free on a device."""
    import torch

    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(device)[0])
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise SoritesError("the free memory of this machine is unknown; give a number of images per batch")


def fitting_batch(pipe: Pipe, drawing: SamplerOptions, free: int | None = None) -> int:
    """Return how many images a pass can have so that its tensors fill at most ``SHARE`` of the free memory.

    Args:
        pipe: The pipeline, loaded.
        drawing: The sampler settings.
        free: The free bytes; by default those of the pipeline's device.
    """
    first, second = (drawing_bytes(pipe, drawing, batch) for batch in (1, 2))
    room = (free_bytes(pipe.device) if free is None else free) * SHARE
    more = max(1, second - first)
    return int(max(1, min(MAX_BATCH, 1 + (room - first) // more)))
