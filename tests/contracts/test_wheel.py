"""The wheel as a user gets it: everything that the code reads is in it, nothing else is, and its
metadata is right.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of a copy of the source, built without a network."""
    place = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, place)
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel('out'))"
    (place / "out").mkdir()
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build], cwd=place, check=True, capture_output=True, timeout=300
    )
    return zipfile.ZipFile(next((place / "out").glob("*.whl")))


def test_it_holds_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "sorites").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert not [name for name in held if re.match(r"(tests|tools|bench|docs|proof|examples)/", name)]


def test_every_file_of_data_that_git_knows_is_in_it(wheel: zipfile.ZipFile) -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a checkout and git")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "src/sorites"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    there = [Path(name) for name in listed.split("\0") if name and (ROOT / name).exists()]
    data = {path.relative_to("src").as_posix() for path in there if path.suffix != ".py"}
    kinds = {
        ".toml",
        ".tsv",
        ".npy",
        ".safetensors",
        ".json",
        ".css",
        ".js",
        ".html",
        ".bib",
        ".txt",
        ".typed",
    }
    assert kinds <= {Path(name).suffix for name in data}
    assert data - set(wheel.namelist()) == set()


def run_python(site: Path, code: str, *words: str) -> str:
    """What Python prints with the unpacked wheel before everything else on its path, in the folder
    that holds it.
    """
    first = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import sorites; assert"
        " sorites.__file__.startswith(sys.path[0])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{first}\n{code}", *words],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def site(wheel: zipfile.ZipFile, tmp_path: Path) -> Path:
    """The wheel, unpacked where no file of the source is in reach."""
    wheel.extractall(tmp_path / "site")
    return tmp_path / "site"


END = "--- end of a command ---\n"
TYPED = f"""
from importlib import import_module

for line in sys.argv[1:]:
    sys.argv = ["sorites", *line.split()]
    try:
        import_module("sorites.cli").main()
    except SystemExit as left:
        if left.code:
            raise
    sys.stdout.write({END!r})
"""
"""Types several commands in one process, and ends what each of them prints with a line."""


def test_its_verbs_find_their_data(site: Path) -> None:
    """Suites, recipes, plans, references, lenses, kernels, the report's page and the tasks of annotators."""

    rows = "".join(f"s{i},1,1,m,fog,{i % 2}\n" for i in range(4))
    (site.parent / "p.csv").write_text(f"sample,label,pred,model,shift,severity\n{rows}")
    lines = (
        "list suites",
        "list recipes",
        "collect --plan focus --dry-run",
        "cite demo",
        "lens list --format csv",
        "kernels --out kernels.png --format csv",
        "import p.csv --as csv --out run",
        "report run --out page.html",
    )
    *said, _, _ = run_python(site, TYPED, *lines).split(END)[: len(lines)]
    for kind, listed in zip(("suites", "recipes"), said, strict=False):
        names = {path.stem for path in site.rglob("*.toml") if path.parent.name == kind}
        assert names
        assert names <= {word.partition("@")[0] for word in listed.split()}, f"some {kind} are not listed"
    _, _, planned, cited, lenses, kernels = said
    assert len(planned.splitlines()) > 10
    assert cited.strip()
    assert lenses.count("\n") > 10
    assert kernels.count("\n") > 10
    page = (site.parent / "page.html").read_text(encoding="utf-8")
    for asset in ("page.css", "page.js"):
        [held] = [path for path in site.rglob(asset) if path.parent.name == "reports"]
        assert held.read_text(encoding="utf-8").strip()[-60:] in page, f"the page lacks {asset}"


def test_its_modules_find_their_data(site: Path) -> None:
    """What verbs read only when a model runs or a server listens: batteries, tasks, pages, the toy
    diffusion model, tables.
    """
    run_python(
        site,
        """
from sorites import core
from sorites.apps.annotation.server import PAGE
from sorites.apps.annotation.task import load
from sorites.apps.generation.styles import blocked_words, styles
from sorites.analysis.passport.battery import load_battery
from sorites.apps.serving import static

assert all(load_battery(name).parts for name in ("short", "standard", "full"))
assert all(load(name)[0].questions for name in ("boxes", "context", "in_class", "visible"))
assert all(static("sorites.apps.annotation", "page", name) for name in PAGE)
for page in ("review", "screen"):
    assert all(static(f"sorites.apps.studio.{page}", f"page.{kind}") for kind in ("html", "css", "js"))
assert styles() and blocked_words(None)
assert core.source("slider:toy").samples
""",
    )


def test_its_metadata_licence_and_command_are_right(wheel: zipfile.ZipFile) -> None:
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = Parser().parsestr(wheel.read(info).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (told["Name"], told["Version"], told["License-Expression"]) == (
        "sorites",
        project["version"],
        "Apache-2.0",
    )
    assert told["Requires-Python"] == ">=3.11"
    assert set(told.get_all("Provides-Extra")) == set(project["optional-dependencies"])
    assert told.get_all("License-File") == ["LICENSE"]
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    assert "How far can the world shift" in str(told.get_payload())
    core = [line for line in told.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0].lower() for line in core} == {  # type: ignore[index]
        re.match(r"[\w-]+", line)[0].lower()
        for line in project["dependencies"]  # type: ignore[index]
    }
    assert not [line for line in core if re.match(r"(torch|timm|pytest)\b", line)]
    points = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "sorites = sorites.cli:main" in points


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'__version__ = "{version}"' in (ROOT / "src/sorites/__init__.py").read_text()
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_dockerfile_copies_what_there_is_and_runs_the_script(wheel: zipfile.ZipFile) -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [part for line in lines if line.startswith("COPY ") for part in line.split()[1:-1]]
    assert all((ROOT / part).exists() for part in copied)
    assert any(line.startswith("RUN sh /source/docker/install.sh ") for line in lines)
    subprocess.run(["sh", "-n", str(ROOT / "docker/install.sh")], check=True)
