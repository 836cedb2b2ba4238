from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sorites.core import table
from sorites.evaluation import plan as plans
from sorites.evaluation.engines.interrupts import Stopped, watch_stop
from sorites.evaluation.images import shots
from sorites.evaluation.plan import Unit
from sorites.suites.suite import parse

MODEL = """
import os, pathlib, time
import numpy as np
calls = 0
def logits(images):
    global calls
    calls += len(images)
    if "SLOW" in os.environ and calls > 24:
        pathlib.Path("slow").touch()
        time.sleep(0.5)
    means = np.stack([np.resize(p[::4, ::4].mean(axis=(0, 1)), 1000) for p in images])
    return (means / 25 + np.sin(np.arange(1000))).astype(np.float32)
"""
TYPED = [sys.executable, "-c", "from sorites.cli import main; main()"]
UNIT = 16 * 5 * 0.5
"""Seconds that one unit of a slow run takes."""
SOON = 15
"""Seconds within which a busy machine ends a model that would hang for a thousand."""


@pytest.fixture
def home(tmp_path: Path, photos: Path) -> Path:
    (tmp_path / "slow_model.py").write_text(MODEL)
    (tmp_path / "s.toml").write_text(
        f'source = "folder:{photos}"\nmodels = ["python:slow_model:logits"]\n'
        'shifts = ["jpeg", "contrast"]\n[frame]\nresize = 32\n'
    )
    return tmp_path


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*TYPED, "run", "s.toml", "--batch", "1", *words]
    return subprocess.run(command, cwd=home, capture_output=True, text=True, check=True)


def interrupted(home: Path, command: list[str], begun: Path, times: int) -> tuple[int, float, str]:
    """Start a command, send it Ctrl-C once ``begun`` is there: its exit code, the seconds it still
    took, what it said.
    """
    env = {**os.environ, "SLOW": "1"}
    process = subprocess.Popen(
        [*TYPED, *command], cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 180
    while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    start = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, said = process.communicate(timeout=2 * UNIT)
    return process.returncode, time.monotonic() - start, said


@pytest.mark.slow
def test_an_interrupted_run_ends_at_once_and_goes_on_to_the_same_table(home: Path) -> None:
    command = ["run", "s.toml", "--batch", "1", "--workers", "1", "--out", "r"]
    code, took, said = interrupted(home, command, home / "slow", 1)
    assert code == 130, said
    assert took < UNIT / 2
    lines = [line for line in said.splitlines() if line.startswith("stop")]
    assert lines == [
        "stopping; finished work is kept. Press Ctrl-C again to end immediately",
        "stopped; run the same command to continue",
    ]
    assert "Traceback" not in said
    assert not list((home / "r").rglob("*.tmp"))
    kept = [path.name for path in (home / "r" / "predictions").iterdir()]
    assert kept
    assert all(name.startswith("clean-") for name in kept)
    run(home, "--out", "r")
    run(home, "--out", "whole")
    found, wanted = (table.read(home / out).sort("image_id").collect() for out in ("r", "whole"))
    assert found.equals(wanted)


HANGING = """
import os, pathlib, re, time
import numpy as np
def logits(images):
    if any(pathlib.Path("runs").glob("*/run.json")):  # the model was tried, and the run has begun
        pathlib.Path("hung").touch()
        if os.environ["HANG"] == "lock":
            re.match(r"(a+)+$", "a" * 60 + "b")  # foreign code that never gives the interpreter's lock back
        while True:
            try:
                time.sleep(1000)
            except BaseException:
                pass
    return np.zeros((len(images), 1000), np.float32)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "lock"])
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_the_second_interrupt_ends_a_hanging_model_and_its_workers(home: Path, engine: str, how: str) -> None:
    (home / "hanging.py").write_text(HANGING)
    words = ["run", "s.toml", "--model", "python:hanging:logits", "--workers", "2", "--engine", engine]
    process = subprocess.Popen(
        [*TYPED, *words], cwd=home, env={**os.environ, "HANG": how}, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 180
    while not (home / "hung").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert bool(workers) == (engine == "processes")
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=2 * SOON)
    finally:
        process.kill()
    assert time.monotonic() - start < SOON
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in said
    while any(_lives(worker) for worker in workers) and time.monotonic() - start < SOON:
        time.sleep(0.02)
    assert not [worker for worker in workers if _lives(worker)]


def _lives(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_making_images_is_left_between_two_of_them(photos: Path) -> None:
    plan = plans.make(parse({"name": "s", "source": f"folder:{photos}", "shifts": ["contrast"]}, "test"))
    asked, seen = threading.Event(), list[object]()

    def work() -> None:
        watch_stop(asked)
        try:
            for shot in shots(plan, Unit("contrast", 0, 16)):
                seen.append(shot.error)
                asked.set()
        except Stopped as left:
            seen.append(left)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen[0] is None
    assert isinstance(seen[1], Stopped)
    assert len(seen) == 2
