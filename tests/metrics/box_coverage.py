"""The coverage of mAP's interval by simulation: ``python -m tests.metrics.box_coverage``.

An image has one to three objects of two classes; a detector of middling skill finds them, misplaces
them, misses them and sees some that are not there. The truth is the mAP of 20,000 images of the
same kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from sorites import metrics
from sorites.core.table import SCHEMA

SIZES, DRAWS, LARGE = (20, 100, 500), 200, 20_000


def images(count: int, rng: np.random.Generator) -> pl.DataFrame:
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
            label, x = int(rng.integers(2)), 100.0 * place
            truth.append(box(x, 0, label, None) | {"area": None, "crowd": False})
            if rng.random() < 1 / (1 + np.exp(-skill)):
                moved = rng.normal(0, 4, 2)
                found.append(box(x + moved[0], moved[1], label, float(rng.beta(4, 2))))
        found += [
            box(100.0 * i, 200, int(rng.integers(2)), float(rng.beta(2, 3))) for i in range(rng.poisson(0.7))
        ]
        columns["ground_truth"].append(truth)
        columns["boxes"].append(found)
    return pl.DataFrame(columns, schema=SCHEMA)


def box(x: float, y: float, label: int, conf: float | None) -> dict[str, Any]:
    return {"x0": x, "y0": y, "x1": x + 40, "y1": y + 40, "label": label, "conf": conf}


def covered(size: int, draws: int, truth: float) -> float:
    """Return the share of simulated runs whose interval contains the true value."""
    hits = 0
    for seed in range(draws):
        row = metrics.map(images(size, np.random.default_rng(seed)), by=("model",), resamples=300).row(
            0, named=True
        )
        hits += row["low"] <= truth <= row["high"]
    return hits / draws


def main() -> None:
    truth = metrics.map(images(LARGE, np.random.default_rng(10**6)), by=("model",), resamples=0)[
        "value"
    ].item()
    print(f"mAP of {LARGE} images: {truth:.4f}")
    for size in SIZES:
        print(
            f"n = {size}: {100 * covered(size, DRAWS, truth):.1f} % of {DRAWS} intervals hold it", flush=True
        )


if __name__ == "__main__":
    main()
