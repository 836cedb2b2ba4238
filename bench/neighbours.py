"""The k-th neighbour of 20 000 queries among 100 000 in 256 dimensions against the bare blocked
matmul, and its memory.

The search is also measured as users of ``sorites distance --engine local`` have it: features in
files, both halves, in units.

Each is measured in a process of its own; time is the process's own (all its threads), which
neighbours on a busy machine do not change much. The peak counts what the search adds to the arrays
it is given, for two sizes of the reference.
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
from sorites.measures.neighbours import NEIGHBOURS_PER_BLOCK as COLUMNS, QUERIES_PER_BLOCK as ROWS, exact_kth_distance as kth_distance
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

_JOB = """
import json, resource, sys, tempfile, time
from pathlib import Path
import numpy as np
from safetensors.numpy import save
from sorites.evaluation.engines import ENGINES
from sorites.measures.decomposition import Decomposition
from sorites.evaluation.facts import encoding, neighbours
size, queries, wide = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
split = Decomposition(np.linalg.qr(rng.standard_normal((2 * wide, 2 * wide)))[0])
with tempfile.TemporaryDirectory() as folder:
    def written(name, count):
        files = []
        for start in range(0, count, encoding.IMAGES_PER_FILE):
            rows = rng.standard_normal((min(encoding.IMAGES_PER_FILE, count - start), 2 * wide), dtype=np.float32)
            about = {"sample_id": [str(i) for i in range(len(rows))], "left_out": [0, ""], "content": f"{name} {start}"}
            files.append(Path(folder, name, f"{start:09d}.safetensors"))
            files[-1].parent.mkdir(exist_ok=True)
            files[-1].write_bytes(save({"features": rows}, metadata={k: json.dumps(v) for k, v in about.items()}))
        return files
    in_distribution, asked = written("in-distribution", size), written("asked", queries)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    bank = neighbours.make_bank(Path(folder), in_distribution, split, 10, "exact")
    made = time.process_time()
    neighbours.search_all(bank, Path(folder), [[file] for file in asked], "sample_id", ENGINES.get("local"), 2, lambda n: None)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    print(json.dumps([made - start, time.process_time() - made, peak]))
"""


def job(size: int) -> list[float]:
    """Seconds of making the bank, seconds of the search of both halves, and the peak in MB."""
    done = subprocess.run(
        [sys.executable, "-c", _JOB, str(size), str(QUERIES), str(WIDE)], capture_output=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def ask(what: str, size: int) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _ASK, what, str(size), str(QUERIES), str(WIDE)],
        capture_output=True,
        check=True,
    )
    seconds, megabytes = json.loads(done.stdout)
    return seconds, megabytes


def run() -> Iterator[tuple[str, float, str]]:
    pairs = [(ask("search", 100_000), ask("matmul", 100_000)) for _ in range(3)]
    yield "k-th neighbour / bare matmul, time", statistics.median(a[0] / b[0] for a, b in pairs), "aim <= 1.5"
    yield "peak added, 100 000 neighbours (MB)", max(a[1] for a, _ in pairs), "aim <= 1000"
    yield "peak added, 20 000 neighbours (MB)", ask("search", 20_000)[1], "aim: about the same"
    bare = statistics.median(b[0] for _, b in pairs)
    made, searched, peak = job(100_000)
    yield (
        "units of an engine, both halves / two bare matmuls",
        searched / (2 * bare),
        f"aim <= 1.5; the bank took {made:.1f} s",
    )
    yield "peak added by units on two threads (MB)", peak, "aim <= 1000"
    fewer = [job(size) for size in (25_000, 50_000)]
    growth = [fewer[1][1] / fewer[0][1], searched / fewer[1][1]]
    yield (
        "time of 100 000 / 25 000 neighbours in units",
        growth[0] * growth[1],
        f"aim: 4, linear; doublings {growth[0]:.2f}, {growth[1]:.2f}",
    )
    yield "peak added by units, 25 000 neighbours (MB)", fewer[0][2], "aim: about the same"
