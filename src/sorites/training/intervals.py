"""Shares with their n and interval, as plain numbers."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites.metrics import wilson_interval


def share_with_interval(value: float, n: int) -> dict[str, Any]:
    """Return a share seen in ``n`` pictures with its 95 % interval (Wilson)."""
    frame = pl.DataFrame({"accuracy": [value], "n": [n]})
    return frame.with_columns(**wilson_interval(pl.col("accuracy"), pl.col("n"))).row(0, named=True)
