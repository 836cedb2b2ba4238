"""Compare attributes predicted by a head with annotations: interval over things, agreement by chance, calibration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from sorites.metrics._intervals import clustered_wilson_interval

PAPER = {"time": 0.74, "weather": 0.71, "location": 0.75}
"""The share of ImageNet's pictures on which FOCUS's heads agreed with people (section 5)."""

BINS = 10

Told = Sequence[tuple[str, float]]


def agreement(
    kind: str, told: Sequence[Told], true: Sequence[Sequence[str]], things: Sequence[str], common: Sequence[str], words: int
) -> pl.DataFrame:
    """Return one row: the share of pictures whose words are exactly those annotated, and what answering ``common`` would give.

    The interval counts things and not pictures. ``error`` is the expected calibration error over all predicted words.
    """
    right = [{word for word, _ in some} == set(given) for some, given in zip(told, true, strict=True)]
    frame = pl.DataFrame({"thing": list(things), "right": right}).with_columns(pl.col("right").cast(pl.Float64))
    own = frame.group_by("thing").agg(pl.col("right").mean(), rows=pl.len())
    spread = float(np.var(own["right"].to_numpy(), ddof=1)) if own.height > 1 else 0.0
    whole = pl.DataFrame(
        {"agreement": [float(np.mean(right))], "spread": [spread], "things": [own.height],
         "pictures": [len(right)]}
    )  # fmt: skip
    interval = clustered_wilson_interval(pl.col("agreement"), pl.col("spread"), pl.col("things"), pl.col("pictures"))
    chance = float(np.mean([set(given) == set(common) for given in true]))
    facts = {"kind": pl.lit(kind), "chance": pl.lit(chance), "words": pl.lit(words), "paper": pl.lit(PAPER[kind]),
             "error": pl.lit(calibration_error(told, true))}  # fmt: skip
    columns = ("kind", "agreement", "low", "high", "things", "pictures", "chance", "words", "error", "paper")
    return whole.with_columns(**interval, **facts).select(columns)


def calibration_error(told: Sequence[Told], true: Sequence[Sequence[str]]) -> float:
    """Return the mean distance between confidence and rightness over ten bins of confidence, weighted by their size."""
    pairs = [(chance, word in given) for some, given in zip(told, true, strict=True) for word, chance in some]
    chances, right = np.array([chance for chance, _ in pairs]), np.array([float(hit) for _, hit in pairs])
    bins = np.clip((chances * BINS).astype(int), 0, BINS - 1)
    gaps = [np.abs(chances[bins == at].mean() - right[bins == at].mean()) * (bins == at).mean() for at in np.unique(bins)]
    return float(np.sum(gaps))
