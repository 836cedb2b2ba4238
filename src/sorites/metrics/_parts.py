"""Resamples in parts that fit into memory: their weights, and room for sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 23
"""This many numbers of each kind are held at a time, and twice as many weights."""

Singles = NDArray[np.float32]
"""rows x resamples."""


class Bench:
    """The weights of some resamples, and room for sums, used over and over: fresh memory would cost more than the sums."""

    def __init__(self, counts: NDArray[np.uint8]) -> None:
        self._counts = counts
        self._block: tuple[slice, Singles] | None = None
        self._room: dict[str, Singles] = {}

    def __call__(self, name: str, rows: int, columns: int) -> Singles:
        held = self._room.get(name)
        if held is None or held.size < rows * columns:
            held = self._room[name] = np.empty(rows * columns, np.float32)
        return held[: rows * columns].reshape(rows, columns)

    def blocks(self, longest: int) -> list[slice]:
        """Return the resamples in slices for which ``longest`` rows fit into memory."""
        width = max(1, min(CELLS // max(longest, 1), 2 * CELLS // max(len(self._counts), 1)))
        return [slice(start, start + width) for start in range(0, self._counts.shape[1], width)]

    def weights(self, block: slice) -> Singles:
        """Return how often each sample counts in some resamples; the last are kept."""
        if self._block is None or self._block[0] != block:
            self._block = block, self._counts[:, block].astype(np.float32)
        return self._block[1]
