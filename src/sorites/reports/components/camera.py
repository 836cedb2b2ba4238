"""A camera's settings: as a camera writes them, apart by grid, and in maps of ISO and shutter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from sorites.metrics.camera import AUTO, DIALS, SETTING
from sorites.reports.components.markup import DASH, EMPTY, Html, between, count, number, percent, several, tag
from sorites.reports.view import View

Row = Mapping[str, Any]


def grids(settings: pl.DataFrame) -> list[pl.DataFrame]:
    """ISOs that were taken at the same shutter times belong to one grid: two grids on one page are
    drawn apart.
    """
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


def setting_maps(settings: pl.DataFrame, interval: Callable[[Row], str]) -> Html:
    """Return one card per aperture and light with a map of ISO and shutter, and one per light for
    automatic exposure.

    ``settings`` is the answer of a metric by camera setting, in shares; ``interval`` words the
    interval and n of a row.
    """
    lights = settings["light"].unique(maintain_order=True).sort(descending=True).to_list()
    found = ((settings.filter(pl.col("light").eq_missing(pl.lit(light))), light) for light in lights)
    cards = [card for rows, light in found for card in _light(rows, light, interval)]
    return tag("div", *cards, cls="cards two") if cards else EMPTY


def interval_of(row: Row) -> str:
    """Return the interval of a row and its n in words."""
    return f"95 %: {between(percent(row['low']), percent(row['high']))}, n = {count(row['n'])}"


def _light(settings: pl.DataFrame, light: str | None, interval: Callable[[Row], str]) -> Iterator[Html]:
    lamp = f"lamp {light}" if light else "one light"
    manual = settings.filter(~AUTO)
    for aperture in manual["aperture"].unique().sort():
        maps = [_map(part, interval) for part in grids(manual.filter(pl.col("aperture") == aperture))]
        yield tag("article", tag("h3", f"f/{number(aperture)} · {lamp}"), *maps, cls="card")
    for auto in settings.filter(AUTO).to_dicts():
        text = tag("p", tag("b", percent(auto["value"])), " ", tag("small", interval(auto)))
        yield tag("article", tag("h3", f"automatic · {lamp}"), text, cls="card", style="align-self:start")


def _map(settings: pl.DataFrame, interval: Callable[[Row], str]) -> Html:
    by_setting = {(row["iso"], row["shutter"]): row for row in settings.to_dicts()}
    isos, shutters = (sorted(set(values)) for values in zip(*by_setting, strict=True))
    head = [
        tag("th", "ISO ↓ shutter →", scope="col"),
        *(tag("th", shutter_text(s), scope="col") for s in shutters),
    ]
    rows = {iso: [_cell(by_setting.get((iso, s)), interval) for s in shutters] for iso in isos}
    body = [tag("tr", tag("th", count(int(iso)), scope="row"), *cells) for iso, cells in rows.items()]
    table = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), cls="heat")
    return tag("div", table, cls="scroll", tabindex="0")


def _cell(row: Row | None, interval: Callable[[Row], str]) -> Html:
    if row is None:
        return tag("td", cls="none")
    if row["value"] is None:
        return tag("td", DASH, cls="thin", title=interval(row))
    shade = f"background:color-mix(in srgb,#0072b2 {round(62 * row['value'])}%,var(--card))"
    return tag(
        "td", f"{100 * row['value']:.0f}", title=f"{percent(row['value'])}, {interval(row)}", style=shade
    )


def requested(params: str) -> Mapping[str, Any]:
    """Return the camera setting that was requested, without the values that automatic exposure chose."""
    chosen = json.loads(params)
    return {key: value for key, value in chosen.items() if chosen.get("mode") != "auto" or key not in DIALS}


# The best and the worst setting of a camera in words, and where automatic exposure stands among the
# settings.


CameraEndsRow = dict[str, Any]


def setting_sentences(view: View, settings: pl.DataFrame) -> Html:
    """Return one paragraph for each model and light; ``settings`` is the answer of ``setting_accuracy``."""
    said = [
        paragraph
        for model in view.models
        for light in settings["light"].unique().sort(descending=True, nulls_last=True)
        if (
            paragraph := _said(
                settings.filter(pl.col("model") == model, pl.col("light").eq_missing(light)), model, light
            )
        )
    ]
    return tag("ul", *(tag("li", paragraph) for paragraph in said), cls="ends-of-dials") if said else EMPTY


def _said(settings: pl.DataFrame, model: str, light: str | None) -> Html:
    manual = (
        settings.filter(~AUTO)
        .drop_nulls("value")
        .sort("value", *SETTING, descending=[True, *(False for _ in SETTING)])
    )
    if manual.height < 2:
        return EMPTY
    best, worst = manual.row(0, named=True), manual.row(-1, named=True)
    whose = f"{model}, lamp {light}: " if light else f"{model}: "
    if best["value"] == worst["value"]:
        return tag(
            "span",
            tag("b", whose),
            f"all {manual.height} settings alike, {_figure(best)}. ",
            *_automatic(settings, manual),
        )
    ends = [
        " best at ",
        tag("b", dials(best)),
        f", {_figure(best)}; worst at ",
        tag("b", dials(worst)),
        f", {_figure(worst)}. ",
    ]
    return tag("span", tag("b", whose), *ends, *_automatic(settings, manual))


def _automatic(settings: pl.DataFrame, manual: pl.DataFrame) -> list[object]:
    """Say how many of the settings automatic exposure leaves behind, and whether the best is
    clearly ahead of it.
    """
    autos = settings.filter(AUTO).drop_nulls("value").to_dicts()
    if not autos:
        return []
    auto, best = autos[0], manual.row(0, named=True)
    behind, level = (
        int((part).sum()) for part in (manual["value"] < auto["value"], manual["value"] == auto["value"])
    )
    place = f"{behind} of the {several(manual.height, 'setting')} are worse" + (
        f", {level} as good" if level else ""
    )
    return ["Automatic exposure has ", _figure(auto), f": {place}{_apart(auto, best)}."]


def _apart(auto: CameraEndsRow, best: CameraEndsRow) -> str:
    if best["value"] <= auto["value"]:
        return ", none is better"
    return (
        "; the best is clearly better"
        if best["low"] > auto["high"]
        else "; its interval and that of the best overlap"
    )


def _figure(row: CameraEndsRow) -> str:
    return f"{percent(row['value'])} ({interval_of(row)})"
