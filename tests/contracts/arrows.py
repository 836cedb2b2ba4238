"""Who may import whom in ``src/sorites``, read from the folders themselves: the rules behind
``test_architecture``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

PLUG_INS = ("shifts", "sources", "measures", "encoders", "models", "scorers", "metrics")
BASE = ("core", "io", "suites")
LAYERS: tuple[tuple[str, ...], ...] = (
    BASE,
    ("optics", "diffusion", "deploy"),
    ("lenses", "scenes"),
    PLUG_INS,
    ("evaluation",),
    ("datasets",),
    ("analysis",),
    ("reports",),
    ("training",),
    ("transforms",),
    ("apps",),
    ("cli",),
)
"""Rooms from the bottom up. A room imports rooms of lower layers, never one of its own layer or above; the rooms of the base
may import each other, as long as no circle arises."""

TOP = ("__init__", "__main__")
"""Modules of the package itself, which may import every room: the public names and the command line."""

Imports = dict[str, set[str]]


Leave = Callable[[ast.AST], bool]


@functools.cache
def parsed(text: str) -> ast.Module:
    """Return the tree of a file, parsed once; nobody changes it."""
    return ast.parse(text)


def for_types_only(node: ast.AST) -> bool:
    """Return whether only a type checker reads a block."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def not_at_import(node: ast.AST) -> bool:
    """Return whether a block does not run when its file is imported."""
    return isinstance(node, ast.FunctionDef) or for_types_only(node)


def walk(tree: ast.AST, leave: Leave | None = None) -> Iterator[ast.stmt]:
    """Yield the statements of a tree, without the blocks to leave out. Expressions import nothing."""
    left = [tree]
    while left:
        node = left.pop()
        if leave is not None and leave(node):
            continue
        if isinstance(node, ast.stmt):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, field, None) or []


def names(tree: ast.AST, package: tuple[str, ...], leave: Leave | None = None) -> Iterator[str]:
    """Yield the full name of every module or member that part of a file imports."""
    for node in walk(tree, leave):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".")
            yield from (f"{base if node.level else node.module}.{alias.name}" for alias in node.names)


def module_name(path: Path, root: Path) -> str:
    parts = ("sorites", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _imported(text: str, package: tuple[str, ...], types_too: bool) -> tuple[str, ...]:
    return tuple(names(parsed(text), package, None if types_too else for_types_only))


def imports(root: Path, types_too: bool = True) -> Imports:
    """Map each module to the modules of the package that it imports anywhere, inside functions too."""
    modules = {module_name(path, root): path for path in sorted(root.rglob("*.py"))}
    found: Imports = {}
    for module, path in modules.items():
        package = tuple(module.split(".")) if path.name == "__init__.py" else tuple(module.split("."))[:-1]
        found[module] = set()
        for name in _imported(path.read_text(encoding="utf-8"), package, types_too):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                found[module].add(target)
    return found


def forbidden(root: Path) -> list[str]:
    """Say which rooms have no place in the layers, and which imports point the wrong way."""
    layer = {room: i for i, rooms in enumerate(LAYERS) for room in rooms}
    rooms = {path.name for path in root.iterdir() if path.is_dir() and path.name != "__pycache__"}
    flat = {path.stem for path in root.glob("*.py")} - set(TOP)
    wrong = [f"the room {room} has no layer" for room in sorted(rooms - layer.keys())]
    wrong += [f"the module {module} lies in no room" for module in sorted(flat)]
    for module, targets in imports(root).items():
        if module not in ("sorites", "sorites.__main__"):
            wrong += [
                f"{module} imports {target}"
                for target in sorted(targets)
                if not _allowed(module, target, layer)
            ]
    return wrong


def _allowed(module: str, target: str, layer: Mapping[str, int]) -> bool:
    mine, theirs = module.split(".")[1], [*target.split("."), ""][1]
    if theirs == "":
        return True  # the version number, and nothing else, lives in the package itself
    if mine == theirs:
        return True
    if mine not in layer or theirs not in layer:
        return False
    if mine in BASE and theirs in BASE:
        return theirs != "suites"
    return layer[theirs] < layer[mine]


def cycles(root: Path) -> list[list[str]]:
    """List the groups of modules that reach each other, imports inside functions counted and those
    for types not.
    """
    graph = imports(root, types_too=False)
    reach = {module: _reached(module, graph) for module in graph}
    groups = {tuple(sorted(other for other in reach[module] if module in reach[other])) for module in graph}
    return [list(group) for group in sorted(groups) if group]


def _reached(module: str, graph: Imports) -> set[str]:
    seen: set[str] = set()
    left = [module]
    while left:
        for target in graph.get(left.pop(), ()):
            if target not in seen:
                seen.add(target)
                left.append(target)
    return seen
