"""Camera settings: their text, their grids, maps over ISO and shutter, and summaries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from sorites.metrics.camera import AUTO, DIALS, SETTING
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    css_variable,
    number,
    percent,
    several,
    tag,
)
from sorites.reports.view import View

Row = Mapping[str, Any]


def grids(settings: pl.DataFrame) -> list[pl.DataFrame]:
    """Split settings into grids; ISOs with the same shutter times belong to one grid."""
    times = settings.group_by("iso").agg(key=pl.col("shutter").unique().sort().cast(pl.String))
    times = times.with_columns(pl.col("key").list.join(" "))
    keyed = settings.join(times, on="iso").sort("iso", "shutter")
    return [part.drop("key") for part in keyed.partition_by("key", maintain_order=True)]


def shutter_text(seconds: float) -> str:
    """Format a shutter time as cameras do: 1/60, or 0.4 s."""
    denominator = round(1 / seconds)
    return (
        f"1/{denominator}"
        if seconds <= 0.25 and abs(denominator * seconds - 1) < 0.02
        else f"{number(seconds)} s"
    )


def dials(row: Mapping[str, Any]) -> str:
    """Format ISO, shutter and aperture of a row."""
    return f"ISO {count(int(row['iso']))}, {shutter_text(row['shutter'])}, f/{number(row['aperture'])}"


def setting_maps(settings: pl.DataFrame, interval: Callable[[Row], str]) -> Html:
    """Return one card per aperture and light with a map over ISO and shutter, and one for automatic exposure.

    Args:
        settings: A metric by camera setting, in shares.
        interval: Formats the interval and n of a row.
    """
    lights = settings["light"].unique(maintain_order=True).sort(descending=True).to_list()
    by_light = ((settings.filter(pl.col("light").eq_missing(pl.lit(light))), light) for light in lights)
    cards = [card for rows, light in by_light for card in _light(rows, light, interval)]
    return tag("div", *cards, cls="cards two") if cards else EMPTY


def interval_of(row: Row) -> str:
    """Format the interval of a row and its n."""
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
    shade = f"background:color-mix(in srgb,#0072b2 {round(62 * row['value'])}%,{css_variable('card')})"
    return tag(
        "td", f"{100 * row['value']:.0f}", title=f"{percent(row['value'])}, {interval(row)}", style=shade
    )


def requested(params: str) -> Mapping[str, Any]:
    """Return the requested camera setting, without the values chosen by automatic exposure."""
    chosen = json.loads(params)
    return {key: value for key, value in chosen.items() if chosen.get("mode") != "auto" or key not in DIALS}


# --- The best and worst setting of a camera, and the rank of automatic exposure


def setting_sentences(view: View, settings: pl.DataFrame) -> Html:
    """Return one paragraph per model and light; ``settings`` is the result of ``setting_accuracy``."""
    paragraphs = [
        paragraph
        for model in view.models
        for light in settings["light"].unique().sort(descending=True, nulls_last=True)
        if (
            paragraph := _summary(
                settings.filter(pl.col("model") == model, pl.col("light").eq_missing(light)), model, light
            )
        )
    ]
    return (
        tag("ul", *(tag("li", paragraph) for paragraph in paragraphs), cls="ends-of-dials")
        if paragraphs
        else EMPTY
    )


def _summary(settings: pl.DataFrame, model: str, light: str | None) -> Html:
    manual = (
        settings.filter(~AUTO)
        .drop_nulls("value")
        .sort("value", *SETTING, descending=[True, *(False for _ in SETTING)])
    )
    if manual.height < 2:
        return EMPTY
    best, worst = manual.row(0, named=True), manual.row(-1, named=True)
    prefix = f"{model}, lamp {light}: " if light else f"{model}: "
    if best["value"] == worst["value"]:
        return tag(
            "span",
            tag("b", prefix),
            f"all {manual.height} settings are equal, {_figure(best)}. ",
            *_automatic(settings, manual),
        )
    ends = [
        " best at ",
        tag("b", dials(best)),
        f", {_figure(best)}; worst at ",
        tag("b", dials(worst)),
        f", {_figure(worst)}. ",
    ]
    return tag("span", tag("b", prefix), *ends, *_automatic(settings, manual))


def _automatic(settings: pl.DataFrame, manual: pl.DataFrame) -> list[object]:
    """Describe how automatic exposure compares with the manual settings."""
    autos = settings.filter(AUTO).drop_nulls("value").to_dicts()
    if not autos:
        return []
    auto, best = autos[0], manual.row(0, named=True)
    worse, equal = (
        int((part).sum()) for part in (manual["value"] < auto["value"], manual["value"] == auto["value"])
    )
    rank = f"{worse} of the {several(manual.height, 'setting')} are worse" + (
        f", {equal} equally good" if equal else ""
    )
    return ["Automatic exposure has ", _figure(auto), f": {rank}{_against_best(auto, best)}."]


def _against_best(auto: Row, best: Row) -> str:
    if best["value"] <= auto["value"]:
        return ", none is better"
    if best["low"] is None or auto["high"] is None:
        return ""
    return (
        "; the best is clearly better"
        if best["low"] > auto["high"]
        else "; its interval and that of the best overlap"
    )


def _figure(row: Row) -> str:
    return f"{percent(row['value'])} ({interval_of(row)})"
