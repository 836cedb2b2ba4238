"""Say in two sentences what detectors do under shift."""

from __future__ import annotations

import polars as pl

from sorites import metrics
from sorites.metrics._scenes import without_truth
from sorites.reports.parts.markup import between, percent
from sorites.reports.parts.whole_points import all_alike, unit, whole
from sorites.reports.view import UNTOUCHED, View


def boxes_in_short(view: View) -> list[str]:
    """Return sentences on mAP clean and under shift, and on the shifts that cost most and least; none without detectors."""
    clean = view.compute(metrics.map, UNTOUCHED, by=("model",)).drop_nulls("value")
    if clean.is_empty():
        return ["No picture was judged, because the source has no true boxes."] if without_truth(view.table) else []
    shifted = view.compute(metrics.mean_map, by=("model",)).drop_nulls("value")
    parts = [f"{_span(clean)} on the clean pictures", *([f"{_span(shifted)} on shifted ones"] if shifted.height else [])]
    whose = "The detector has" if clean.height == 1 else f"The {clean.height} detectors have"
    return [f"{whose} a mAP of {' and '.join(parts)}.", *_hardest(view)]


def _span(frame: pl.DataFrame) -> str:
    """Return one value with its interval, or the range of several."""
    if frame.height == 1:
        row = frame.row(0, named=True)
        ends = f" ({between(percent(row['low'], 0), percent(row['high'], 0))})" if row["low"] is not None else ""
        return percent(row["value"], 0) + ends
    return between(percent(frame["value"].min(), 0), percent(frame["value"].max(), 0))  # type: ignore[arg-type]


def _hardest(view: View) -> list[str]:
    drops = view.compute(metrics.map_drop, by=("model", "shift")).drop_nulls("value")
    means = drops.group_by("shift").agg(pl.col("value").mean()).sort("value", "shift")
    if means.height < 2:
        return []
    (least, low), (most, high) = means.row(0), means.row(-1)
    every = "" if drops["model"].n_unique() == 1 else ", on average over detectors"
    if alike := all_alike("mAP", means.height, low, high):
        return [f"{alike[:-1]}{every}."]
    dear, cheap = (f"{cost} {unit(cost)}" for cost in (whole(high), whole(low)))
    return [f"{most} costs the most mAP ({dear}), {least} the least ({cheap}){every}."]
