"""What digests cost: their share of a run's processor time, and of a metric on a thousand shards.

The run is the cheapest there is, with one small model and its features kept, so that the share of other runs
is smaller. The metric is asked of the same folder with and without verification, in turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

from bench._timing import in_turns
from bench.whole_run import photographs
from sorites import metrics
from sorites.core import Model, model, table
from sorites.evaluation import plan, runner
from sorites.io import digests
from sorites.suites.suite import Suite

SHARDS, ROWS, ROUNDS = 1000, 80, 15
HASHING = ("digest_of", "digest_of_shard", "digest_of_file")


def run() -> list[tuple[str, float, str]]:
    """(what, figure, unit)."""
    with tempfile.TemporaryDirectory() as root:
        photographs(Path(root))
        share = _share(root, {"lite0": model("lite0")})
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        first, warm, off = _metrics(Path(folder))
    return [
        ("digests: share of a run's processor time", 100 * share, "%, at most 2"),
        ("digests: metrics on 1,000 shards over no verification", warm / off, "x, at most 1.1"),
        ("digests: the same for the first time, when all are hashed", first / off, "x"),
    ]


def _share(root: str, models: dict[str, Model]) -> float:
    """Return the share of hashing in the processor time of a run."""
    spent: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments)
            finally:
                spent.append(time.thread_time() - start)

        return call

    suite = Suite(name="digests", source=f"folder:{root}", models=tuple(models), shifts=())
    suite = suite.override(shifts=["brightness"])
    prepared = runner.prepare(plan.make(suite, models=models))
    patches = [mock.patch.object(digests, name, timed(getattr(digests, name))) for name in HASHING]
    with tempfile.TemporaryDirectory() as out:
        for patch in patches:
            patch.start()
        start = time.process_time()
        runner.execute(prepared, Path(out) / "run", keep_features=True, workers=2)
        total = time.process_time() - start
        for patch in patches:
            patch.stop()
    return sum(spent) / total


def _write(folder: Path) -> None:
    """Write a run folder of a thousand shards."""
    for index in range(SHARDS):
        number = pl.int_range(index * ROWS, (index + 1) * ROWS, eager=True)
        rows = pl.DataFrame(
            {
                "run_id": "r",
                "source": "bench",
                "sample_id": pl.select(pl.format("sample/{}", number // 5)).to_series(),
                "image_id": pl.select(pl.format("image/{}", number).hash().cast(pl.String)).to_series(),
                "model": "m",
                "output": "label",
                "probe": False,
                "shift": "contrast",
                "severity": (number % 5).cast(pl.Float64),
                "correct": number % 3 > 0,
                "conf": (number % 7 / 7).cast(pl.Float32),
            }
        )
        whole = pl.concat([pl.DataFrame(schema=table.SCHEMA), rows], how="diagonal_relaxed")
        table.write_shard(
            whole.select(table.SCHEMA.names()).cast(dict(table.SCHEMA)), folder, f"s-{index:04d}"
        )
    digests.write_sealed({"run_id": "r"}, folder / "run.json")


def _metrics(folder: Path) -> tuple[float, float, float]:
    """Return processor seconds of accuracy: all shards hashed, all remembered, and without verification."""

    def ask() -> None:
        metrics.accuracy(table.read(folder))

    def unverified() -> None:
        with mock.patch.object(digests.Verifier, "require", return_value=None):
            ask()

    def forgotten() -> None:
        with mock.patch.object(digests, "_read_memory", return_value={}):
            ask()

    ask()
    seconds = in_turns(ROUNDS, time.process_time, forgotten, ask, unverified)
    first, warm, off = (min(taken) for taken in seconds)
    return first, warm, off
