"""The things that a callable holds: the arrays and tensors in its globals, closures and attributes, and the code it comes from.

Nothing is called and nothing is loaded: what a callable reads by itself when it is called cannot be seen from here.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.models._own_code import is_installed, is_own, is_standard
from sorites.rng import digest

MOST = 50_000
"""Objects that are looked at; what lies behind more of them is left to the answers of the model."""


@dataclass
class Held:
    """The arrays that a callable holds, by where they were found, and the functions and classes of the user's that it runs."""

    arrays: dict[str, bytes] = field(default_factory=dict)
    code: list[Any] = field(default_factory=list)


def held(*things: Any) -> Held:
    """Return what can be reached from some callables without calling them, each object once."""
    found, seen, left = Held(), dict[int, Any](), [(str(i), thing) for i, thing in enumerate(things)]
    entries = [thing if isinstance(thing, types.FunctionType | type) else type(thing) for thing in things]
    found.code += [entry for entry in entries if is_installed(entry)]
    while left and len(seen) < MOST:
        place, thing = left.pop()
        if id(thing) in seen or isinstance(thing, str | bytes | int | float | complex | None):
            continue
        seen[id(thing)] = thing  # kept alive, so that no other object gets its id
        array = array_bytes(thing)
        if array is not None:
            found.arrays[place] = array
            continue
        if isinstance(thing, types.FunctionType | type | types.ModuleType) and is_own(thing):
            found.code.append(thing)
        left += [(f"{place}.{name}", part) for name, part in reversed(list(_parts(thing)))]
    return found


def array_bytes(thing: Any) -> bytes | None:
    """Return a hash of an array or tensor of any library, or None if this is something else, or cannot be read."""
    if isinstance(thing, type) or not all(hasattr(type(thing), name) for name in ("__array__", "dtype", "shape")):
        return None
    try:
        array = _plain(thing)
        hasher = hashlib.sha256(digest(thing.dtype, tuple(thing.shape)))
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except Exception:  # each library has its own exceptions for an array that cannot be read
        return None
    return hasher.digest()


def _plain(thing: Any) -> NDArray[Any]:
    """Return the numbers of an array or tensor; those of a type that NumPy lacks come as bytes."""
    if not hasattr(thing, "detach"):
        return np.asarray(thing)
    import torch

    flat = thing.detach().cpu().contiguous()
    return np.asarray(flat.reshape(-1).view(torch.uint8).numpy())


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, types.FunctionType):
        yield from _of_function(thing)
    elif isinstance(thing, types.MethodType):
        yield from (("self", thing.__self__), ("function", thing.__func__))
    elif isinstance(thing, functools.partial):
        yield from (("function", thing.func), ("arguments", thing.args), ("keywords", thing.keywords))
    elif isinstance(thing, staticmethod | classmethod | functools.cached_property):
        yield "function", getattr(thing, "__func__", getattr(thing, "func", None))
    elif isinstance(thing, property):
        yield "function", thing.fget
    elif isinstance(thing, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(thing))
    elif isinstance(thing, Mapping):
        yield from ((str(key), part) for key, part in _items(thing) if isinstance(key, str | int))
    elif isinstance(thing, type | types.ModuleType):
        named = vars(thing).items() if is_own(thing) else ()
        yield from ((name, part) for name, part in named if not name.startswith("__") or isinstance(part, types.FunctionType))
        yield from ((base.__name__, base) for base in getattr(thing, "__bases__", ()))
    elif not is_standard(type(thing)):
        yield "class", type(thing)
        yield from _attributes(thing).items()


def _items(thing: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(thing.items())
    except Exception:  # a mapping of the user's may do anything
        return []


def _attributes(thing: Any) -> dict[str, Any]:
    slots = [name for kind in type(thing).__mro__ for name in _slots(kind) if hasattr(thing, name)]
    return {**{name: getattr(thing, name) for name in slots}, **getattr(thing, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    named = vars(kind).get("__slots__", ())
    return tuple(name for name in ((named,) if isinstance(named, str) else tuple(named)) if not name.startswith("__"))


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function closes over, its defaults, and the globals that its code names if it is the user's own."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from (("defaults", function.__defaults__), ("keywords", function.__kwdefaults__), ("attributes", vars(function)))
    if is_own(function):
        names = _names(function.__code__)
        yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


def _names(code: types.CodeType) -> list[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for one in inner for name in _names(one))]))
