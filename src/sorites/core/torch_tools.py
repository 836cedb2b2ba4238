"""Helpers around torch, which is imported only when they are called: thread count, device, precision, and a
fix for importing torchvision.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import option

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


@functools.cache
def _declare_operators() -> Any:
    """Declare the operators that torchvision's import requires; the returned library must stay referenced."""
    torch_library: Any = importlib.import_module("torch.library")
    library = torch_library.Library("torchvision", "DEF")
    for name in REQUIRED_OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


class _RetryingLoader(importlib.abc.Loader):
    """Loads torchvision; if its compiled operators fail to load, declares their schemas and retries.

    The usual wheel needs CUDA: with a CPU build of torch its import raises RuntimeError. Sorites does not
    call the operators, so the schemas are enough.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        try:
            self.loader.exec_module(module)
        except RuntimeError:
            _declare_operators()
            self.loader.exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Wraps the loader of torchvision."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != TORCHVISION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _RetryingLoader(spec.loader)
        return spec


def install_torchvision_fix() -> None:
    """Make any later ``import torchvision`` work with a CPU build of torch; imports nothing itself."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def import_torchvision() -> None:
    """Import torchvision, with its operators declared if they do not load."""
    install_torchvision_fix()
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
