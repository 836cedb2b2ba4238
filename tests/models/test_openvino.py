"""OpenVINO's runtime, in a process of its own with a limit of time.

It once hung in a process that had loaded several other runtimes, and a hanging test must not stop all others.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from tests.contracts.examples import OPENVINO_ALONE

ROOT = Path(__file__).parents[2]
SECONDS = 300


@pytest.mark.slow
def test_openvino_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The flow from file to logits, and the contract of models."""
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("needs: pip install 'sorites[openvino]'")
    files = ["tests/models/openvino_alone.py", "tests/contracts/test_models.py"]
    words = ["-q", "-p", "no:cacheprovider", "-k", "openvino", f"--junitxml={tmp_path / 'done.xml'}", *files]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env={**os.environ, OPENVINO_ALONE: "1"},
        timeout=SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (suite,) = ET.parse(tmp_path / "done.xml").iter("testsuite")
    assert int(suite.attrib["tests"]) > 5
    assert suite.attrib["skipped"] == "0", done.stdout
