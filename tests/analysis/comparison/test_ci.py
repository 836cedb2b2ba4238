"""Run the workflow of docs/ci.md as a script, with an equally good and a worse model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "ci.md"
MODELS = """
import numpy as np
from pathlib import Path
from PIL import Image
def seen(image):
    rows = np.array_split(np.asarray(image, np.float32) / 255, 6, axis=0)
    return np.concatenate([cell.mean(axis=(0, 1)) for row in rows for cell in np.array_split(row, 6, axis=1)])
FILES = sorted(Path({photos!r}).rglob("*.png"))
CLASSES = sorted({{path.parent.name for path in FILES}})
KNOWN = np.stack([seen(Image.open(path)) for path in FILES])
OF = np.array([CLASSES.index(path.parent.name) for path in FILES])
def good(images):
    near = -np.linalg.norm(np.stack([seen(p) for p in images])[:, None] - KNOWN[None], axis=2)
    found = np.full((len(images), 1000), -99, np.float32)
    for place in range(4):
        found[:, place] = 10 * near[:, OF == place].max(axis=1)
    return found
def bad(images):
    return good([np.asarray(p)[..., ::-1] for p in images])
"""


def steps() -> list[tuple[str, str]]:
    """Return the names and commands of the steps that run something."""
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
    (tmp_path / "like.py").write_text(MODELS.format(photos=str(photos)))
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
    assert list(named) == [
        "Install",
        "Evaluate the base model",
        "Evaluate the new model",
        "Compare",
        "Verify",
        "Summary",
    ]
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    places = {
        "BASE_MODEL": "python:like:good",
        "NEW_MODEL": f"python:like:{new}",
        "GITHUB_STEP_SUMMARY": str(home / "summary.md"),
    }
    around = {
        **os.environ,
        **places,
        "PATH": f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": path,
    }
    codes = {
        name: subprocess.run(
            ["sh", "-euc", command], cwd=home, env=around, capture_output=True, timeout=300
        ).returncode
        for name, command in named.items()
        if name != "Install"
    }
    evaluated = {"Evaluate the base model": 0, "Evaluate the new model": 0}
    assert codes == {**evaluated, "Compare": code, "Verify": 0, "Summary": 0}
    failures = ElementTree.parse(home / "gate.xml").findall(".//failure")
    assert bool(failures) == bool(code)
    said = (home / "summary.md").read_text()
    assert ("The gate fails" if code else "The gate passes") in said
    assert (home / "gate.html").stat().st_size > 10_000
