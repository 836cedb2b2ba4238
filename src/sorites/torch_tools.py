"""Tools around torch that several rooms need, imported only when called: one thread, and a torchvision that imports."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from sorites.errors import MissingExtra

SCHEMAS = ("nms", "qnms")
"""Operators that torchvision's import asks for."""

_counting = threading.Lock()
_guarded = {"threads": 0, "before": 1}
_here = threading.local()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch on one thread inside, as it was before outside: sums then come in one order, and nothing is slower for it.

    Torch's threads wait for each other by spinning: on a busy machine two are ten times slower than one. The number belongs to
    the thread that sets it, and a new thread takes over the last number set anywhere; so each thread sets its own, and goes back
    to the number from before the first came in.
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
def torchvision_ready() -> Any:
    """Make ``import torchvision`` work; return the declarations that must stay alive, or None if it works as it is.

    The usual wheel needs CUDA: on a CPU build of torch its import raises RuntimeError. Only the schemas of two operators are
    wanted, not the operators, so declaring those is enough to go on.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        made: Any = importlib.import_module("torch.library")
        library = made.Library("torchvision", "DEF")
        for name in SCHEMAS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")
        return library
    return None


def beside_torchvision(library: str, wanted_by: str, extra: str) -> Any:
    """Return a library that imports torchvision; where one of the two is absent, say which extra brings them."""
    try:
        torchvision_ready()
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra(wanted_by, extra) from error
