"""Helpers around torch, which is imported only when they are called: thread count, device, precision, and a
fix for importing torchvision.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import option
from sorites.core.progress import phase

T = TypeVar("T")
TORCHVISION = "torchvision"
# Operators whose schemas torchvision's import requires.
REQUIRED_OPERATORS = ("nms", "qnms")

_state_lock = threading.Lock()
_thread_state = {"threads": 0, "before": 1}
_local = threading.local()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with torch on one thread; this makes sums reproducible and is not slower.

    Torch's threads wait by spinning, so that on a busy machine two are ten times slower than one. The setting
    belongs to the calling thread, and a new thread inherits the value set last by any thread. Therefore each
    thread sets its own value and restores the value from before the first thread entered.
    """
    import torch

    if getattr(_local, "inside", False):
        yield
        return
    with _state_lock:
        if not _thread_state["threads"]:
            _thread_state["before"] = torch.get_num_threads()
        _thread_state["threads"] += 1
        before = _thread_state["before"]
    _local.inside = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _local.inside = False
        with _state_lock:
            _thread_state["threads"] -= 1


def on_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward hook that acts in passes of the calling thread only.

    Several threads may use one module, such as a scorer and an explanation; without this, the hooks of one
    would change the pass of another.

    Args:
        hook: The hook.
    """
    thread = threading.get_ident()

    def called(*args: Any) -> Any:
        return hook(*args) if threading.get_ident() == thread else None

    return called


@functools.cache
def _declare_operators() -> Any:
    """Declare the operators that torchvision's import requires; the returned library must stay referenced."""
    torch_library: Any = importlib.import_module("torch.library")
    library = torch_library.Library("torchvision", "DEF")
    for name in REQUIRED_OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def with_torchvision(load: Callable[[], T]) -> T:
    """Call a function that may import torchvision; if that fails beside a CPU build of torch, call it again
    with torchvision's operators declared.

    The usual wheel of torchvision needs CUDA: with a CPU build of torch, its import raises RuntimeError.
    Sorites does not call its operators, so their schemas are enough.

    Example:
        >>> with_torchvision(lambda: "no torchvision needed")
        'no torchvision needed'
    """
    try:
        return load()
    except RuntimeError as error:
        if TORCHVISION not in str(error) or TORCHVISION in sys.modules:
            raise
    import_torchvision()
    return load()


def import_torchvision() -> None:
    """Import torchvision, with its operators declared if they do not load."""
    try:
        importlib.import_module(TORCHVISION)
    except RuntimeError:
        _declare_operators()
        importlib.import_module(TORCHVISION)


def import_with_torchvision(library: str, wanted_by: str, extra: str) -> Any:
    """Import a library that depends on torchvision.

    Args:
        library: Name of the module.
        wanted_by: What needs it, for the message.
        extra: The extra of Sorites that installs it.

    Raises:
        MissingExtra: It or torchvision is not installed.
    """
    try:
        with phase(f"importing {library}, which is slowest the first time"):
            import_torchvision()
            return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra(wanted_by, extra) from error


@dataclass(frozen=True)
class ComputeOptions:
    """Device and number format of models; None leaves the choice to the model: a GPU if there is one,
    float32.
    """

    device: str | None = None
    precision: str | None = None


_computing: ContextVar[ComputeOptions | None] = ContextVar("computing", default=None)


def compute_options() -> ComputeOptions:
    """Return the device and number format for models that are created now."""
    return _computing.get() or ComputeOptions()


@contextlib.contextmanager
def use_compute_options(how: ComputeOptions) -> Iterator[None]:
    """Create the models of a block with this device and number format."""
    token = _computing.set(how)
    try:
        yield
    finally:
        _computing.reset(token)


def device_of(asked: str | None) -> str:
    """Return the torch device to use: ``asked`` if it exists, or by default a GPU if there is one.

    Raises:
        SoritesError: The device does not exist.
    """
    import torch

    # cuBLAS reads this when it is first used; without it, products may differ from run to run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = asked.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }.get(kind, False)
    if not available or (number and (not number.isdigit() or int(number) >= count)):
        what = f"{count} GPUs" if kind == "cuda" and count else "no such device"
        raise SoritesError(
            f"device {asked}: torch finds {what} here. Leave out {option('device', None)} to use the default."
        )
    return asked


def free_memory() -> None:
    """Return the memory of objects that nobody uses to the system and to the GPU."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
