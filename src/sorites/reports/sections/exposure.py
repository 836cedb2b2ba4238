"""The section on camera settings: heat maps of ISO and shutter, the best and worst, and the gain of choosing the setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.metrics.camera_settings import POLICIES
from sorites.reports.parts.camera_ends import setting_sentences
from sorites.reports.parts.camera_settings import dials, interval_of, setting_maps
from sorites.reports.parts.markup import DASH, EMPTY, Html, count, grid, join, percent, points, tag
from sorites.reports.parts.picker import picked
from sorites.reports.parts.scorers import estimate
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

Row = Mapping[str, Any]
LIGHTS = ("on", "off", "both", "difference")
POLICY_NAMES = {
    "auto": "automatic",
    "average": "random setting",
    "fixed": "best single setting",
    "oracle": "best for each picture",
}


@add_section(order=34)
def exposure(view: View) -> Section | None:
    """Heat maps per model, aperture and light; then the tables. Absent without a camera grid."""
    settings = view.compute(metrics.setting_accuracy).filter(pl.col("n") > 0)
    maps = {
        model: drawn for model in view.models if (drawn := setting_maps(settings.filter(pl.col("model") == model), interval_of))
    }
    if not maps:
        return None
    lead = (
        "Accuracy in % at each ISO and shutter time, one map per aperture and light; stronger blue is better, and hovering shows "
        "the interval and n. Automatic exposure is shown beside the maps."
    )
    tables = [tag("article", part, cls="card") for part in (_ends(view), _control(view)) if part]
    below = tag("div", tag("div", *tables, cls="stack"), cls="below") if tables else EMPTY
    body = join([setting_sentences(view, settings), picked("exposure", "Model", maps), below])
    return Section("Which camera settings suit the model?", body, "Exposure", lead)


def _ends(view: View) -> Html:
    rows = {(r["model"], r["light"], r["what"]): r for r in view.compute(metrics.setting_table).to_dicts()}
    lines = []
    for model in view.models:
        for light in LIGHTS:
            ends = [rows.get((model, light, what)) for what in ("best", "worst", "average", "auto")]
            if any(ends):
                lines.append([model, light, *(_end(row, light) for row in ends)])
    caption = (
        "Accuracy at the best, worst and average setting and with automatic exposure. "
        "The difference is |on − off|; its best is the least."
    )
    return grid(["", "lamp", "best", "worst", "average", "automatic"], lines, text=2, caption=caption) if lines else EMPTY


def _end(row: Row | None, light: str) -> Html:
    if row is None or row["value"] is None:
        return tag("span", DASH)
    if light == "difference":
        text, more = points(row["value"]).removeprefix("+"), []
    else:
        text, more = percent(row["value"]), [interval_of(row)]
    lines = [*([dials(row)] if row["iso"] is not None else []), *more]
    return join([text, *(tag("small", line) for line in lines)])


def _control(view: View) -> Html:
    rows = {(r["model"], r["policy"]): r for r in view.compute(metrics.camera_control).to_dicts()}
    lines = [
        [model, POLICY_NAMES[policy], estimate(row), _gain(row), count(row["n"])]
        for model, policy in _pairs(view.models)
        if (row := rows.get((model, policy)))
    ]
    caption = "Accuracy when the setting is chosen for the model, and the gain over automatic exposure on the same pictures"
    return grid(["", "setting chosen", "accuracy", "gain", "n"], lines, text=2, caption=caption) if lines else EMPTY


def _pairs(models: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((model, policy) for model in models for policy in POLICIES)


def _gain(row: Row) -> Html:
    if row["gain"] is None:
        return tag("span", DASH)
    return join([points(row["gain"]), tag("small", f"{points(row['gain_low'])} to {points(row['gain_high'])}")])
