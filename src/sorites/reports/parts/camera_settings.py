"""A camera's settings, apart by grid and as a camera writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from sorites.metrics.camera_settings import DIALS
from sorites.reports.parts.markup import count, number


def grids(settings: pl.DataFrame) -> list[pl.DataFrame]:
    """ISOs that were taken at the same shutter times belong to one grid: two grids on one page are drawn apart."""
    times = settings.group_by("iso").agg(key=pl.col("shutter").unique().sort().cast(pl.String))
    times = times.with_columns(pl.col("key").list.join(" "))
    told = settings.join(times, on="iso").sort("iso", "shutter")
    return [part.drop("key") for part in told.partition_by("key", maintain_order=True)]


def shutter_text(seconds: float) -> str:
    """As cameras write it: 1/60, or 0.4 s."""
    turns = round(1 / seconds)
    return f"1/{turns}" if seconds <= 0.25 and abs(turns * seconds - 1) < 0.02 else f"{number(seconds)} s"


def dials(row: Mapping[str, Any]) -> str:
    """Write the three dials of a row: ISO, shutter and aperture."""
    return f"ISO {count(int(row['iso']))}, {shutter_text(row['shutter'])}, f/{number(row['aperture'])}"


def requested(params: str) -> Mapping[str, Any]:
    """Return the camera setting that was requested, without the values that automatic exposure chose."""
    chosen = json.loads(params)
    return {key: value for key, value in chosen.items() if chosen.get("mode") != "auto" or key not in DIALS}
