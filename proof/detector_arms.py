"""Detectors trained with and without OpticsAugment (OpticsBench, section VII-B), in small.

FCOS with a small backbone is trained by the recipe ``detector_optics`` on 800 composites of 128 px, with no
augmentation, OpticsAugment and AugMix (its operations that leave objects in place), three seeds each. All are
evaluated by the suite ``composites_optics``: 150 other composites of the same cut-outs, clean and behind
four pairs of aberrations of severity 3. The composites show the same 59 cut-outs, so this says nothing about new objects.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proof._lines import Line
from sorites.analysis.comparison.compare import compare
from sorites.evaluation.run import run as evaluate
from sorites.metrics.intervals import t_quantile
from sorites.training.loop import train

SEEDS = (0, 1, 2)
BASE, ARMS = "none", ("optics", "augmix")
SUITE = "composites_optics"


def trained(root: Path) -> Path:
    """Train every arm with every seed, evaluate all in one run, and return its folder."""
    models = {
        f"{arm}_{seed}": f"trained:{train('detector_optics', root / f'{arm}_{seed}', augment=arm, seed=seed)}"
        for seed in SEEDS
        for arm in (BASE, *ARMS)
    }
    evaluate(SUITE, models=models, out=root / "run")
    return root / "run"


def gains(folder: Path, arm: str) -> Iterator[Line]:
    """Yield the gain in mAP of an arm over the one without augmentation, clean and behind the aberrations."""
    tables = [
        compare(folder, folder, base_model=f"{BASE}_{seed}", model=f"{arm}_{seed}").dials for seed in SEEDS
    ]
    for dial, what in (("all", "severity 3"), ("clean", "clean")):
        rows = [table.filter(dial=dial).row(0, named=True) for table in tables]
        values = -100 * np.array([row["drop"] for row in rows])
        images = np.mean([100 * (row["high"] - row["low"]) / 2 for row in rows])
        seeds = t_quantile(len(SEEDS) - 1) * values.std(ddof=1) / math.sqrt(len(SEEDS))
        half = math.hypot(images, seeds)
        note = f"{values.mean() - half:+.1f} to {values.mean() + half:+.1f}; seeds {np.round(values, 1).tolist()}"
        wanted = 0.0 if (arm, dial) == ("optics", "all") else None
        yield Line(f"{arm} over {BASE}, {what}, points of mAP", float(values.mean()), note, least=wanted)


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as room:
        folder = trained(Path(room))
        for arm in ARMS:
            yield from gains(folder, arm)
