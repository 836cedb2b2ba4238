"""Two workers against one, Ray against threads, and the neighbours' growth: what scale costs, as
ratios on this machine.

Runs are of a model that computes on one thread, in matrices that stay in a core's own cache. A run
on Ray counts from the moment the cluster is up and its workers have loaded: its seconds are the
difference of a long and a short run, and so are those of threads. The three are run in turns, and
the least time of each counts: what else the machine does only adds to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image as Pillow

MODEL = """
import numpy as np
from sorites.core import Model, Outputs
wide = np.random.default_rng(0).standard_normal((384, 384)).astype(np.float32) / 20

def logits(images):
    held, room = np.empty((2, 384, 384), np.float32)
    rows = []
    for image in images:
        held[:] = image.mean()
        for _ in range(6):
            np.tanh(np.matmul(wide, held, out=room), out=held)
        rows.append(held.ravel()[:1000].copy())
    return Outputs(np.stack(rows))

def made():
    return Model("slow", logits, version="1")
"""
SUITE = (
    'source = "folder:images"\nmodels = ["python:slow:made"]\nshifts = ["contrast"]\n[frame]\nresize = 32\n'
)
SHORT, LONG = 32, 192
TURNS = 3


def run() -> Iterator[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _prepare(home)
        kinds = (("local", 1), ("local", 2), ("ray", 2))
        turns = [[_seconds(home, turn, *words) for words in kinds] for turn in range(TURNS)]
    one, two, ray = (min(times) for times in zip(*turns, strict=True))
    yield "two workers / one, work in the same time", one / two, "aim >= 1.7 on two idle cores"
    yield "run on ray / on threads, two workers, warm, time", ray / two, "aim <= 1.15"
    yield from _neighbours()


def _prepare(home: Path) -> None:
    (home / "slow.py").write_text(MODEL)
    (home / "s.toml").write_text(SUITE)
    rng = np.random.default_rng(0)
    (home / "images" / "n02123045").mkdir(parents=True)
    for i in range(LONG):
        Pillow.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(
            home / "images" / "n02123045" / f"{i:04d}.png"
        )


def _seconds(home: Path, turn: int, engine: str, workers: int) -> float:
    """Return the seconds of the samples that a long run has more than a short one."""
    short, long = (_timed(home, turn, engine, workers, limit) for limit in (SHORT, LONG))
    return long - short


def _timed(home: Path, turn: int, engine: str, workers: int, limit: int) -> float:
    words = ["run", "s.toml", "--engine", engine, "--workers", str(workers), "--limit", str(limit)]
    out = ["--out", f"{engine}{workers}-{limit}-{turn}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    start = time.perf_counter()
    command = [sys.executable, "-c", "from sorites.cli import main; main()", *words, *out]
    subprocess.run(command, cwd=home, env=env, check=True, capture_output=True)
    return time.perf_counter() - start


def _neighbours() -> Iterator[tuple[str, float, str]]:
    from bench.neighbours import ask

    seconds = {size: ask("search", size)[0] for size in (25_000, 50_000, 100_000)}
    yield "k-th neighbour, 50 000 / 25 000 rows, time", seconds[50_000] / seconds[25_000], "linear is 2"
    yield "k-th neighbour, 100 000 / 50 000 rows, time", seconds[100_000] / seconds[50_000], "linear is 2"
