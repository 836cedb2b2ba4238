"""The user's own code behind a callable: the files of its modules and of those they import,
libraries and ours left out.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model, Outputs
from sorites.core.rng import digest
from sorites.core.torch_tools import one_thread
from sorites.models.export import trial_images

PACKAGES = ("site-packages", "dist-packages")
MAIN = "__main__"
_OURS = Path(__file__).resolve().parent.parent


@functools.cache
def _standard() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


@functools.lru_cache(4096)
def is_library_file(file: str) -> bool:
    """Return whether a file belongs to Python, to an installed package or to this one."""
    path = Path(file).resolve()
    inside = (*_standard(), _OURS)
    return (
        file.startswith("<frozen")
        or any(name in path.parts for name in PACKAGES)
        or any(map(path.is_relative_to, inside))
    )


def _file(obj: Any) -> str | None:
    module = (
        obj if isinstance(obj, types.ModuleType) else sys.modules.get(getattr(obj, "__module__", None) or "")
    )
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def is_standard(obj: Any) -> bool:
    """Return whether a class or function is built in or belongs to Python itself."""
    module = getattr(obj, "__module__", None)
    name = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return name in sys.stdlib_module_names or name == "builtins"


def is_installed(obj: Any) -> bool:
    """Return whether a function or class belongs to an installed package other than this one."""
    file = _file(obj)
    return (
        file is not None
        and is_library_file(file)
        and not is_standard(obj)
        and _OURS not in Path(file).resolve().parents
    )


def is_own(obj: Any) -> bool:
    """Return whether a function, class or module is the user's own; typed code without a file is."""
    file = _file(obj)
    if file is not None:
        return not is_library_file(file)
    return not isinstance(obj, types.ModuleType) and getattr(obj, "__module__", None) == MAIN


def code_of(objects: Iterable[Any]) -> str:
    """Return a hash of the user's own code behind functions, classes and modules: whole files, with
    the files they import.

    Of a script that is run (``__main__``) only definitions, imports and plain constants count: a
    line that draws or prints another result changes no answer. Code that was typed and not saved,
    or lies in an installed package, counts by itself.
    """
    files, typed = dict[Path, str](), list[str]()
    for obj in objects:
        file, name = _file(obj), getattr(obj, "__module__", None) or getattr(obj, "__name__", "")
        if file is None or is_library_file(file) or not Path(file).is_file():
            typed.append(_typed(obj))
        else:
            _follow(
                Path(file).resolve(),
                str(obj.__name__ if isinstance(obj, types.ModuleType) else name),
                files,
            )
    return digest(*sorted({*files.values(), *typed})).hex()


def _follow(file: Path, module: str, files: dict[Path, str]) -> None:
    """Add a file, and every file beside or below it that its imports name, to ``files`` with a hash
    of what counts of it.
    """
    root, left = _root(file, module), [file]
    while left:
        here = left.pop()
        if here in files:
            continue
        raw = here.read_bytes()
        tree = _parsed(raw)
        files[here] = digest(_definitions(tree, raw) if module == MAIN and here == file else raw).hex()
        if tree is not None:
            left += [path for path in _imported(tree, here, root) if path not in files]


def _root(file: Path, module: str) -> Path:
    """Return the folder from which a file's imports are found: that of its outermost package."""
    depth = module.count(".") + (file.name == "__init__.py")
    up = file.parents[min(depth, len(file.parents) - 1)]
    return up if module != MAIN and (up / module.partition(".")[0]).exists() else file.parent


def _parsed(raw: bytes) -> ast.Module | None:
    try:
        return ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _definitions(tree: ast.Module | None, raw: bytes) -> str:
    """Return the text of a script's definitions, imports and assignments that call nothing."""
    if tree is None:
        return str(raw)
    text = raw.decode("utf-8", "replace")
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    kept = [
        node
        for node in tree.body
        if isinstance(node, defined) or (isinstance(node, ast.Assign) and _calls_nothing(node))
    ]
    return "\n".join(ast.get_source_segment(text, node) or "" for node in kept)


def _calls_nothing(node: ast.Assign) -> bool:
    return not any(isinstance(part, ast.Call) for part in ast.walk(node))


def _imported(tree: ast.Module, file: Path, root: Path) -> Iterator[Path]:
    """Yield the files of ``root`` that the imports of a file name, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (path for alias in node.names for path in _found(root, alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            above = len(file.parents) > node.level > 0
            base = file.parents[node.level - 1] if above else root
            for alias in node.names:
                yield from _found(base, [*(node.module.split(".") if node.module else ()), alias.name])


def _found(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files that importing ``a.b.c`` runs, as far as they lie below ``base`` and are no
    library's.
    """
    for count in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:count])
        for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if path.is_file() and not is_library_file(str(path)):
                yield path.resolve()


def _typed(obj: Any) -> str:
    try:
        return inspect.getsource(obj)
    except (OSError, TypeError):
        code = getattr(obj, "__code__", None)
        return "" if code is None else _spelled(code)


def _spelled(code: types.CodeType) -> str:
    consts = [
        _spelled(const) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts
    ]
    return repr((code.co_code, code.co_names, consts))


# The objects that a callable holds: the arrays and tensors in its globals, closures and attributes, and
# the code it comes from.


# Objects that are looked at; what lies behind more of them is left to the answers of the model.
MOST = 50_000


@dataclass
class Held:
    """The arrays that a callable holds, by where they were found, and the functions and classes of
    the user's that it runs.
    """

    arrays: dict[str, bytes] = field(default_factory=dict)
    code: list[Any] = field(default_factory=list)


def held(*objects: Any) -> Held:
    """Return what can be reached from some callables without calling them, each object once."""
    found, seen, left = Held(), dict[int, Any](), [(str(i), obj) for i, obj in enumerate(objects)]
    entries = [obj if isinstance(obj, types.FunctionType | type) else type(obj) for obj in objects]
    found.code += [entry for entry in entries if is_installed(entry)]
    while left and len(seen) < MOST:
        place, obj = left.pop()
        if id(obj) in seen or isinstance(obj, str | bytes | int | float | complex | None):
            continue
        seen[id(obj)] = obj  # kept alive, so that no other object gets its id
        array = array_bytes(obj)
        if array is not None:
            found.arrays[place] = array
            continue
        if isinstance(obj, types.FunctionType | type | types.ModuleType) and is_own(obj):
            found.code.append(obj)
        left += [(f"{place}.{name}", part) for name, part in reversed(list(_parts(obj)))]
    return found


def array_bytes(obj: Any) -> bytes | None:
    """Return a hash of an array or tensor of any library, or None if this is something else, or
    cannot be read.
    """
    if isinstance(obj, type) or not all(hasattr(type(obj), name) for name in ("__array__", "dtype", "shape")):
        return None
    try:
        array = _plain(obj)
        hasher = hashlib.sha256(digest(obj.dtype, tuple(obj.shape)))
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except Exception:  # each library has its own exceptions for an array that cannot be read
        return None
    return hasher.digest()


def _plain(obj: Any) -> NDArray[Any]:
    """Return the numbers of an array or tensor; those of a type that NumPy lacks come as bytes."""
    if not hasattr(obj, "detach"):
        return np.asarray(obj)
    import torch

    flat = obj.detach().cpu().contiguous()
    return np.asarray(flat.reshape(-1).view(torch.uint8).numpy())


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, types.FunctionType):
        yield from _of_function(obj)
    elif isinstance(obj, types.MethodType):
        yield from (("self", obj.__self__), ("function", obj.__func__))
    elif isinstance(obj, functools.partial):
        yield from (("function", obj.func), ("arguments", obj.args), ("keywords", obj.keywords))
    elif isinstance(obj, staticmethod | classmethod | functools.cached_property):
        yield "function", getattr(obj, "__func__", getattr(obj, "func", None))
    elif isinstance(obj, property):
        yield "function", obj.fget
    elif isinstance(obj, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(obj))
    elif isinstance(obj, Mapping):
        yield from ((str(key), part) for key, part in _items(obj) if isinstance(key, str | int))
    elif isinstance(obj, type | types.ModuleType):
        named = vars(obj).items() if is_own(obj) else ()
        yield from (
            (name, part)
            for name, part in named
            if not name.startswith("__") or isinstance(part, types.FunctionType)
        )
        yield from ((base.__name__, base) for base in getattr(obj, "__bases__", ()))
    elif not is_standard(type(obj)):
        yield "class", type(obj)
        yield from _attributes(obj).items()


def _items(obj: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(obj.items())
    except Exception:  # a mapping of the user's may do anything
        return []


def _attributes(obj: Any) -> dict[str, Any]:
    slots = [name for kind in type(obj).__mro__ for name in _slots(kind) if hasattr(obj, name)]
    return {**{name: getattr(obj, name) for name in slots}, **getattr(obj, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    named = vars(kind).get("__slots__", ())
    return tuple(
        name for name in ((named,) if isinstance(named, str) else tuple(named)) if not name.startswith("__")
    )


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function closes over, its defaults, and the globals that its code names if it is
    the user's own.
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from (
        ("defaults", function.__defaults__),
        ("keywords", function.__kwdefaults__),
        ("attributes", vars(function)),
    )
    if is_own(function):
        names = _names(function.__code__)
        yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


def _names(code: types.CodeType) -> list[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return list(dict.fromkeys([*code.co_names, *(name for one in inner for name in _names(one))]))


# The version of a model that brings none: the user's own code, the arrays it holds, and what it says of
# three images.


# Bytes of such a version.
SIZE = 20
SIDE = 224
# A step is the size of a row, as a power of two, divided by two to this power: between .1 and .2 %.
STEPS = 9
# The most, relative to the largest answer, by which two answers to one image may differ.
SAME = 1e-4


def versioned(model: Model, *objects: Any) -> Model:
    """Return a model with a version made from what its answers depend on, as far as that can be known.

    The images are shown twice, together and one by one. Arrays that differ from one time to the
    other are not weights and are left out; if the answers differ, they are left out too and the
    model does not repeat itself.
    """
    callables = objects or (model.forward, model.prepare)
    together, first = _answers(model, False), held(*callables)
    alone, second = _answers(model, True), held(*callables)
    repeats = together is None or alone is None or _agree(together, alone)
    said = _rounded(together) if together is not None and alone is not None and repeats else ""
    version = digest(code_of(first.code), _arrays(first, second), said, size=SIZE).hex()
    return replace(model, version=version, repeats=repeats)


def _answers(model: Model, one_by_one: bool) -> Outputs | None:
    """Return what a model gives for the trial images, or None if it fails on them; that is said
    when it is tried.
    """
    images = trial_images((SIDE, SIDE))
    batches = [[image] for image in images] if one_by_one else [images]
    try:
        with _one_thread():
            return Outputs.join([model(some) for some in batches])
    except Exception:  # a model of the user's raises whatever it likes
        return None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    with one_thread() if "torch" in sys.modules else contextlib.nullcontext():
        yield


def _rows(outputs: Outputs) -> list[NDArray[np.float64]]:
    """Return the answers as arrays with one row per image, or per image's boxes."""
    told = [[(*box.xyxy, box.conf or 0.0, box.label) for box in boxes] for boxes in outputs.boxes or ()]
    found = [
        np.array([len(boxes), *(number for box in boxes for number in box)], np.float64) for boxes in told
    ]
    whole = [np.asarray(part, np.float64) for part in (outputs.logits, outputs.features) if part is not None]
    return [*whole, *(boxes.reshape(1, -1) for boxes in found)]


def _agree(one: Outputs, other: Outputs) -> bool:
    ours, theirs = _rows(one), _rows(other)
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and np.allclose(a, b, rtol=0, atol=SAME * float(np.abs(a).max(initial=0)), equal_nan=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def _rounded(outputs: Outputs) -> str:
    return str([_steps(row) for part in _rows(outputs) for row in part.reshape(len(part), -1)])


def _steps(row: NDArray[np.float64]) -> list[int]:
    """Return two sums of a row with fixed signs, in steps that follow the row's own size."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, len(row)))
    size = float(np.sqrt(np.square(row).mean()))
    if not np.isfinite(size) or size == 0:
        return [0, 0]
    step = 2.0 ** (np.floor(np.log2(size)) - STEPS)
    return [round(float(total) / np.sqrt(len(row)) / step) for total in signs @ row] + [
        int(np.floor(np.log2(size)))
    ]


def _arrays(first: Held, second: Held) -> str:
    return str(
        [(place, array.hex()) for place, array in first.arrays.items() if second.arrays.get(place) == array]
    )
