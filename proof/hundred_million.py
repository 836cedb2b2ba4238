"""Accuracy and failure severities of a hundred million rows, written once to the cache: memory, and
time against a bare scan.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from proof._lines import Line
from sorites.core.table import PARQUET, PREDICTIONS, SCHEMA, write_shard
from sorites.io.digests import shards_in
from sorites.io.files import cache

PARTS, SAMPLES, SHIFTS, LEVELS = 100, 9_900, 20, 5
"""Files, samples of each, and its images: one clean and one for each shift and level, a million
rows a file.
"""

_ASK = """
import json, resource, sys, time
import polars as pl
from sorites.core import table
from sorites.core import METRICS
folder, what, words = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
METRICS.names()
start = time.process_time()
if what == "scan":
    counts = [pl.col(name).count() for name in words]
    pl.scan_parquet(f"{folder}/predictions/*.parquet").select(counts).collect(engine="streaming")
else:
    METRICS.get(what)(table.read(folder), words)
print(json.dumps([time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""
COLUMNS = "run_id,seed,model,shift,severity,correct,error,output,probe"


def run() -> Iterator[Line]:
    folder = cache("proof", "hundred_million")
    written = shards_in(folder / PREDICTIONS, PARQUET)
    for part in range(PARTS):
        if (stem := f"part-{part:05d}") not in written:
            write_shard(_rows(part), folder, stem)
    for metric, by, columns in (
        ("accuracy", "model,shift,severity", COLUMNS),
        ("failure_severity", "model,shift", f"{COLUMNS},sample_id"),
    ):
        (seconds, gigabytes), (bare, _) = _asked(folder, metric, by), _asked(folder, "scan", columns)
        yield Line(f"{metric} of 100 M rows, peak memory (GB)", gigabytes, most=2.0)
        yield Line(f"{metric} of 100 M rows / bare scan of its columns, time", seconds / bare, most=8.0)


def _asked(folder: Path, what: str, words: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(folder), what, words], capture_output=True, check=True
    )
    seconds, gigabytes = json.loads(done.stdout)
    return seconds, gigabytes


def _rows(part: int) -> pl.DataFrame:
    sample = np.arange(part * SAMPLES, (part + 1) * SAMPLES)
    names = np.repeat([f"shift{i:02d}" for i in range(SHIFTS)], LEVELS)
    clean = pl.DataFrame({"s": sample, "shift": "clean", "severity": 0.0})
    levels = np.tile(np.arange(1, LEVELS + 1, dtype=float), SAMPLES * SHIFTS)
    grid = pl.DataFrame(
        {"s": np.repeat(sample, SHIFTS * LEVELS), "shift": np.tile(names, SAMPLES), "severity": levels}
    )
    rows = pl.concat([clean, grid])
    fails = np.random.default_rng(part).uniform(0, 7, rows.height)
    known = rows.with_columns(
        correct=pl.Series(rows["severity"].to_numpy() < fails), sample_id=pl.format("s{}", "s"),
        image_id=pl.format("{}-{}-{}", "s", "shift", "severity"), run_id=pl.lit("r"), source=pl.lit("x"), split=pl.lit(""),
        probe=pl.lit(False), known=pl.lit(True), family=pl.lit("f"), params=pl.lit("{}"), seed=pl.lit(0), model=pl.lit("m"),
        output=pl.lit("label"), label=pl.lit(1), pred=pl.lit(1), conf=pl.lit(0.5),
    )  # fmt: skip
    absent = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in SCHEMA.items() if name not in known.columns
    ]
    return known.with_columns(absent).select(SCHEMA.names()).cast(dict(SCHEMA))
