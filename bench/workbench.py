"""The workbench: from the pointer to the answer, and filters of a million rows.

A request for the image under the dial is compared with what it cannot avoid, in the same process: the shift, the
PNG and the forward pass. A filter never seen before, with its count, its first page and its JSON, is compared with
a bare scan of the same columns by polars; both take turns, and the 95th percentiles are compared.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

import httpx
import numpy as np
import polars as pl

from bench._timing import in_turns
from sorites.apps.serving import Server
from sorites.apps.workbench.explore import page
from sorites.apps.workbench.library import Library, Opened, indexed
from sorites.apps.workbench.query import parse_query
from sorites.apps.workbench.server import Workbench, workbench_app
from sorites.apps.workbench.turning import png
from sorites.core.rng import rng_for
from sorites.core.samples import to_float, to_uint8
from sorites.evaluation.live import dial

if TYPE_CHECKING:
    from sorites.reports.view import RunView

ROUNDS, WARM, ROWS = 40, 3, 1_000_000


def run() -> list[tuple[str, float, str]]:
    """(what, figure, unit)."""
    return [*_turning(), *_filtering()]


def _turning() -> list[tuple[str, float, str]]:
    workbench = Workbench(Library([], ["lite0"]), Path("selections"))
    server = Server(workbench_app(workbench))
    plan = workbench.library.plan("")
    sample = next(iter(plan.groups["clean"]))
    of, model = dial(plan, sample.id), plan.models["lite0"]
    shift, rng = of.shift("defocus_disk"), rng_for(0, sample.id, "defocus_disk")
    severities = iter(np.linspace(0.5, 10, 2 * ROUNDS + 4))

    with httpx.Client(base_url=f"{server.url}/{workbench.token}/api/", timeout=60) as client:

        def ask() -> None:
            at = json.dumps({"defocus_disk": float(next(severities))})
            client.get("turn", params={"run": "", "image": sample.id, "at": at}).raise_for_status()

        def bare() -> None:
            image = to_uint8(shift(to_float(plan.framed(sample.id)), float(next(severities)), rng))
            png(image)
            model([image], True)

        in_turns(2, time.perf_counter, ask, bare)
        asked, least = in_turns(ROUNDS, time.perf_counter, ask, bare)
    server.stop()
    p95 = float(np.percentile(asked, 95))
    floor = float(np.median(least))
    return [
        ("pointer to answer, p95 over shift, PNG and pass", p95 / floor, f"at most 3; {1000 * p95:.0f} ms")
    ]


def _filtering() -> list[tuple[str, float, str]]:
    rng = np.random.default_rng(0)
    images = pl.DataFrame(
        {
            "sample_id": pl.Series(np.arange(ROWS) % 50_000).cast(pl.String),
            "shift": pl.Series(np.array(["blur", "noise", "jpeg", "fog"])[rng.integers(0, 4, ROWS)]),
            "severity": rng.integers(0, 6, ROWS).astype(float),
            "conf lite0": rng.random(ROWS).astype(np.float32),
            "correct lite0": rng.random(ROWS) < 0.7,
        }
    )
    rows = images.with_row_index("image_id").with_columns(pl.lit(None, pl.String).alias("params"))
    opened = Opened((0, 0), indexed(rows.with_columns(pl.lit("cat").alias("class"))), cast("RunView", None))
    limits = iter(np.linspace(0.4, 0.6, ROUNDS + WARM))
    bare_limits = iter(np.linspace(0.4, 0.6, ROUNDS + WARM))

    def ours() -> None:
        """One new filter as the page asks for it: the number of images, the first hundred, and their JSON."""
        where = [
            ["shift", "is", "blur"],
            ["correct lite0", "is", False],
            ["conf lite0", "at least", next(limits)],
        ]
        json.dumps(page(opened, parse_query(json.dumps({"where": where})), 0, 100))

    def bare() -> None:
        condition = (pl.col("shift") == "blur") & ~pl.col("correct lite0")
        condition &= pl.col("conf lite0") >= next(bare_limits)
        images.lazy().filter(condition).select(pl.len()).collect()

    in_turns(WARM, time.perf_counter, ours, bare)
    asked, scanned = in_turns(ROUNDS, time.perf_counter, ours, bare)
    p95, least = (float(np.percentile(seconds, 95)) for seconds in (asked, scanned))
    ratio = float(np.median(asked) / np.median(scanned))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return [
        (
            "page of a new filter of 1 M rows, p95 over p95 of a bare scan",
            p95 / least,
            f"at most 6; {1000 * p95:.0f} ms; medians {ratio:.1f}",
        ),
        ("largest memory of the process, GB", memory, "at most 1.5"),
    ]
