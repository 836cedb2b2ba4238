"""Selective prediction: the model answers the images with the lowest OOD scores first.

Coverage is the share of images answered; risk is the share of those answers that are wrong. Tied scores
use the mean risk over all orders of the ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.core import add_metric
from sorites.core.errors import SoritesError
from sorites.core.table import Table
from sorites.metrics import intervals as bounds
from sorites.metrics.intervals import Z
from sorites.metrics.ood import key_types
from sorites.metrics.rows import answer_frame
from sorites.metrics.separation import BY_SCORER, HAS_SCORE, by_model_and_scorer, scored_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RankedAnswers:
    """The judged images of a group, lowest OOD score first.

    Attributes:
        key: The values of the group columns.
        wrong: 1 where the image is misclassified, else 0.
        block: The index of the group of tied scores, ascending.
        sample: The sample of each image.
    """

    key: tuple[Any, ...]
    wrong: Floats
    block: NDArray[np.intp]
    sample: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.wrong)

    def over_ties(self, values: Floats) -> Floats:
        """Replace each value by the mean of the values whose scores tie with it."""
        return (np.bincount(self.block, values) / np.bincount(self.block))[self.block]

    @property
    def risk(self) -> Floats:
        """The risk of answering the first k + 1 images, at index k."""
        return np.cumsum(self.over_ties(self.wrong)) / np.arange(1, len(self) + 1)


@add_metric
def aurc(table: Table, by: Sequence[str] = BY_SCORER) -> pl.DataFrame:
    """Area under the risk-coverage curve: the risk averaged over all coverages (Geifman and El-Yaniv,
    NeurIPS 2017); 0 is best.

    ``risk`` is the risk at full coverage, which is also the expected area of a random score. ``best``
    is the area of a score that ranks every error last. The interval uses the influence of each sample;
    it is null where all answers are correct or all are wrong.
    """
    keys, groups = _answers(table, by)
    records = [_area(keys, group) for group in groups]
    numbers = dict.fromkeys(("value", "low", "high", "risk", "best"), pl.Float64())
    frame = pl.DataFrame(records, schema={**key_types(table, keys), **numbers, "n": pl.Int64()})
    return answer_frame(frame, keys, "value", "n", "low", "high", "risk", "best")


@add_metric
def risk_coverage(table: Table, by: Sequence[str] = BY_SCORER, points: int = 50) -> pl.DataFrame:
    """Risk at ``points`` equal steps of ``coverage``; ``n`` counts answered images; Wilson interval over
    samples.
    """
    if points < 1:
        raise SoritesError(f"points must be at least 1, got {points}")
    keys, groups = _answers(table, by)
    records = [line for group in groups for line in _curve(keys, group, points)]
    numbers = dict.fromkeys(("coverage", "value", "low", "high"), pl.Float64())
    frame = pl.DataFrame(records, schema={**key_types(table, keys), **numbers, "n": pl.Int64()})
    return answer_frame(frame, keys, "value", "n", "low", "high", then=["coverage"])


def _answers(table: Table, by: Sequence[str]) -> tuple[list[str], Iterator[RankedAnswers]]:
    rows, keys = scored_rows(table, by)
    usable = rows.filter(HAS_SCORE & pl.col("correct").is_not_null()).select(
        *keys, "score", "correct", "sample"
    )
    ordered = (part.sort("score", "sample") for part in by_model_and_scorer(usable))
    return keys, (
        _rank(key, rows) for part in ordered for key, rows in part.group_by(keys, maintain_order=True)
    )


def _rank(key: tuple[Any, ...], rows: pl.DataFrame) -> RankedAnswers:
    wrong = rows["correct"].not_().cast(pl.Float64).to_numpy()
    _, block = np.unique(rows["score"].to_numpy(), return_inverse=True)
    return RankedAnswers(key, wrong, block, rows["sample"].to_numpy())


def _area(keys: Sequence[str], group: RankedAnswers) -> dict[str, object]:
    value, overall = float(group.risk.mean()), float(group.wrong.mean())
    best = np.cumsum(np.sort(group.wrong)) / np.arange(1, len(group) + 1)
    low, high = _bounds(group, value) if 0 < overall < 1 else (None, None)
    numbers = {
        "value": value,
        "n": len(group),
        "low": low,
        "high": high,
        "risk": overall,
        "best": float(best.mean()),
    }
    return {**dict(zip(keys, group.key, strict=True)), **numbers}


def _bounds(group: RankedAnswers, value: float) -> bounds.Bounds:
    """Return the interval from the influence of each sample, the sum of the influences of its images."""
    names, codes = np.unique(group.sample, return_inverse=True)
    if len(names) < 2:
        return None, None
    total = np.bincount(codes, _influence(group))
    half = Z * float(np.sqrt(len(names) / (len(names) - 1) * np.sum(total**2))) / len(group)
    return max(value - half, 0.0), min(value + half, 1.0)


def _influence(group: RankedAnswers) -> Floats:
    """Return the influence of each image on the area.

    The area is E[wrong * -log F(score)]: an image adds its own term and changes F for all images with
    the same or a higher score.
    """
    n = len(group)
    harmonic_tails = np.cumsum((1 / np.arange(1, n + 1))[::-1])[::-1]
    ranks_at_ties = np.cumsum(np.bincount(group.block))
    weight = np.bincount(group.block, group.wrong) / ranks_at_ties
    shift_of_f = np.cumsum(weight[::-1])[::-1][group.block]
    influence = group.wrong * group.over_ties(harmonic_tails) - shift_of_f
    return np.asarray(influence - influence.mean())


def _curve(keys: Sequence[str], group: RankedAnswers, points: int) -> Iterator[dict[str, object]]:
    risk, samples_per_image = group.risk, len(np.unique(group.sample)) / len(group)
    for step in range(1, points + 1):
        answered = max(round(len(group) * step / points), 1)
        value = float(risk[answered - 1])
        low, high = bounds.share(value, answered * samples_per_image)
        numbers = {"coverage": step / points, "value": value, "n": answered, "low": low, "high": high}
        yield {**dict(zip(keys, group.key, strict=True)), **numbers}
