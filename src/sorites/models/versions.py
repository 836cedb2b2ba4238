"""Versions of models that are user code.

The version is the one that the user declares; otherwise it is a hash of the weights that the object holds
as its own attributes, of the files that declare it, and of its outputs for three trial images. Closures,
globals and nested containers are not searched: what changes only there is detected if it changes an output
by more than the rounding.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import Model
from sorites.core.rng import digest
from sorites.models.trial import agree, rounded, run_trial, with_logits

# The number of bytes of a computed version.
SIZE = 20
MAIN = "__main__"
PACKAGES = ("site-packages", "dist-packages")
_OURS = Path(__file__).resolve().parent.parent


def with_version(model: Model, *objects: Any) -> Model:
    """Return the model with its scale, and with a version computed from its weights, files and outputs.

    The trial images are run twice, as one batch and one by one. Arrays that change in between are not
    weights and are left out; if the outputs differ, they are left out too and the model is marked as not
    repeatable.

    Args:
        model: A model without a version.
        objects: The user's callables behind the model; default its ``forward`` and ``prepare``.

    Example:
        >>> import numpy as np
        >>> from sorites.core import Outputs
        >>> one = Model("m", lambda images: Outputs(np.zeros((len(images), 2))))
        >>> with_version(one).version == with_version(one).version
        True
    """
    callables = [part for obj in objects or (model.forward, model.prepare) for part in _parts(obj)]
    together, first = run_trial(model), [_weights(obj) for obj in callables]
    alone, second = run_trial(model, one_by_one=True), [_weights(obj) for obj in callables]
    repeats = together is None or alone is None or agree(together, alone)
    outputs = rounded(together) if together is not None and alone is not None and repeats else ""
    held = [sorted(before.items() & after.items()) for before, after in zip(first, second, strict=True)]
    code = sorted({text for obj in callables if callable(obj) for text in _declaring_code(obj)})
    if model.scale == "unknown":
        model = with_logits(model, together)
    version = digest(code, held, outputs, model.scale, size=SIZE).hex()
    return replace(model, version=version, repeats=repeats)


def _parts(obj: Any) -> list[Any]:
    """Return the objects behind a callable: the object of a bound method, the parts of a partial."""
    if isinstance(obj, types.MethodType):
        return [obj.__self__]
    if isinstance(obj, functools.partial):
        return [*_parts(obj.func), *obj.args, *obj.keywords.values()]
    return [obj]


# Weights: arrays, tensors and torch modules that are the object itself or one of its attributes.


def _weights(obj: Any) -> dict[str, bytes]:
    attributes = vars(obj) if hasattr(obj, "__dict__") and not isinstance(obj, type) else {}
    hashes = {name: _weights_bytes(value) for name, value in {"": obj, **attributes}.items()}
    return {name: value for name, value in hashes.items() if value is not None}


def _weights_bytes(obj: Any) -> bytes | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.nn.Module):
        return digest(*((name, array_bytes(value)) for name, value in obj.state_dict().items()))
    return array_bytes(obj)


def array_bytes(obj: Any) -> bytes | None:
    """Return a hash of an array or tensor of any library; None for other objects or unreadable arrays.

    Example:
        >>> array_bytes(np.zeros(3)) == array_bytes(np.zeros(3))
        True
        >>> array_bytes("text") is None
        True
    """
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


# Code: the file that declares an object and the local files that it imports.


def _declaring_code(obj: Any) -> list[str]:
    """Return hashes of the file that declares an object and of the local files it imports.

    Code that was typed has no file and is hashed by its source. Python and Sorites have versions of their
    own and are left out; of an installed package, only the declaring file counts.
    """
    unwrapped = inspect.unwrap(obj)
    entry = unwrapped if isinstance(unwrapped, types.FunctionType | type) else type(unwrapped)
    try:
        file = Path(inspect.getsourcefile(entry) or "").resolve()
    except (TypeError, OSError):  # built in, or typed
        file = Path()
    if not file.is_file():
        return [_source(entry)]
    if _is_library(file):
        installed = any(name in file.parts for name in PACKAGES)
        return [digest(file.read_bytes()).hex()] if installed and _OURS not in file.parents else []
    return _follow(file, entry.__module__)


@functools.lru_cache(4096)
def _is_library(file: Path) -> bool:
    """Return whether a file belongs to Python, to an installed package or to Sorites."""
    inside = (*(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")), _OURS)
    return any(name in file.parts for name in PACKAGES) or any(map(file.is_relative_to, inside))


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


def _follow(file: Path, module: str) -> list[str]:
    """Return hashes of a file and of all local files it imports.

    Of a script that is run (``__main__``), only definitions, imports and constant assignments count, so
    that a change of what it prints does not change the version.
    """
    root, pending, hashes = _root(file, module), [file], dict[Path, str]()
    while pending:
        path = pending.pop()
        if path in hashes:
            continue
        raw = path.read_bytes()
        try:
            tree = ast.parse(raw)
        except (SyntaxError, ValueError, RecursionError):
            tree = ast.Module([], [])
        hashes[path] = digest(_definitions(tree, raw) if module == MAIN and path == file else raw).hex()
        pending += _imported(tree, path, root)
    return list(hashes.values())


def _root(file: Path, module: str) -> Path:
    """Return the folder from which the imports of a file are resolved: that of its outermost package."""
    depth = module.count(".") + (file.name == "__init__.py")
    up = file.parents[min(depth, len(file.parents) - 1)]
    return up if module != MAIN and (up / module.partition(".")[0]).exists() else file.parent


def _definitions(tree: ast.Module, raw: bytes) -> str:
    """Return the source of definitions, imports and assignments without calls."""
    text = raw.decode("utf-8", "replace")
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    nodes = [
        node
        for node in tree.body
        if isinstance(node, defined)
        or (isinstance(node, ast.Assign) and not any(isinstance(part, ast.Call) for part in ast.walk(node)))
    ]
    return "\n".join(ast.get_source_segment(text, node) or "" for node in nodes)


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
            if path.is_file() and not _is_library(path.resolve()):
                yield path.resolve()
