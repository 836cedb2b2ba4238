"""The coverage of mAP's interval by simulation: ``python -m tests.metrics.box_coverage [DRAWS [SIZE...]]``.

An image has one to three objects; a detector of middling skill finds them, misplaces them, misses them and
sees some that are not there. There are two classes, or ten of which the rarest has 2 % of the objects. The
truth is the mAP of 40,000 images of the same kind.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from sorites import metrics
from sorites.core.table import SCHEMA

SIZES, DRAWS, LARGE = (20, 100, 1000), 500, 40_000
CLASSES = {
    "two classes": (0.5, 0.5),
    "ten classes": (0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02),
}
"""The share of objects of each class."""


def images(count: int, rng: np.random.Generator, shares: Sequence[float]) -> pl.DataFrame:
    """Rows of one detector over made-up images."""
    columns: dict[str, list[Any]] = {name: [None] * count for name in SCHEMA}
    columns |= {
        "ground_truth": [],
        "boxes": [],
        "sample_id": [f"s{i}" for i in range(count)],
        "image_id": [f"i{i}" for i in range(count)],
    }
    for name, value in {
        "output": "boxes",
        "model": "m",
        "shift": "clean",
        "severity": 0.0,
        "probe": False,
        "run_id": "r",
    }.items():
        columns[name] = [value] * count
    for _ in range(count):
        truth, found = [], []
        skill = rng.normal(0.8, 0.5)  # images are easy or hard as a whole
        for place in range(rng.integers(1, 4)):
            label, x = int(rng.choice(len(shares), p=shares)), 100.0 * place
            truth.append(box(x, 0, label, None) | {"area": None, "crowd": False})
            if rng.random() < 1 / (1 + np.exp(-skill)):
                moved = rng.normal(0, 4, 2)
                found.append(box(x + moved[0], moved[1], label, float(rng.beta(4, 2))))
        found += [
            box(100.0 * i, 200, int(rng.choice(len(shares), p=shares)), float(rng.beta(2, 3)))
            for i in range(rng.poisson(0.7))
        ]
        columns["ground_truth"].append(truth)
        columns["boxes"].append(found)
    return pl.DataFrame(columns, schema=SCHEMA)


def box(x: float, y: float, label: int, conf: float | None) -> dict[str, Any]:
    return {"x0": x, "y0": y, "x1": x + 40, "y1": y + 40, "label": label, "conf": conf}


def covered(size: int, draws: int, truth: float, shares: Sequence[float]) -> float:
    """Return the share of simulated runs whose interval contains the true value."""
    hits = 0
    for seed in range(draws):
        table = images(size, np.random.default_rng([seed, size]), shares)
        row = metrics.map(table, by=("model",), resamples=200).row(0, named=True)
        hits += row["low"] <= truth <= row["high"]
    return hits / draws


def main(draws: int = DRAWS, *sizes: int) -> None:
    for name, shares in CLASSES.items():
        table = images(LARGE, np.random.default_rng(10**6), shares)
        truth = metrics.map(table, by=("model",), resamples=0)["value"].item()
        print(f"{name}: mAP of {LARGE} images: {truth:.4f}")
        for size in sizes or SIZES:
            share = covered(size, draws, truth, shares)
            print(f"{name}, n = {size}: {100 * share:.1f} % of {draws} intervals hold it", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
