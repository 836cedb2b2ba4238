"""A million scores: AUROC, and average precision, against scikit-learn on the same arrays, turn by
turn in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sorites.metrics import separation

HALF, TURNS = 500_000, 7


def run() -> list[tuple[str, float, str]]:
    """(what, ratio, note); each ratio is of the quickest turns, and both sides must give the same number."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(0)
    in_distribution, ood = (rng.normal(shift, 1, HALF).astype(np.float32) for shift in (0.0, 1.0))
    figures = []
    for kind, pools in {
        "distinct": (in_distribution, ood),
        "tied": (in_distribution.round(2), ood.round(2)),
    }.items():
        positive, scores = np.repeat([0, 1], HALF), np.concatenate(pools)
        asked = {
            "AUROC": (separation.auroc, roc_auc_score),
            "AUROC, variance": (_with_variance, roc_auc_score),
            "average precision": (separation.average_precision, average_precision_score),
        }
        for name, (mine, theirs) in asked.items():
            ours, peers = _race(
                lambda m=mine, p=pools: m(separation.pair(*p)), lambda t=theirs, y=positive, s=scores: t(y, s)
            )
            figures.append(
                (
                    f"{name} of a million {kind} scores over scikit-learn",
                    peers / ours,
                    f"x faster; {ours * 1e3:.0f} ms here",
                )
            )
    return figures


def _with_variance(two: separation.Pair) -> float:
    separation.auroc_variance(two)
    return separation.auroc(two)


def _race(mine: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """The quickest seconds of each, taken in turns so that a busy moment meets both."""
    best = [float("inf"), float("inf")]
    for _ in range(TURNS):
        answers = []
        for place, ask in enumerate((mine, theirs)):
            start = time.perf_counter()
            answers.append(float(ask()))
            best[place] = min(best[place], time.perf_counter() - start)
        if abs(answers[0] - answers[1]) > 1e-9:
            raise AssertionError(f"the two disagree: {answers}")
    return best[0], best[1]


if __name__ == "__main__":
    for what, figure, note in run():
        print(f"{what:62} {figure:8.2f} {note}")
