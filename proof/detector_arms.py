"""Detectors trained with and without OpticsAugment (OpticsBench, section VII-B), in small.

FCOS with a small backbone is trained by the recipe ``detector_optics`` on 800 composites of 128 px, with no
augmentation, OpticsAugment and AugMix (its operations that leave objects in place), three seeds each. All are
evaluated by the suite ``composites_optics``: 150 other composites of the same cut-outs, clean and behind
four pairs of aberrations of severity 3. The composites show the same 59 cut-outs, so this says nothing about new objects.
The same comparison with its page: ``sorites train arms detector_optics --arms none,optics,augmix --seeds 3 --out DIR``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proof._lines import Line
from sorites.training.arms import box_comparison_tables, compare, members

SEEDS = 3
ARMS = ("none", "optics", "augmix")


def gains(root: Path, limit: int | None = None, **changes: Any) -> Iterator[Line]:
    """Train every arm with every seed, evaluate all, and yield the gains in mAP over no augmentation.

    Args:
        root: Folder of the trainings and the run.
        limit: Evaluate only this many images.
        **changes: Keys of the recipe, for a shorter trial.
    """
    (table,) = compare("detector_optics", root, arms=ARMS, seeds=SEEDS, limit=limit, **changes).values()
    tables = box_comparison_tables(table, members(ARMS, SEEDS))
    for row in tables["accuracies"].iter_rows(named=True):
        name = f"mAP of {row['arm']}, {row['family']}"
        yield Line(name, 100 * row["value"], f"{100 * row['low']:.1f} to {100 * row['high']:.1f}")
    for row in tables["gains"].sort("arm", descending=True).iter_rows(named=True):
        wanted = 0.0 if (row["arm"], row["family"]) == ("optics", "optics") else None
        note = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}; {row['seeds']} seeds, n = {row['n']}"
        what = "clean" if row["family"] == "clean" else f"severity {row['severity']:g}"
        name = f"{row['arm']} over none, {what}, points of mAP"
        yield Line(name, 100 * row["value"], note, least=wanted)


def run() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as room:
        yield from gains(Path(room))
