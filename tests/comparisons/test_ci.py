"""The workflow of docs/ci.md: its steps are run as a script, with a model that is as good and one that is worse."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "ci.md"
MODELS = """
import numpy as np
from tests.conftest import blocks, scene
KNOWN = np.stack([blocks(scene(i, 60 + 3 * i, 80)) for i in range(20)])
PLACES = [0, 1, 2, 3]
def good(pictures):
    near = -np.linalg.norm(np.stack([blocks(p) for p in pictures])[:, None] - KNOWN[None], axis=2)
    found = np.full((len(pictures), 1000), -99, np.float32)
    for column, place in enumerate(PLACES):
        found[:, place] = 10 * near[:, column::4].max(axis=1)
    return found
def bad(pictures):
    return good([np.asarray(p)[..., ::-1] for p in pictures])
"""


def steps() -> list[tuple[str, str]]:
    """The names and commands of the steps that run something."""
    found, name = [], ""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        text = line.strip().removeprefix("- ")
        if text.startswith("name:"):
            name = text.removeprefix("name:").strip()
        if text.startswith("run:"):
            found.append((name, text.removeprefix("run:").strip()))
    return found


@pytest.fixture
def home(tmp_path: Path, photos: Path) -> Path:
    (tmp_path / "like.py").write_text(MODELS)
    (tmp_path / "suite.toml").write_text(f'source = "folder:{photos}"\nshifts = ["jpeg", "contrast"]\n')
    (tmp_path / "gate.toml").write_text('fail_if = ["drop > 2"]\n')
    tool = tmp_path / "bin" / "sorites"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\nfrom sorites.cli import main\nmain()\n")
    tool.chmod(0o755)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("new", "code"), [("good", 0), ("bad", 1)])
def test_the_steps_of_the_workflow_run_as_a_script(home: Path, new: str, code: int) -> None:
    named = dict(steps())
    assert list(named) == ["Install", "Evaluate the base model", "Evaluate the new model", "Compare", "Summary"]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([str(home), root, *filter(None, [os.environ.get("PYTHONPATH")])])
    places = {
        "BASE_MODEL": "python:like:good",
        "NEW_MODEL": f"python:like:{new}",
        "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
    }
    around = {**os.environ, **places, "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}
    codes = {
        name: subprocess.run(["sh", "-euc", command], cwd=home, env=around, capture_output=True, timeout=300).returncode
        for name, command in named.items()
        if name != "Install"
    }
    assert codes == {"Evaluate the base model": 0, "Evaluate the new model": 0, "Compare": code, "Summary": 0}
    failures = ElementTree.parse(home / "gate.xml").findall(".//failure")
    assert bool(failures) == bool(code)
    said = (home / "summary.md").read_text()
    assert ("The gate fails" if code else "The gate holds") in said
    assert (home / "gate.html").stat().st_size > 10_000
