"""The rules of the house that a machine can hold: who may know whom, what is read when, how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sorites

ROOT = Path(sorites.__file__).parent
ROOMS = ("shifts", "sources", "measures", "models", "scorers", "metrics")
ABOVE = {
    "plan",
    "runner",
    "shots",
    "look",
    "refine",
    "folder",
    "dataset",
    "summary",
    "checks",
    "views",
    "cli",
    "engines",
    "reports",
}
HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "onnx",
    "onnxruntime",
    "plotly",
    "matplotlib",
    "cv2",
    "optiland",
    "transformers",
    "duckdb",
)
FILES = sorted(ROOT.rglob("*.py"))


def each(*rooms: str) -> pytest.MarkDecorator:
    """Every file of some rooms, or of all."""
    some = [p for p in FILES if not rooms or p.relative_to(ROOT).parts[0] in rooms]
    return pytest.mark.parametrize("path", [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in some])


every_file = each()


def imports(tree: ast.AST, path: Path) -> Iterator[str]:
    """Full names of all modules and members that some part of a file imports."""
    here = ("sorites", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*here[: len(here) - node.level + 1], node.module or ""]).strip(".") if node.level else node.module
            yield from (f"{base}.{alias.name}" for alias in node.names)


def at_import(tree: ast.Module) -> ast.Module:
    """What runs when the file is imported: function bodies and type-checking blocks left out."""

    class Strip(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        def visit_If(self, node: ast.If) -> ast.AST | None:
            return None if "TYPE_CHECKING" in ast.dump(node.test) else self.generic_visit(node)

    stripped = Strip().visit(tree)
    assert isinstance(stripped, ast.Module)
    return stripped


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@each(*ROOMS)
def test_plug_in_rooms_know_neither_each_other_nor_what_runs_them(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    reached = {name.split(".")[1] for name in imports(parsed(path), path) if name.startswith("sorites.")}
    assert not reached & (set(ROOMS) - {room}), f"{path.name} reaches into another room"
    assert not reached & ABOVE, f"{path.name} reaches up"


@each("optics")
def test_optics_is_physics_alone(path: Path) -> None:
    """NumPy and SciPy, apart from the ray tracer behind a lens file and the JPEG codec inside a camera."""
    allowed = {"numpy", "scipy", "sorites", *sys.stdlib_module_names}
    allowed |= {"lens.py": {"optiland"}, "lens_psf.py": {"finufft"}, "develop.py": {"PIL"}}.get(path.name, set())
    names = set(imports(parsed(path), path))
    assert {name.split(".")[0] for name in names} <= allowed
    inside = {name for name in names if name.startswith("sorites.")}
    assert all(name.startswith(("sorites.optics", "sorites.errors", "sorites.cache")) for name in inside), inside


@every_file
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    names = {name.split(".")[0] for name in imports(at_import(parsed(path)), path)}
    assert not names & set(HEAVY)


def test_importing_the_rooms_is_cheap() -> None:
    rooms = [f"sorites.{room}" for room in (*ROOMS, "optics", "suite", "runner", "dataset", "summary", "checks", "cli")]
    code = f"import sys, {', '.join(rooms)}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_core_comes_first() -> None:
    """core <- table <- rooms <- plan and the rest: nothing below imports what stands above it, when it is imported."""
    below = {
        "errors": set(), "rng": set(), "cache": set(), "registry": {"errors"}, "labels": {"errors"}, "table": {"errors"},
        "nouns": set(), "core": {"errors", "registry", "labels", "nouns"}, "progress": set(),
    }  # fmt: skip
    for name, allowed in below.items():
        path = ROOT / f"{name}.py"
        reached = {n.split(".")[1] for n in imports(at_import(parsed(path)), path) if n.startswith("sorites.")}
        assert reached <= allowed, f"{name} imports {reached - allowed}"


@every_file
def test_no_file_is_a_god(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@every_file
def test_every_module_says_what_it_is(path: Path) -> None:
    if parsed(path).body:
        assert ast.get_docstring(parsed(path))


@every_file
def test_nothing_is_left_to_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [word for word in ("TODO", "FIXME", "XXX", "NotImplementedError", "pickle.load", "breakpoint(") if word in text]


@every_file
def test_weights_are_never_unpickled(path: Path) -> None:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"np.load", "numpy.load"}:
            assert not any(k.arg == "allow_pickle" and ast.unparse(k.value) == "True" for k in node.keywords)
