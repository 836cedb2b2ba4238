"""Levels of a distance: the interval that it falls into, 1 for the nearest.

The published intervals of IS-OOD are not known. They may be given, or chosen from the data by ``uniform``; either way the
edges are kept with the distances, because a level means nothing without them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.errors import SoritesError

LEVELS = 8
CUT = (1.0, 99.0)
"""Percentiles between which the intervals are laid, so that one odd picture does not stretch them all."""


def uniform(degrees: NDArray[np.floating], levels: int = LEVELS) -> tuple[float, ...]:
    """Return the ``levels - 1`` inner edges of equal intervals between the 1st and the 99th percentile of the degrees.

    Values outside those percentiles fall into the first or the last level. Degrees that are not finite do not count.
    """
    values = np.asarray(degrees, np.float64)
    values = values[np.isfinite(values)]
    if levels < 2:
        raise SoritesError(f"wanted two or more levels, got {levels}")
    if values.size < levels:
        raise SoritesError(f"wanted {levels} or more degrees to choose {levels} levels from, got {values.size}")
    low, high = np.percentile(values, CUT)
    if not low < high:
        raise SoritesError(f"the degrees are all {low:.6g}: there is nothing to divide into levels")
    return tuple(float(edge) for edge in np.linspace(low, high, levels + 1)[1:-1])


def level_of(degrees: NDArray[np.floating], edges: Sequence[float]) -> pl.Series:
    """Return level 1 below the first edge, up to ``len(edges) + 1``; an edge belongs to the level above it.

    The level of a degree that is not finite is null.
    """
    inner = np.asarray(edges, np.float64)
    if inner.size == 0 or not np.isfinite(inner).all() or (np.diff(inner) <= 0).any():
        raise SoritesError(f"wanted edges that rise, got {list(edges)}")
    values = np.asarray(degrees, np.float64)
    found = pl.Series("level", 1 + np.searchsorted(inner, values, side="right"), dtype=pl.Int32)
    return pl.select(pl.when(pl.Series(np.isfinite(values))).then(found).alias("level")).to_series()
