"""The k-th neighbour of 20 000 queries among 100 000 in 256 dimensions against the bare blocked matmul, and its memory.

Each is measured in a process of its own; time is the process's own (all its threads), which neighbours on a busy machine
do not change much. The peak counts what the search adds to the arrays it is given, for two sizes of the reference.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator

QUERIES, WIDE = 20_000, 256

_ASK = """
import json, resource, sys, time
import numpy as np
from sorites.measures._neighbours import COLUMNS, ROWS, kth_distance
what, size, queries, wide = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
bank = rng.standard_normal((size, wide), dtype=np.float32)
asked = rng.standard_normal((queries, wide), dtype=np.float32)
kth_distance(asked[:64], bank[:5000])
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
if what == "search":
    kth_distance(asked, bank)
else:
    room = np.empty((ROWS, COLUMNS), np.float32)
    for i in range(0, size, COLUMNS):
        for j in range(0, queries, ROWS):
            q, b = asked[j : j + ROWS], bank[i : i + COLUMNS]
            np.matmul(q, b.T, out=room[: len(q), : len(b)])
print(json.dumps([time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10]))
"""


def ask(what: str, size: int) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", _ASK, what, str(size), str(QUERIES), str(WIDE)], capture_output=True, check=True)
    seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def run() -> Iterator[tuple[str, float, str]]:
    pairs = [(ask("search", 100_000), ask("matmul", 100_000)) for _ in range(3)]
    yield "k-th neighbour / bare matmul, time", statistics.median(a[0] / b[0] for a, b in pairs), "aim <= 1.5"
    yield "peak added, 100 000 neighbours (MB)", max(a[1] for a, _ in pairs), "aim <= 1000"
    yield "peak added, 20 000 neighbours (MB)", ask("search", 20_000)[1], "aim: about the same"
