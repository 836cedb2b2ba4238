"""Who may import whom in ``src/sorites``, read from the folders themselves: the rules behind
``test_architecture``.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
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
    ("apps",),
    ("cli",),
)
"""Rooms from the bottom up. A room imports rooms of lower layers, never one of its own layer or above; the rooms of the base
may import each other, as long as no circle arises."""

Imports = dict[str, set[str]]


def names(tree: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the full name of every module or member that part of a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) - node.level + 1], node.module or ""]).strip(".")
            yield from (f"{base if node.level else node.module}.{alias.name}" for alias in node.names)


def module_name(path: Path, root: Path) -> str:
    parts = ("sorites", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def without_type_checking(tree: ast.Module) -> ast.Module:
    """Drop the blocks that only a type checker reads."""

    class Drop(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)

    dropped = Drop().visit(tree)
    assert isinstance(dropped, ast.Module)
    return dropped


@functools.cache
def _imported(text: str, package: tuple[str, ...], types_too: bool) -> tuple[str, ...]:
    tree = ast.parse(text)
    return tuple(names(tree if types_too else without_type_checking(tree), package))


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
    flat = {path.stem for path in root.glob("*.py")} - {"__init__"}
    wrong = [f"the room {room} has no layer" for room in sorted(rooms - layer.keys())]
    wrong += [f"the module {module} lies in no room" for module in sorted(flat)]
    for module, targets in imports(root).items():
        if module != "sorites":
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
