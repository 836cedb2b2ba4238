"""Tools around torch that several rooms need, imported only when called: one thread, where and how
models compute, and a torchvision that imports.
"""

from __future__ import annotations

import contextlib
import functools
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

TORCHVISION = "torchvision"
# Operators that torchvision's import asks for.
SCHEMAS = ("nms", "qnms")

_counting = threading.Lock()
_guarded = {"threads": 0, "before": 1}
_here = threading.local()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch on one thread inside, as it was before outside: sums then come in one order, and
    nothing is slower for it.

    Torch's threads wait for each other by spinning: on a busy machine two are ten times slower than
    one. The number belongs to the thread that sets it, and a new thread takes over the last number
    set anywhere; so each thread sets its own, and goes back to the number from before the first
    came in.
    """
    import torch

    if getattr(_here, "inside", False):
        yield
        return
    with _counting:
        if not _guarded["threads"]:
            _guarded["before"] = torch.get_num_threads()
        _guarded["threads"] += 1
        before = _guarded["before"]
    _here.inside = True
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _here.inside = False
        with _counting:
            _guarded["threads"] -= 1


@functools.cache
def _declared() -> Any:
    """Declare the operators that torchvision's import asks for; the declarations last as long as
    what is returned.
    """
    made: Any = importlib.import_module("torch.library")
    library = made.Library("torchvision", "DEF")
    for name in SCHEMAS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


class _Mended(importlib.abc.Loader):
    """Loads torchvision as its own loader does, and once more with its operators declared where
    they do not load.

    The usual wheel needs CUDA: on a CPU build of torch its import raises RuntimeError. Only the
    schemas of two operators are wanted, not the operators, so declaring those is enough to go on.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self.loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        try:
            self.loader.exec_module(module)
        except RuntimeError:
            _declared()
            self.loader.exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds torchvision where it lies, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != TORCHVISION:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mended(spec.loader)
        return spec


def mend_torchvision() -> None:
    """Make ``import torchvision`` work from now on, whoever types it; nothing is imported before that."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def torchvision_ready() -> None:
    """Import torchvision, with its operators declared where they do not load."""
    mend_torchvision()
    importlib.import_module(TORCHVISION)


def beside_torchvision(library: str, wanted_by: str, extra: str) -> Any:
    """Return a library that imports torchvision; where one of the two is absent, say which extra
    brings them.
    """
    try:
        torchvision_ready()
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra(wanted_by, extra) from error


@dataclass(frozen=True)
class Computing:
    """The device and the number format that models use; None leaves both to the model: a GPU where
    there is one, float32.
    """

    device: str | None = None
    precision: str | None = None


_computing: ContextVar[Computing | None] = ContextVar("computing", default=None)


def computing() -> Computing:
    """Return how models that are made now are to compute."""
    return _computing.get() or Computing()


@contextlib.contextmanager
def computed(how: Computing) -> Iterator[None]:
    """Make the models of a block compute in a given way."""
    token = _computing.set(how)
    try:
        yield
    finally:
        _computing.reset(token)


def device_of(asked: str | None) -> str:
    """Return the device that torch uses: the one asked for, which must be there, else a GPU where
    there is one.
    """
    import torch

    if asked is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = asked.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}.get(
        kind, False
    )
    if not there or (number and (not number.isdigit() or int(number) >= count)):
        what = f"{count} GPUs" if kind == "cuda" and count else "no such device"
        raise SoritesError(
            f"device {asked}: torch finds {what} here. Leave --device out to take what there is."
        )
    return asked
