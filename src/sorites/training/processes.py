"""The processes of one training: started by ``torchrun``, each with a share of every batch.

Every process draws the same order of images and the same random numbers for the whole batch, and uses those
of its share. So neither the images nor the augmentations depend on the number of processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sorites.core.compute.machine import cores
from sorites.core.errors import SoritesError
from sorites.core.messages import option

if TYPE_CHECKING:
    import torch
    from torch import nn

# Variables in which torchrun names the number of processes, this one, its place on this machine, and how many
# are there.
WORLD, RANK, PLACE, NEIGHBOURS = "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
# Decoding workers by default, at most.
MAX_WORKERS = 8


@dataclass(frozen=True)
class Processes:
    """The processes of a training, and which of them this is.

    Attributes:
        rank: The number of this process; the process 0 writes all files.
        world: The number of processes.
    """

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """True if this process writes files."""
        return self.rank == 0

    def rows(self, count: int) -> slice:
        """Return the share of this process of a batch.

        Raises:
            SoritesError: The batch cannot be divided evenly.
        """
        if count % self.world:
            raise SoritesError(
                f"A batch of {count} images cannot be divided evenly among {self.world} processes; use a"
                f" multiple of {self.world} for {option('batch', 'N')} and at least as many images."
            )
        share = count // self.world
        return slice(self.rank * share, (self.rank + 1) * share)

    def summed(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all processes."""
        if self.world > 1:
            import torch.distributed as dist

            numbers = numbers.clone()
            dist.all_reduce(numbers)
        return numbers

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            import torch.distributed as dist

            dist.barrier()

    def parallel(self, module: nn.Module, device: torch.device) -> nn.Module:
        """Return a module whose gradients are averaged over the processes; alone, the module itself."""
        if self.world == 1 or not any(weights.requires_grad for weights in module.parameters()):
            return module
        from torch.nn.parallel import DistributedDataParallel

        place = [device.index] if device.type == "cuda" else None
        # Statistics of batch normalisation stay those of the first process, which writes the checkpoints.
        return DistributedDataParallel(module, place)


ALONE = Processes()


def requested(environment: Mapping[str, str] = os.environ) -> Processes:
    """Return the processes that ``torchrun`` started, or this one alone."""
    world = int(environment.get(WORLD, "1"))
    return Processes(int(environment.get(RANK, "0")), world) if world > 1 else ALONE


def default_workers(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of decoding workers of this process: one per core of its share but one."""
    share = cores() // int(environment.get(NEIGHBOURS, "1"))
    return max(1, min(MAX_WORKERS, share - 1))


def device_for(device: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the device of this process: with several, each has its own GPU."""
    if requested(environment).world == 1 or not device.startswith("cuda"):
        return device
    if device != "cuda":
        raise SoritesError(
            f"With several processes each uses its own GPU; use {option('device', 'cuda')}, not {device}."
        )
    return f"cuda:{environment.get(PLACE, '0')}"


@contextlib.contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started, for a block.

    Args:
        device: The device of this process: GPUs talk by NCCL, CPUs by Gloo.
    """
    processes = requested()
    if processes.world == 1:
        yield processes
        return
    import torch
    import torch.distributed as dist

    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(device)
    settings: dict[str, Any] = {"device_id": torch.device(device)} if on_gpu else {}
    dist.init_process_group("nccl" if on_gpu else "gloo", **settings)
    try:
        yield processes
    finally:
        dist.destroy_process_group()
