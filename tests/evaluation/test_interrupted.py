"""Runs that are killed, or meet a full disk, go on and end as undisturbed ones do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest

from sorites.core import table

ORDER = ["image_id", "model", "output", "scorer", "probe"]


def settled(frame: pl.LazyFrame) -> pl.DataFrame:
    return frame.drop("run_id").sort(ORDER).collect()


@pytest.mark.slow
def test_a_full_disk_is_a_clear_error_and_loses_nothing(photos: Path, tmp_path: Path, program: Path) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); {STARTER}"
    done = _start(limited, photos, tmp_path / "run", program)
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert not list((tmp_path / "run").glob("*/*.tmp"))
    assert _start(STARTER, photos, tmp_path / "run", program).returncode == 0
    whole = _start(STARTER, photos, tmp_path / "whole", program)
    assert whole.returncode == 0
    assert settled(table.read(tmp_path / "run")).equals(settled(table.read(tmp_path / "whole")))


STARTER = "from sorites.cli import main; main()"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a slow little model and a suite in it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "slow_model.py").write_text(
        textwrap.dedent("""
        import time
        import numpy as np
        def logits(images):
            time.sleep(0.002 * len(images))
            means = [np.resize(p[::8, ::8].mean(axis=(0, 1)), 1000) for p in images]
            return np.stack(means).astype(np.float32) / 25 + np.sin(np.arange(1000, dtype=np.float32))
        """)
    )
    (home / "s.toml").write_text(
        'shifts = ["gaussian_noise", "jpeg", "contrast"]\n[frame]\nresize = 48\ncrop = 40\n'
    )
    return home


def _arguments(photos: Path, out: Path) -> list[str]:
    return [
        "run",
        "s.toml",
        "--source",
        f"folder:{photos}",
        "--model",
        "python:slow_model:logits",
        "--out",
        str(out),
        "--refine",
        "0.1",
    ]


def _start(code: str, photos: Path, out: Path, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.argv[0] = 'sorites'; {code}", *_arguments(photos, out)]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_kill_9_then_the_same_command(photos: Path, tmp_path: Path, program: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-c", STARTER, *_arguments(photos, out)]
    process = subprocess.Popen(command, cwd=program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while (
        len(list(out.glob("predictions/*.parquet"))) < 2
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("predictions/*.parquet")}
    assert 2 <= len(kept) < 14
    assert _start(STARTER, photos, out, program).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert _start(STARTER, photos, tmp_path / "whole", program).returncode == 0
    assert settled(table.read(out)).equals(settled(table.read(tmp_path / "whole")))
