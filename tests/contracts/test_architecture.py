"""Rules for the package as a whole: import direction, lazy imports of heavy libraries, no
unpickling, nothing left to do.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contracts import arrows

import sorites

ROOT = Path(sorites.__file__).parent
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
TORCH_MODULES = ROOT / "training" / "augment"
"""The only folder whose modules import torch at their top, to define torch modules;
``sorites.training`` names them lazily.
"""


def each(*rooms: str) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """Hold a rule for every file of some rooms, or of all, in one test that lists the files that break it."""
    some = [path for path in FILES if not rooms or path.relative_to(ROOT).parts[0] in rooms]

    def over(rule: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            broken = {
                path.relative_to(ROOT).as_posix(): said for path in some if (said := complaint(rule, path))
            }
            assert broken == {}

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return over


def complaint(rule: Callable[[Path], None], path: Path) -> str:
    """Return what a rule says of a file, or nothing."""
    try:
        rule(path)
    except AssertionError as error:
        return str(error) or "broken"
    return ""


every_file = each()


def imported(path: Path, leave: arrows.Leave | None = None) -> Iterator[str]:
    """Yield the full names of all modules and members that a file imports."""
    return arrows.names(parsed(path), ("sorites", *path.relative_to(ROOT).parent.parts), leave)


def parsed(path: Path) -> ast.Module:
    return arrows.parsed(path.read_text(encoding="utf-8"))


def test_imports_point_one_way() -> None:
    assert arrows.forbidden(ROOT) == []


def test_no_import_goes_round_in_a_circle() -> None:
    assert arrows.cycles(ROOT) == []


@pytest.mark.parametrize(
    ("where", "line", "complaint"),
    [
        (
            "shifts/blur.py",
            "from sorites.models import lite",
            "sorites.shifts.blur imports sorites.models.lite",
        ),
        (
            "models/lite.py",
            "def f():\n    from sorites.evaluation import plan",
            "sorites.models.lite imports sorites.evaluation.plan",
        ),
        (
            "analysis/features.py",
            "import sorites.reports.page",
            "sorites.analysis.features imports sorites.reports.page",
        ),
        (
            "core/table.py",
            "from sorites.suites.suite import Suite",
            "sorites.core.table imports sorites.suites.suite",
        ),
        ("attic/box.py", "", "the room attic has no layer"),
        ("loose.py", "", "the module loose lies in no room"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, where: str, line: str, complaint: str) -> None:
    tree = tmp_path / "sorites"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("__pycache__", "*.safetensors", "*.npy"))
    (tree / where).parent.mkdir(exist_ok=True)
    with (tree / where).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    assert complaint in arrows.forbidden(tree)


def test_a_cycle_inside_functions_is_found(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.py").write_text(f"def f():\n    from sorites import {other}\n")
    assert arrows.cycles(tmp_path) == [["sorites.a", "sorites.b"]]


def test_a_section_imports_no_other_section() -> None:
    sections = "sorites.reports.sections."
    found = arrows.imports(ROOT)
    assert {
        m: t
        for m, t in found.items()
        if m.startswith(sections) and any(name.startswith(sections) for name in t)
    } == {}


def test_shifts_draw_nothing() -> None:
    """Pillow turns and squeezes images there; sheets, charts and letters belong to the drawings."""
    users = [p.name for p in FILES if p.parent.name == "shifts" and "PIL.ImageDraw" in set(imported(p))]
    assert users == []


@each("optics")
def test_optics_is_physics_alone(path: Path) -> None:
    """NumPy and SciPy, apart from the ray tracer behind a lens file and the JPEG codec inside a camera."""
    allowed = {"numpy", "scipy", "sorites", *sys.stdlib_module_names}
    extra = {
        "tracing/lens.py": {"optiland"},
        "tracing/blur.py": {"finufft"},
        "develop.py": {"PIL"},
        "convolve.py": {"torch", "ducc0"},
    }
    allowed |= extra.get(path.relative_to(ROOT / "optics").as_posix(), set())
    names = set(imported(path))
    assert {name.split(".")[0] for name in names} <= allowed
    inside = {name for name in names if name.startswith("sorites.")}
    assert all(
        name.startswith(("sorites.optics", "sorites.core.errors", "sorites.core.compute", "sorites.io.files"))
        for name in inside
    ), inside


@every_file
def test_heavy_libraries_are_imported_where_they_are_used(path: Path) -> None:
    names = {name.split(".")[0] for name in imported(path, arrows.not_at_import)}
    assert not names & set(HEAVY) - ({"torch"} if path.parent == TORCH_MODULES else set())


def test_importing_the_rooms_is_cheap() -> None:
    rooms = [
        arrows.module_name(path, ROOT)
        for path in FILES
        if path.parent.name != "sections" and path.parent != TORCH_MODULES
    ]
    code = f"import sys, {', '.join(rooms)}; print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@every_file
def test_nothing_is_left_to_do(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [
        word
        for word in ("TODO", "FIXME", "XXX", "NotImplementedError", "pickle.load", "breakpoint(")
        if word in text
    ]


@every_file
def test_weights_are_never_unpickled(path: Path) -> None:
    if ".load(" not in path.read_text(encoding="utf-8"):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            function, keywords = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert function != "torch.load" or keywords.get("weights_only") == "True"
            assert function not in {"np.load", "numpy.load"} or keywords.get("allow_pickle") != "True"
