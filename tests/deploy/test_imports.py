"""The runtime of a guard imports little: its own modules, and no library beyond those it needs."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import numpy, onnxruntime, PIL
before = set(sys.modules)
from sorites.deploy import Guard
print(" ".join(sorted(set(sys.modules) - before)))
"""
OWN = {
    "sorites",
    "sorites.core",
    "sorites.core.errors",
    "sorites.core.messages",
    "sorites.deploy",
    "sorites.deploy.guard",
}
# Modules that once cost most of the import: Pillow's readers, logging, typing of arrays, OpenSSL and JSON.
SLOW = {
    *("PIL.Image", "logging", "difflib", "hashlib", "json", "numpy.typing", "onnxruntime.tools"),
    *("scipy", "polars", "pydantic", "torch", "sorites.io"),
}


def test_importing_the_guard_imports_six_modules_of_ours_and_no_slow_one() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert {name for name in found if name.split(".")[0] == "sorites"} == OWN
    assert not found & SLOW
    assert len(found) <= 16, sorted(found)
