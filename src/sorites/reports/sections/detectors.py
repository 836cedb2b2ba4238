"""The section of detectors at a glance, one card per model: mAP clean and under shift, the drop, and the sizes of things."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites import metrics
from sorites.metrics._coverage import NOTED
from sorites.reports.parts.box_models import box_models
from sorites.reports.parts.charts import pen
from sorites.reports.parts.markup import EMPTY, THIN, Html, between, count, grid, join, percent, points, several, tag
from sorites.reports.section import Section, add_section
from sorites.reports.view import UNTOUCHED, View

Row = dict[str, Any]
SHOWN = {
    "map": "mAP", "map50": "mAP at IoU 0.50", "map75": "mAP at IoU 0.75", "map_small": "small things (below 32² px)",
    "map_medium": "medium things", "map_large": "large things (above 96² px)", "ar100": "recall, 100 boxes",
}  # fmt: skip
"""COCO's numbers on a card, and what they are called there."""
RANKED = (
    "Over all shifted pictures the boxes of all severities are ranked in one list, so that this mAP is not the mean over "
    "settings above."
)


@add_section(order=11)
def detectors(view: View) -> Section | None:
    """One card per model that finds boxes; absent without one."""
    found = box_models(view)
    if not found:
        return None
    lead = (
        "mAP is COCO's mean average precision over IoU 0.50 to 0.95 and over classes that have things. Under shift it is the "
        "mean over shifts of the mean over the severities of each shift. The smaller figures are 95 % intervals over pictures. "
        "Numbers depend on the lowest confidence at which a detector still reports boxes: compare detectors with the same floor."
    )
    return Section("The detectors at a glance", tag("div", *(_card(view, m) for m in found), cls="cards"), "Detectors", lead)


def _card(view: View, model: str) -> Html:
    clean = _of(view.compute(metrics.map, UNTOUCHED, by=("model",)), model)
    under, drop = (_of(view.compute(metric, by=("model",)), model) for metric in (metrics.mean_map, metrics.map_drop))
    named = [("Clean mAP", clean, False), ("Under shift", under, False), ("Drop (points)", drop, True)]
    shown = [_figure(name, row, fall) for name, row, fall in named if row is not None and row["value"] is not None]
    parts = [tag("h3", model), tag("dl", *shown, cls="figures") if shown else EMPTY, _counts(clean)]
    parts += [_narrow(view.compute(metrics.map, UNTOUCHED, by=("model",)), model), _numbers(view, model)]
    return tag("article", *parts, cls="card model", style=f"--pen:{pen(view, model).colour}")


def _of(frame: pl.DataFrame, model: str) -> Row | None:
    return next(iter(frame.filter(pl.col("model") == model).to_dicts()), None)


def _figure(name: str, row: Row, fall: bool) -> Html:
    ends = sorted(0.0 - end if fall else end for end in (row["low"], row["high"]) if end is not None)
    written = [_points(value) if fall else percent(value) for value in (*ends, 0.0 - row["value"] if fall else row["value"])]
    interval = tag("small", between(*written[:2])) if len(ends) == 2 else EMPTY
    return tag("div", tag("dt", name), tag("dd", tag("b", written[-1]), interval, tag("small", f"n = {count(row['n'])}")))


def _points(value: float) -> str:
    return points(value).removesuffix(f"{THIN}points")


def _counts(clean: Row | None) -> Html:
    """Say what the clean number rests on, and what was left out of it."""
    if clean is None:
        return EMPTY
    said = [f"{several(clean['things'], 'thing')} in {several(clean['n'], 'clean picture')}"]
    said += [f"{several(clean[key], 'picture')} {why}" for key, why in _LEFT.items() if clean[key]]
    said += [f"{several(clean['left_out'], 'true box', 'true boxes')} without a size left out"] if clean["left_out"] else []
    return tag("p", "; ".join(said) + ".", cls="warn" if len(said) > 1 else None)


def _narrow(answer: pl.DataFrame, model: str) -> Html:
    """Say that the intervals of few pictures are too narrow, where they are."""
    if not metrics.interval_note("map", answer.filter(pl.col("model") == model)):
        return EMPTY
    return tag("p", f"With fewer than {NOTED['map'].below:g} pictures these intervals are somewhat too narrow.")


_LEFT = {"missing": "that failed, which count as missing", "unknown": "whose things are not known, not counted"}


def _numbers(view: View, model: str) -> Html:
    frames = [view.compute(metrics.map_numbers, where, by=("model",)) for where in (UNTOUCHED, ~UNTOUCHED)]
    clean, shifted = ({row["number"]: row for row in frame.filter(pl.col("model") == model).to_dicts()} for frame in frames)
    lines = [
        [words, *(_cell(rows.get(name)) for rows in (clean, shifted))]
        for name, words in SHOWN.items()
        if name in {**clean, **shifted}
    ]
    table = grid(["", "clean", "all shifted pictures"], lines) if lines else EMPTY
    return join([table, tag("p", RANKED)]) if lines and shifted else table


def _cell(row: Row | None) -> Html:
    if row is None or row["value"] is None:
        return join([percent(None)])
    ends = tag("small", between(percent(row["low"]), percent(row["high"]))) if row["low"] is not None else EMPTY
    return join([percent(row["value"]), ends])
