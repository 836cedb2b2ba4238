"""Versions of models that are user code: hashes of the code, of the arrays it holds, and of its outputs for
trial images.
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

# The source files of user code; those of libraries and of Sorites are left out.

PACKAGES = ("site-packages", "dist-packages")
MAIN = "__main__"
_OURS = Path(__file__).resolve().parent.parent


@functools.cache
def _standard() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


@functools.lru_cache(4096)
def is_library_file(file: str) -> bool:
    """Return whether a file belongs to Python, to an installed package or to Sorites."""
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
    """Return whether a class or function is built in or in the standard library."""
    module = getattr(obj, "__module__", None)
    name = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return name in sys.stdlib_module_names or name == "builtins"


def is_installed(obj: Any) -> bool:
    """Return whether a function or class belongs to an installed package other than Sorites."""
    file = _file(obj)
    return (
        file is not None
        and is_library_file(file)
        and not is_standard(obj)
        and _OURS not in Path(file).resolve().parents
    )


def is_own(obj: Any) -> bool:
    """Return whether a function, class or module is user code, including interactive code without a file."""
    file = _file(obj)
    if file is not None:
        return not is_library_file(file)
    return not isinstance(obj, types.ModuleType) and getattr(obj, "__module__", None) == MAIN


def code_of(objects: Iterable[Any]) -> str:
    """Return a hash of the user code behind functions, classes and modules: whole files and the files they
    import.

    Of a script that is run (``__main__``), only definitions, imports and constant assignments count, so
    that changes of its output do not change the version. Interactive code and code in installed packages
    is hashed by its own source.
    """
    files, sources = dict[Path, str](), list[str]()
    for obj in objects:
        file, name = _file(obj), getattr(obj, "__module__", None) or getattr(obj, "__name__", "")
        if file is None or is_library_file(file) or not Path(file).is_file():
            sources.append(_source(obj))
        else:
            _follow(
                Path(file).resolve(),
                str(obj.__name__ if isinstance(obj, types.ModuleType) else name),
                files,
            )
    return digest(*sorted({*files.values(), *sources})).hex()


def _follow(file: Path, module: str, files: dict[Path, str]) -> None:
    """Add a file and all local files it imports to ``files``, each with a hash of its relevant content."""
    root, pending = _root(file, module), [file]
    while pending:
        path = pending.pop()
        if path in files:
            continue
        raw = path.read_bytes()
        tree = _parse(raw)
        files[path] = digest(_definitions(tree, raw) if module == MAIN and path == file else raw).hex()
        if tree is not None:
            pending += [other for other in _imported(tree, path, root) if other not in files]


def _root(file: Path, module: str) -> Path:
    """Return the folder from which the imports of a file are resolved: that of its outermost package."""
    depth = module.count(".") + (file.name == "__init__.py")
    up = file.parents[min(depth, len(file.parents) - 1)]
    return up if module != MAIN and (up / module.partition(".")[0]).exists() else file.parent


def _parse(raw: bytes) -> ast.Module | None:
    try:
        return ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _definitions(tree: ast.Module | None, raw: bytes) -> str:
    """Return the source of definitions, imports and assignments without calls."""
    if tree is None:
        return str(raw)
    text = raw.decode("utf-8", "replace")
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [
        node
        for node in tree.body
        if isinstance(node, defined) or (isinstance(node, ast.Assign) and _calls_nothing(node))
    ]
    return "\n".join(ast.get_source_segment(text, node) or "" for node in nodes)


def _calls_nothing(node: ast.Assign) -> bool:
    return not any(isinstance(part, ast.Call) for part in ast.walk(node))


def _imported(tree: ast.Module, file: Path, root: Path) -> Iterator[Path]:
    """Yield the files below ``root`` that a file imports, including imports inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (path for alias in node.names for path in _module_files(root, alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            above = len(file.parents) > node.level > 0
            base = file.parents[node.level - 1] if above else root
            for alias in node.names:
                yield from _module_files(base, [*(node.module.split(".") if node.module else ()), alias.name])


def _module_files(base: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below ``base`` that importing ``a.b.c`` runs, libraries excluded."""
    for count in range(1, len(parts) + 1):
        module = base.joinpath(*parts[:count])
        for path in (module.with_name(f"{module.name}.py"), module / "__init__.py"):
            if path.is_file() and not is_library_file(str(path)):
                yield path.resolve()


def _source(obj: Any) -> str:
    try:
        return inspect.getsource(obj)
    except (OSError, TypeError):
        code = getattr(obj, "__code__", None)
        return "" if code is None else _code_text(code)


def _code_text(code: types.CodeType) -> str:
    consts = [
        _code_text(const) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts
    ]
    return repr((code.co_code, code.co_names, consts))


# The objects that a callable holds: arrays and tensors in globals, closures and attributes, and its code.

# The maximum number of objects to visit; the outputs of the model cover the rest.
MAX_OBJECTS = 50_000


@dataclass
class Reachable:
    """The arrays that a callable holds, by their path from it, and the user functions and classes it uses."""

    arrays: dict[str, bytes] = field(default_factory=dict)
    code: list[Any] = field(default_factory=list)


def find_reachable(*objects: Any) -> Reachable:
    """Collect everything reachable from callables without calling them; each object is visited once."""
    reachable, visited, pending = (
        Reachable(),
        dict[int, Any](),
        [(str(i), obj) for i, obj in enumerate(objects)],
    )
    entries = [obj if isinstance(obj, types.FunctionType | type) else type(obj) for obj in objects]
    reachable.code += [entry for entry in entries if is_installed(entry)]
    while pending and len(visited) < MAX_OBJECTS:
        path, obj = pending.pop()
        if id(obj) in visited or isinstance(obj, str | bytes | int | float | complex | None):
            continue
        visited[id(obj)] = obj  # keeps the object alive, so that its id is not reused
        array = array_bytes(obj)
        if array is not None:
            reachable.arrays[path] = array
            continue
        if isinstance(obj, types.FunctionType | type | types.ModuleType) and is_own(obj):
            reachable.code.append(obj)
        pending += [(f"{path}.{name}", part) for name, part in reversed(list(_parts(obj)))]
    return reachable


def array_bytes(obj: Any) -> bytes | None:
    """Return a hash of an array or tensor of any library; None for other objects or unreadable arrays."""
    if isinstance(obj, type) or not all(hasattr(type(obj), name) for name in ("__array__", "dtype", "shape")):
        return None
    try:
        array = _plain(obj)
        hasher = hashlib.sha256(digest(obj.dtype, tuple(obj.shape)))
        hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    except Exception:  # libraries raise different errors for arrays that cannot be read
        return None
    return hasher.digest()


def _plain(obj: Any) -> NDArray[Any]:
    """Return the values of an array or tensor; dtypes that NumPy lacks are returned as bytes."""
    if not hasattr(obj, "detach"):
        return np.asarray(obj)
    import torch

    flat = obj.detach().cpu().contiguous()
    return np.asarray(flat.reshape(-1).view(torch.uint8).numpy())


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named parts of an object. The names enter versions, so they must not change."""
    if isinstance(obj, types.FunctionType):
        yield from _of_function(obj)
    elif isinstance(obj, _WRAPPERS):
        yield from _of_wrapper(obj)
    elif isinstance(obj, list | tuple):
        yield from ((str(i), part) for i, part in enumerate(obj))
    elif isinstance(obj, Mapping):
        yield from ((str(key), part) for key, part in _items(obj) if isinstance(key, str | int))
    elif isinstance(obj, type | types.ModuleType):
        yield from _of_namespace(obj)
    elif not is_standard(type(obj)):
        yield "class", type(obj)
        yield from _attributes(obj).items()


_WRAPPERS = (
    types.MethodType,
    functools.partial,
    staticmethod,
    classmethod,
    functools.cached_property,
    property,
)


def _of_wrapper(obj: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(obj, types.MethodType):
        yield from (("self", obj.__self__), ("function", obj.__func__))
    elif isinstance(obj, functools.partial):
        yield from (("function", obj.func), ("arguments", obj.args), ("keywords", obj.keywords))
    elif isinstance(obj, property):
        yield "function", obj.fget
    else:
        yield "function", getattr(obj, "__func__", getattr(obj, "func", None))


def _of_namespace(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield the members and bases of a class or module."""
    members = vars(obj).items() if is_own(obj) else ()
    yield from (
        (name, part)
        for name, part in members
        if not name.startswith("__") or isinstance(part, types.FunctionType)
    )
    yield from ((base.__name__, base) for base in getattr(obj, "__bases__", ()))


def _items(obj: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    try:
        return list(obj.items())
    except Exception:  # a user's mapping may raise anything
        return []


def _attributes(obj: Any) -> dict[str, Any]:
    slots = [name for kind in type(obj).__mro__ for name in _slots(kind) if hasattr(obj, name)]
    return {**{name: getattr(obj, name) for name in slots}, **getattr(obj, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return tuple(
        name for name in ((names,) if isinstance(names, str) else tuple(names)) if not name.startswith("__")
    )


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the closure and defaults of a function and, for user code, the globals that it uses."""
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
    return list(
        dict.fromkeys([*code.co_names, *(name for inner_code in inner for name in _names(inner_code))])
    )


# The version of a model without one: user code, arrays, and the outputs for three trial images.

# The number of bytes of such a version.
SIZE = 20
# The side of the trial images in px.
SIDE = 224
# Outputs are rounded to the magnitude of a row (a power of two) divided by 2 ** STEPS: 0.1 to 0.2 %.
STEPS = 9
# The maximum difference between two outputs for the same image, relative to the largest value.
SAME = 1e-4


def with_version(model: Model, *objects: Any) -> Model:
    """Return the model with a version computed from what its outputs depend on, as far as that is known.

    The trial images are run twice, as one batch and one by one. Arrays that change in between are not
    weights and are left out; if the outputs differ, they are left out too and the model is marked as not
    repeatable.
    """
    callables = objects or (model.forward, model.prepare)
    together, first = _run_trial(model, False), find_reachable(*callables)
    alone, second = _run_trial(model, True), find_reachable(*callables)
    repeats = together is None or alone is None or _agree(together, alone)
    outputs = _rounded(together) if together is not None and alone is not None and repeats else ""
    version = digest(code_of(first.code), _arrays(first, second), outputs, size=SIZE).hex()
    return replace(model, version=version, repeats=repeats)


def _run_trial(model: Model, one_by_one: bool) -> Outputs | None:
    """Return the outputs for the trial images, or None if the model fails, which is reported when it runs."""
    images = trial_images((SIDE, SIDE))
    batches = [[image] for image in images] if one_by_one else [images]
    try:
        with _one_thread():
            return Outputs.join([model(batch) for batch in batches])
    except Exception:  # user code may raise anything
        return None


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    with one_thread() if "torch" in sys.modules else contextlib.nullcontext():
        yield


def _rows(outputs: Outputs) -> list[NDArray[np.float64]]:
    """Return the outputs as arrays with one row per image; the boxes of an image are one row."""
    box_rows = [
        np.array(
            [len(boxes), *(value for box in boxes for value in (*box.xyxy, box.conf or 0.0, box.label))],
            np.float64,
        )
        for boxes in outputs.boxes or ()
    ]
    arrays = [np.asarray(part, np.float64) for part in (outputs.logits, outputs.features) if part is not None]
    return [*arrays, *(row.reshape(1, -1) for row in box_rows)]


def _agree(first: Outputs, second: Outputs) -> bool:
    ours, theirs = _rows(first), _rows(second)
    return len(ours) == len(theirs) and all(
        a.shape == b.shape
        and np.allclose(a, b, rtol=0, atol=SAME * float(np.abs(a).max(initial=0)), equal_nan=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def _rounded(outputs: Outputs) -> str:
    return str([_steps(row) for part in _rows(outputs) for row in part.reshape(len(part), -1)])


def _steps(row: NDArray[np.float64]) -> list[int]:
    """Return two random projections of a row, rounded relative to its magnitude, and the magnitude."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, len(row)))
    size = float(np.sqrt(np.square(row).mean()))
    if not np.isfinite(size) or size == 0:
        return [0, 0]
    step = 2.0 ** (np.floor(np.log2(size)) - STEPS)
    return [round(float(total) / np.sqrt(len(row)) / step) for total in signs @ row] + [
        int(np.floor(np.log2(size)))
    ]


def _arrays(first: Reachable, second: Reachable) -> str:
    return str(
        [(path, array.hex()) for path, array in first.arrays.items() if second.arrays.get(path) == array]
    )
