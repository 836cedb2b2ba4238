"""Plug-ins that are user code: ``python:module:name``, from an installed module or the current folder.

Nothing is registered: the name of the plug-in is the spec. Its version follows from the code that declares it
(its file and the local files that one imports), so that a changed plug-in is a changed run.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.core.rng import digest
from sorites.core.specs import unique_groups
from sorites.core.types import Measure, Metric, Shift

MAIN = "__main__"
PACKAGES = ("site-packages", "dist-packages")
_OURS = Path(__file__).resolve().parent.parent


def own_scorer(name: str, obj: Any) -> Callable[..., Any]:
    """Return a scorer of user code: a function ``(outputs, **params)``, or a class with ``__call__``.

    Raises:
        SoritesError: It is neither.
    """
    # The type of a class can be called, so its bases are searched.
    called_class = isinstance(obj, type) and any("__call__" in vars(base) for base in obj.__mro__)
    if not called_class and not isinstance(obj, types.FunctionType | functools.partial):
        raise SoritesError(
            f"scorer {name}: expected a function of outputs, or a class with fit and __call__, got a"
            f" {type(obj).__name__}"
        )
    called: Callable[..., Any] = obj
    return called


def own_metric(name: str, obj: Any) -> Metric:
    """Return a metric of user code: a function ``(table, by=...)``.

    Raises:
        SoritesError: It is not a function.
    """
    if not callable(obj):
        raise SoritesError(f"metric {name}: expected a function (table, by), got a {type(obj).__name__}")
    return unique_groups(obj)


def own_measure(name: str, obj: Any) -> Measure:
    """Return a measure of user code: what ``add_measure`` returns, or a function with ``nearer``.

    Raises:
        SoritesError: It is neither.
    """
    if isinstance(obj, Measure):
        return replace(obj, name=name, version=f"{obj.version}-{code_version(obj.function)}")
    nearer = getattr(obj, "nearer", None)
    if not callable(obj) or nearer not in ("lower", "higher"):
        raise SoritesError(
            f"measure {name}: expected a function (reference, moved) with the attribute nearer, 'lower' or"
            f" 'higher', or a Measure; got a {type(obj).__name__}"
        )
    about = " ".join((inspect.getdoc(obj) or "").split("\n\n")[0].split())
    return Measure(name, obj, nearer, str(getattr(obj, "unit", "")), about, declared_version(obj))


def own_shift(name: str, obj: Any) -> Shift:
    """Return a shift of user code: what ``add_shift`` returns.

    Raises:
        SoritesError: It is not a ``Shift``.
    """
    if not isinstance(obj, Shift):
        raise SoritesError(
            f"shift {name}: expected a Shift, such as a function decorated with add_shift, got a"
            f" {type(obj).__name__}"
        )
    return replace(obj, name=name, version=f"{obj.version}-{code_version(obj.apply)}")


def declared_version(obj: Any) -> int | str:
    """Return the version that an object declares itself (an inherited one does not count), or that of its
    code.
    """
    version: int | str | None = getattr(obj, "__dict__", {}).get("version")
    return code_version(obj) if version is None else version


def code_version(obj: Any) -> str:
    """Return a hash of the code that declares a function, a class or an object."""
    return digest(sorted(declaring_code(obj)), size=8).hex()


# Code: the file that declares an object and the local files that it imports.


def declaring_code(obj: Any) -> list[str]:
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
