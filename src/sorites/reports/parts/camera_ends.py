"""The best and the worst setting of a camera in words, and where automatic exposure stands among the settings."""

from __future__ import annotations

from typing import Any

import polars as pl

from sorites.metrics.camera_settings import AUTO, SETTING
from sorites.reports.parts.camera_settings import dials, interval_of
from sorites.reports.parts.markup import EMPTY, Html, percent, several, tag
from sorites.reports.view import View

Row = dict[str, Any]


def setting_sentences(view: View, settings: pl.DataFrame) -> Html:
    """Return one paragraph for each model and light; ``settings`` is the answer of ``setting_accuracy``."""
    said = [
        paragraph
        for model in view.models
        for light in settings["light"].unique().sort(descending=True, nulls_last=True)
        if (paragraph := _said(settings.filter(pl.col("model") == model, pl.col("light").eq_missing(light)), model, light))
    ]
    return tag("ul", *(tag("li", paragraph) for paragraph in said), cls="ends-of-dials") if said else EMPTY


def _said(settings: pl.DataFrame, model: str, light: str | None) -> Html:
    manual = settings.filter(~AUTO).drop_nulls("value").sort("value", *SETTING, descending=[True, *(False for _ in SETTING)])
    if manual.height < 2:
        return EMPTY
    best, worst = manual.row(0, named=True), manual.row(-1, named=True)
    whose = f"{model}, lamp {light}: " if light else f"{model}: "
    if best["value"] == worst["value"]:
        return tag(
            "span", tag("b", whose), f"all {manual.height} settings alike, {_figure(best)}. ", *_automatic(settings, manual)
        )
    ends = [" best at ", tag("b", dials(best)), f", {_figure(best)}; worst at ", tag("b", dials(worst)), f", {_figure(worst)}. "]
    return tag("span", tag("b", whose), *ends, *_automatic(settings, manual))


def _automatic(settings: pl.DataFrame, manual: pl.DataFrame) -> list[object]:
    """Say how many of the settings automatic exposure leaves behind, and whether the best is clearly ahead of it."""
    autos = settings.filter(AUTO).drop_nulls("value").to_dicts()
    if not autos:
        return []
    auto, best = autos[0], manual.row(0, named=True)
    behind, level = (int((part).sum()) for part in (manual["value"] < auto["value"], manual["value"] == auto["value"]))
    place = f"{behind} of the {several(manual.height, 'setting')} are worse" + (f", {level} as good" if level else "")
    return ["Automatic exposure has ", _figure(auto), f": {place}{_apart(auto, best)}."]


def _apart(auto: Row, best: Row) -> str:
    if best["value"] <= auto["value"]:
        return ", none is better"
    return "; the best is clearly better" if best["low"] > auto["high"] else "; its interval and that of the best overlap"


def _figure(row: Row) -> str:
    return f"{percent(row['value'])} ({interval_of(row)})"
