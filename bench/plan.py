"""The plan of ten million samples against the bare hashing and sorting of their names: its time,
and its memory as it grows.

The source is a parquet file with a row for each sample, listed as ``sorites plan`` lists it. Each
figure is that of a process of its own: its processor time, and the peak of its memory. The names
that are hashed and sorted bare are made before the clock.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

FEW, MANY = 1_000_000, 10_000_000

_PLAN = """
import json, resource, sys, time
from sorites.evaluation.estimate import costs
from sorites.suites.suite import parse
suite = parse({"name": "plan", "source": f"parquet:{sys.argv[1]}", "shifts": ["coma", "contrast"]}, "here")
start = time.process_time()
found = costs(suite)
assert found.samples == int(sys.argv[2])
print(json.dumps([time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""
_BARE = """
import hashlib, json, sys, time
def key(name):
    return hashlib.blake2b(name.encode(), digest_size=16).digest()
names = [f"{sys.argv[1]}/{row:07d}" for row in range(int(sys.argv[2]))]
start = time.process_time()
names.sort(key=key)
print(json.dumps([time.process_time() - start, 0]))
"""


def run() -> Iterator[tuple[str, float, str]]:
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_written(Path(folder), size) for size in (FEW, MANY))
        pairs = [(_asked(_PLAN, many, MANY), _asked(_BARE, many, MANY)) for _ in range(3)]
        less = _asked(_PLAN, few, FEW)
    ratios = [ours[0] / bare[0] for ours, bare in pairs]
    most = max(ours[1] for ours, _ in pairs)
    told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    yield "plan of 10 M samples / bare hashing and sorting", statistics.median(ratios), f"aim <= 3; {told}"
    yield "plan of 10 M samples, peak memory (GB)", most, "aim <= 2"
    yield "plan of 10 M / of 1 M samples, time", pairs[-1][0][0] / less[0], "linear is 10"
    yield (
        "bytes for each sample, from 1 M to 10 M",
        (most - less[1]) * 2**30 / (MANY - FEW),
        "a Sample is 550",
    )


def _written(folder: Path, size: int) -> Path:
    """Write rows with a label and no bytes of an image: a plan looks at none."""
    path = folder / f"train-{size}.parquet"
    label = pl.int_range(size, dtype=pl.Int32, eager=True) % 1000
    pl.DataFrame(
        {"image": pl.Series([None], dtype=pl.Binary).extend_constant(None, size - 1), "label": label}
    ).write_parquet(path)
    return path


def _asked(code: str, path: Path, size: int) -> tuple[float, float]:
    words = [str(path) if code is _PLAN else path.name, str(size)]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, check=True, text=True)
    seconds, gigabytes = json.loads(done.stdout)
    return seconds, gigabytes
