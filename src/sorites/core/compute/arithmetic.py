"""Arithmetic of torch that does not depend on the process around it: the same kernels and no TF32.

Torch keeps these settings per process, so threads share them. They are set when the first block begins and
restored when the last one ends. Every block that begins sets them again, in case a model has changed them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from sorites.core.compute.torch_tools import one_thread

EXACT = "ieee"


@dataclass(frozen=True)
class Flags:
    """The settings of torch that change numbers.

    Attributes:
        precisions: ``fp32_precision`` of each operation; empty before torch 2.9.
        older: TF32 of cuDNN and the precision of matrix products in torch's older interface; None if torch
            refuses to tell, because a model has used both interfaces.
        benchmark: Whether cuDNN chooses kernels by timing them.
        cudnn: Whether cuDNN uses only deterministic kernels.
        algorithms: Whether other operations do; those without a deterministic kernel warn.
        warn_only: Whether such operations warn instead of raising an error.
    """

    precisions: tuple[str, ...] = ()
    older: tuple[bool, str] | None = None
    benchmark: bool = False
    cudnn: bool = True
    algorithms: bool = False
    warn_only: bool = False

    def exact(self, tf32: bool, algorithms: bool) -> Flags:
        """Return these settings with deterministic kernels; TF32 is switched off unless it is allowed."""
        flags = replace(self, benchmark=False, cudnn=True)
        if not tf32:
            older = None if self.older is None else (False, "highest")
            flags = replace(flags, precisions=(EXACT,) * len(self.precisions), older=older)
        return (
            replace(flags, algorithms=True, warn_only=True) if algorithms and not self.algorithms else flags
        )


def _operations() -> list[Any]:
    """Return the objects whose ``fp32_precision`` is the precision of one operation; none before torch
    2.9.
    """
    import torch

    if not hasattr(torch.backends, "fp32_precision"):
        return []
    cudnn: Any = torch.backends.cudnn
    cpu: Any = torch.backends.mkldnn
    return [torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn, cpu.matmul, cpu.conv, cpu.rnn]


def read_flags() -> Flags:
    """Return the present settings."""
    import torch

    cudnn = torch.backends.cudnn
    try:
        older = bool(cudnn.allow_tf32), torch.get_float32_matmul_precision()
    except RuntimeError:
        older = None
    return Flags(
        tuple(operation.fp32_precision for operation in _operations()),
        older,
        bool(cudnn.benchmark),
        bool(cudnn.deterministic),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def write_flags(flags: Flags) -> None:
    """Change the settings."""
    import torch

    cudnn = torch.backends.cudnn
    # The older interface changes the newer one and keeps a copy of its own, which its readers compare with
    # the newer one. So both are written, the older one first.
    if flags.older is not None:
        cudnn.allow_tf32 = flags.older[0]
        torch.set_float32_matmul_precision(flags.older[1])
    for operation, precision in zip(_operations(), flags.precisions, strict=True):
        operation.fp32_precision = precision
    cudnn.benchmark, cudnn.deterministic = flags.benchmark, flags.cudnn
    torch.use_deterministic_algorithms(flags.algorithms, warn_only=flags.warn_only)


@dataclass
class _Blocks:
    """The blocks that are running: whether each allows TF32 and needs deterministic algorithms."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    running: list[tuple[bool, bool]] = field(default_factory=list)
    before: Flags = field(default_factory=Flags)

    def begin(self, block: tuple[bool, bool]) -> None:
        with self.lock:
            if not self.running:
                self.before = read_flags()
            self.running.append(block)
            self._apply()

    def end(self, block: tuple[bool, bool]) -> None:
        with self.lock:
            self.running.remove(block)
            self._apply()

    def _apply(self) -> None:
        """Set what the strictest block needs, or what was set before the first one."""
        flags = self.before
        if self.running:
            flags = flags.exact(all(tf32 for tf32, _ in self.running), any(a for _, a in self.running))
        if read_flags() != flags:
            write_flags(flags)


_blocks = _Blocks()


@contextlib.contextmanager
def exact(device: object = "cpu", tf32: bool = False) -> Iterator[None]:
    """Run a block with deterministic kernels of torch and without TF32.

    Args:
        device: The torch device that computes. Off the CPU, operations other than cuDNN's are deterministic
            too, as far as torch has such kernels; it warns about the others.
        tf32: Leave TF32 as it is, for training.
    """
    block = (tf32, str(device).partition(":")[0] != "cpu")
    _blocks.begin(block)
    try:
        yield
    finally:
        _blocks.end(block)


@contextlib.contextmanager
def reproducible(device: object = "cpu") -> Iterator[None]:
    """Run a block like ``exact`` and on one thread, as the number of threads changes sums on a CPU."""
    with one_thread(), exact(device):
        yield
