"""A camera's settings: as a camera writes them, apart by grid, and in maps of ISO and shutter."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from sorites.metrics.camera_settings import AUTO, DIALS
from sorites.reports.parts.markup import DASH, EMPTY, Html, between, count, number, percent, tag

Row = Mapping[str, Any]


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


def setting_maps(settings: pl.DataFrame, interval: Callable[[Row], str]) -> Html:
    """Return one card per aperture and light with a map of ISO and shutter, and one per light for automatic exposure.

    ``settings`` is the answer of a metric by camera setting, in shares; ``interval`` words the interval and n of a row.
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
    head = [tag("th", "ISO ↓ shutter →", scope="col"), *(tag("th", shutter_text(s), scope="col") for s in shutters)]
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
    return tag("td", f"{100 * row['value']:.0f}", title=f"{percent(row['value'])}, {interval(row)}", style=shade)


def requested(params: str) -> Mapping[str, Any]:
    """Return the camera setting that was requested, without the values that automatic exposure chose."""
    chosen = json.loads(params)
    return {key: value for key, value in chosen.items() if chosen.get("mode") != "auto" or key not in DIALS}
