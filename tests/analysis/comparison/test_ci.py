"""Run the workflow of docs/ci.md as a script, with an equally good and a worse model."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from tests.schemas import problems

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "ci.md"
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


def environment(home: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    tools = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **more, "PATH": tools, "PYTHONPATH": path}


def codes_of(scripts: list[tuple[str, dict[str, str]]], home: Path) -> list[int]:
    """Run scripts as a CI service does, and return their exit codes."""
    return [
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=home,
            env=environment(home, **values),
            capture_output=True,
            timeout=300,
        ).returncode
        for script, values in scripts
    ]


@pytest.mark.slow
def test_the_action_runs_as_scripts(home: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    given = {"suite": "suite.toml", "base": "python:like:good", "new": "python:like:bad"}
    defaults = {name: about.get("default") for name, about in action["inputs"].items()}
    assert {name for name, about in action["inputs"].items() if about.get("required")} == given.keys()
    inputs = {f"${{{{ inputs.{name} }}}}": value for name, value in {**defaults, **given}.items()}
    scripts = []
    for step in action["runs"]["steps"][1:]:
        assert "${{" not in step["run"]  # what a user typed is never a part of a script
        values = {name: inputs[text] for name, text in step.get("env", {}).items()}
        scripts.append((step["run"], {**values, "GITHUB_STEP_SUMMARY": str(home / "summary.md")}))
    assert codes_of(scripts, home) == [0, 0, 1, 0]
    assert "The gate fails" in (home / "summary.md").read_text()
    assert problems(home / "gate.json", "compare") == []


def test_the_job_of_gitlab_runs_the_commands_of_the_action() -> None:
    """The test above runs them."""
    job = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text(encoding="utf-8"))["robustness"]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    steps = [step["run"] for step in action["runs"]["steps"][1:4]]
    for model, place in (("BASE_MODEL", 0), ("NEW_MODEL", 1)):
        steps[place] = steps[place].replace("$MODEL", f"${model}")
    assert [shlex.split(line) for line in job["script"]] == [shlex.split(step) for step in steps]
    used = set(re.findall(r"\$(\w+)", " ".join([*job["before_script"], *job["script"]])))
    assert used == job["variables"].keys()
    named = {*job["artifacts"]["paths"], job["artifacts"]["reports"]["junit"]}
    assert named <= set(shlex.split(job["script"][-1]))


@pytest.mark.slow
def test_the_steps_of_the_workflow_run_as_a_script(home: Path) -> None:
    """With an equally good model; the action is run with a worse one."""
    named = dict(steps())
    assert list(named) == [
        "Install",
        "Evaluate the base model",
        "Evaluate the new model",
        "Compare",
        "Verify",
        "Summary",
    ]
    around = environment(
        home,
        BASE_MODEL="python:like:good",
        NEW_MODEL="python:like:good",
        GITHUB_STEP_SUMMARY=str(home / "summary.md"),
    )
    codes = {
        name: subprocess.run(
            ["sh", "-euc", command], cwd=home, env=around, capture_output=True, timeout=300
        ).returncode
        for name, command in named.items()
        if name != "Install"
    }
    evaluated = {"Evaluate the base model": 0, "Evaluate the new model": 0}
    assert codes == {**evaluated, "Compare": 0, "Verify": 0, "Summary": 0}
    failures = ElementTree.parse(home / "gate.xml").findall(".//failure")
    assert not failures
    said = (home / "summary.md").read_text()
    assert "The gate passes" in said
    assert (home / "gate.html").stat().st_size > 10_000
