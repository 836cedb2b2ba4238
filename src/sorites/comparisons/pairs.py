"""Both models' verdicts side by side: picture by picture, and per sample and dial as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.comparisons.sides import JUDGED
from sorites.core import CLEAN
from sorites.errors import SoritesError

Array = NDArray[np.float64]
ALL = "all"
"""The place that stands for all dials together, each counting the same."""
SAMPLE = ("source", "sample_id")
_SEEN = ("correct", "pred", "conf")


def paired(table: pl.LazyFrame, base: str, new: str) -> pl.DataFrame:
    """Return one row per picture that both models were judged on; columns of the new model end in ``_new``."""
    rows = table.filter(JUDGED).select(
        "run_id", *SAMPLE, "image_id", "family", "shift", "severity", "params", "label", "model", *_SEEN
    )
    held = rows.collect(engine="streaming")
    mine, theirs = (held.filter(pl.col("model") == name).drop("model") for name in (base, new))
    both = mine.join(theirs.select("run_id", "image_id", *_SEEN), on=["run_id", "image_id"], suffix="_new")
    if not len(both):
        raise SoritesError("no picture was judged for both models: are all of them errors, or of classes that a model lacks?")
    return both


@dataclass(frozen=True)
class Matrix:
    """Accuracies of both models by sample (rows) and dial (columns); NaN where a sample lacks a dial."""

    dials: tuple[str, ...]
    base: Array
    new: Array

    def columns(self, dials: Sequence[str]) -> tuple[Array, Array]:
        """Return the accuracies on some dials; ``all`` is the mean over the dials that a sample has, clean pictures left out."""
        return tuple(np.stack([self._column(side, dial) for dial in dials], axis=1) for side in (self.base, self.new))  # type: ignore[return-value]

    def _column(self, side: Array, dial: str) -> Array:
        if dial != ALL:
            found: Array = side[:, self.dials.index(dial)]
            return found
        moved = side[:, [place for place, name in enumerate(self.dials) if name != CLEAN]]
        held = np.isfinite(moved)
        counts = held.sum(axis=1)
        mean = np.where(held, moved, 0.0).sum(axis=1) / np.maximum(counts, 1)
        return np.where(counts > 0, mean, np.nan)


def matrix(pairs: pl.DataFrame) -> Matrix:
    """Average the verdicts of each sample over the settings of each dial. The order of samples does not depend on the files."""
    means = pairs.group_by(*SAMPLE, "shift").agg(base=pl.col("correct").mean(), new=pl.col("correct_new").mean())
    dials = tuple(sorted(means["shift"].unique(), key=lambda name: (name != CLEAN, name)))
    samples = means.select(SAMPLE).unique().sort(SAMPLE).with_row_index("row")
    placed = means.join(samples, on=SAMPLE, nulls_equal=True)
    rows, columns = placed["row"].to_numpy(), np.array([dials.index(name) for name in placed["shift"]])
    sides = []
    for name in ("base", "new"):
        side = np.full((len(samples), len(dials)), np.nan)
        side[rows, columns] = placed[name].to_numpy()
        sides.append(side)
    return Matrix(dials, sides[0], sides[1])


@dataclass(frozen=True)
class Curves:
    """Verdicts of both models along one dial: samples x severities, from the clean pictures on; NaN where one is missing."""

    severities: Array
    base: Array
    new: Array


def curves(table: pl.LazyFrame, base: str, new: str) -> Mapping[str, Curves]:
    """Return the curves of each dial that has an order, on the samples that both models were judged on when clean."""
    from sorites.metrics import with_clean

    moved = with_clean(table).filter(JUDGED & (pl.col("shift") != CLEAN) & pl.col("severity").is_not_null())
    cells = moved.group_by("model", "shift", *SAMPLE, "severity").agg(right=pl.col("correct").cast(pl.Float64).mean())
    held = cells.collect(engine="streaming")
    found = {}
    for (shift,), rows in sorted(held.group_by("shift"), key=lambda item: str(item[0][0])):
        sides = {str(model): part for (model,), part in rows.group_by("model")}
        if base in sides and new in sides and 0.0 in rows["severity"]:
            found[str(shift)] = _curves(sides[base], sides[new], np.sort(rows["severity"].unique().to_numpy()))
    return found


def _curves(base: pl.DataFrame, new: pl.DataFrame, severities: Array) -> Curves:
    starts = [side.filter(pl.col("severity") == 0).select(SAMPLE) for side in (base, new)]
    samples = starts[0].join(starts[1], on=SAMPLE, nulls_equal=True).unique().sort(SAMPLE).with_row_index("row")
    grids = []
    for side in (base, new):
        placed = side.join(samples, on=SAMPLE, nulls_equal=True)
        grid = np.full((len(samples), len(severities)), np.nan)
        grid[placed["row"].to_numpy(), np.searchsorted(severities, placed["severity"].to_numpy())] = placed["right"].to_numpy()
        grids.append(grid)
    return Curves(severities, grids[0], grids[1])
