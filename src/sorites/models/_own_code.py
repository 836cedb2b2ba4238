"""The user's own code behind a callable: the files of its modules and of those they import, libraries and ours left out."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sorites.rng import digest

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
    return file.startswith("<frozen") or any(name in path.parts for name in PACKAGES) or any(map(path.is_relative_to, inside))


def _file(thing: Any) -> str | None:
    module = thing if isinstance(thing, types.ModuleType) else sys.modules.get(getattr(thing, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None


def is_standard(thing: Any) -> bool:
    """Return whether a class or function is built in or belongs to Python itself."""
    module = getattr(thing, "__module__", None)
    name = module.partition(".")[0] if isinstance(module, str) else "builtins"
    return name in sys.stdlib_module_names or name == "builtins"


def is_installed(thing: Any) -> bool:
    """Return whether a function or class belongs to an installed package other than this one."""
    file = _file(thing)
    return file is not None and is_library_file(file) and not is_standard(thing) and _OURS not in Path(file).resolve().parents


def is_own(thing: Any) -> bool:
    """Return whether a function, class or module is the user's own; typed code without a file is."""
    file = _file(thing)
    if file is not None:
        return not is_library_file(file)
    return not isinstance(thing, types.ModuleType) and getattr(thing, "__module__", None) == MAIN


def code_of(things: Iterable[Any]) -> str:
    """Return a hash of the user's own code behind functions, classes and modules: whole files, with the files they import.

    Of a script that is run (``__main__``) only definitions, imports and plain constants count: a line that draws or prints
    another result changes no answer. Code that was typed and not saved, or lies in an installed package, counts by itself.
    """
    files, typed = dict[Path, str](), list[str]()
    for thing in things:
        file, name = _file(thing), getattr(thing, "__module__", None) or getattr(thing, "__name__", "")
        if file is None or is_library_file(file) or not Path(file).is_file():
            typed.append(_typed(thing))
        else:
            _follow(Path(file).resolve(), str(thing.__name__ if isinstance(thing, types.ModuleType) else name), files)
    return digest(*sorted({*files.values(), *typed})).hex()


def _follow(file: Path, module: str, files: dict[Path, str]) -> None:
    """Add a file, and every file beside or below it that its imports name, to ``files`` with a hash of what counts of it."""
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
    kept = [node for node in tree.body if isinstance(node, defined) or (isinstance(node, ast.Assign) and _calls_nothing(node))]
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
    """Yield the files that importing ``a.b.c`` runs, as far as they lie below ``base`` and are no library's."""
    for count in range(1, len(parts) + 1):
        place = base.joinpath(*parts[:count])
        for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
            if path.is_file() and not is_library_file(str(path)):
                yield path.resolve()


def _typed(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        return "" if code is None else _spelled(code)


def _spelled(code: types.CodeType) -> str:
    consts = [_spelled(const) if isinstance(const, types.CodeType) else repr(const) for const in code.co_consts]
    return repr((code.co_code, code.co_names, consts))
