from __future__ import annotations

import subprocess
import sys

import sorites


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sorites", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == sorites.__version__
