"""The wheel as a user gets it: everything that the code reads is in it, nothing else is, and its metadata is right."""

from __future__ import annotations

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
    subprocess.run([sys.executable, "-W", "ignore", "-c", build], cwd=place, check=True, capture_output=True, timeout=300)
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
    assert not [name for name in held if re.match(r"(tests|bench|docs|proof|examples)/", name)]


def test_its_metadata_licence_and_command_are_right(wheel: zipfile.ZipFile) -> None:
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    told = Parser().parsestr(wheel.read(info).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (told["Name"], told["Version"], told["License-Expression"]) == ("sorites", project["version"], "Apache-2.0")
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
