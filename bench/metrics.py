"""Five million rows: CPU seconds, peak memory, and the time against a bare scan of the same columns.

``run()`` writes the table once (25 000 samples, five models, eight shifts of five levels, clean)
and asks each question in a process of its own, so that a peak is that question's alone.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from sorites.core import table as tables

SAMPLES, SLICE, TOP = 25_000, 5_000, 5
MODELS = tuple(f"lite{i}" for i in range(5))
SHIFTS = (
    "defocus_disk",
    "gaussian_noise",
    "shot_noise",
    "brightness",
    "contrast",
    "jpeg",
    "coma",
    "astigmatism",
)

_ASK = """
import json, resource, sys, time
import polars as pl
from sorites import metrics
from sorites.core import table
what, run = sys.argv[1:]
rows = table.read(run)
read = ["output", "valid", "probe", "error", "correct", "model", "shift", "severity"]
read += ["run_id", "source", "sample_id", "seed"]
start = time.process_time()
if what.startswith("scan "):
    rows.select(pl.col(read).null_count()).collect(engine="streaming")
else:
    getattr(metrics, what)(rows)
seconds = time.process_time() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""


def run() -> list[tuple[str, float, str]]:
    """(what, figure, unit) for accuracy and failure severities; seconds are this machine's, the ratios travel."""
    figures: list[tuple[str, float, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        count = _write(Path(folder))
        figures.append(("metrics: rows in the table", count / 1e6, "million"))
        for what in ("accuracy", "accuracy_drop", "failure_severity", "half_accuracy_severity"):
            bare, _ = _ask(f"scan {what}", folder)
            seconds, peak = _ask(what, folder)
            figures += [
                (f"metrics: {what}, CPU", seconds, "s"),
                (f"metrics: {what}, peak memory", peak, "GB"),
                (f"metrics: {what} against a bare scan of its columns", seconds / bare, "x"),
            ]
    return figures


def _ask(what: str, folder: str) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", _ASK, what, folder], check=True, capture_output=True, text=True
    )
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def _write(folder: Path) -> int:
    """One shard a model, shift and slice of samples, as a run writes them; a slice at a time in memory."""
    rng = np.random.default_rng(0)
    count = 0
    for start, shift in itertools.product(range(0, SAMPLES, SLICE), ("clean", *SHIFTS)):
        for model in MODELS:
            shard = _shard(start, shift, model, rng)
            tables.write_shard(shard, folder, f"{shift}-{start:06d}-{model}")
            count += shard.height
    return count


def _shard(start: int, shift: str, model: str, rng: np.random.Generator) -> pl.DataFrame:
    levels = [0] if shift == "clean" else list(range(1, TOP + 1))
    sample, level = (
        axis.ravel() for axis in np.meshgrid(np.arange(start, start + SLICE), levels, indexing="ij")
    )
    right = rng.random(len(sample)) < 1 / (1 + np.exp(0.8 * level - 2))
    label = (sample % 1000).astype(np.int32)
    ids = pl.Series(sample)
    made = pl.DataFrame(
        {
            "sample_id": pl.select(pl.format("val/n{}/ILSVRC2012_{}", ids % 1000, ids)).to_series(),
            "image_id": pl.select(
                pl.format("{}-{}-{}", pl.lit(shift), pl.Series(level), ids).hash().cast(pl.String)
            ).to_series(),
            "label": label,
            "accept": pl.Series(label).reshape((-1, 1)).arr.to_list(),
            "severity": level.astype(np.float64),
            "level": level.astype(np.int32),
            "pred": np.where(right, label, (label + 1) % 1000).astype(np.int32),
            "conf": rng.random(len(sample), dtype=np.float32),
            "correct": right,
        }
    )
    same = {
        "run_id": "r",
        "source": "folder",
        "probe": False,
        "known": True,
        "family": "blur",
        "shift": shift,
        "params": "{}",
    }
    filled = made.with_columns(
        **{n: pl.lit(v) for n, v in same.items()}, seed=0, model=pl.lit(model), output=pl.lit("label")
    )
    empty = [pl.lit(None).alias(name) for name in tables.SCHEMA if name not in filled.columns]
    return filled.with_columns(empty).select(
        [pl.col(name).cast(kind) for name, kind in tables.SCHEMA.items()]
    )


if __name__ == "__main__":
    for what, figure, unit in run():
        print(f"{what:60} {figure:8.2f} {unit}")
