"""The field map shows MTF50, SSIM and accuracy or mAP as rings, by distance from the middle of the lens's picture.

It follows figure 18 of Mueller, Braun and Keuper: one map per model, each sector on its own scale, over all lenses together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from sorites import metrics
from sorites.metrics import normal_interval, with_lenses
from sorites.reports.parts.markup import EMPTY, Html, grid, join, percent, tag
from sorites.reports.parts.rings import HIGH, LOW, MIDDLE, Rows, Sector, rings
from sorites.reports.view import View

GET = "sorites similarity RUN --measure ssim"
RIGHT, MAP = "right", "mAP"
"""The sector of a model that gives labels, and of one that gives boxes."""
SCALES = {
    "MTF50": "MTF50, cycles/px",
    "SSIM": "SSIM to the clean picture",
    RIGHT: "accuracy (right), all models on one scale",
    MAP: "mAP, all detectors on one scale",
}


def field_map(view: View, over: pl.DataFrame, name: str = RIGHT) -> Html:
    """Return one map per model, their scales, and all numbers as a table; it is empty without lenses.

    ``over`` holds the accuracy (or mAP, as ``name`` says) of each model at each field position.
    """
    optics = [
        Sector("MTF50", 210, 270, _by_field(_sharpness(view))),
        Sector("SSIM", 90, 132, _by_field(view.compute(metrics.lens_degree))),
    ]
    optics_sectors = [sector for sector in optics if sector.rows]
    own = {model: _by_field(over.filter(pl.col("model") == model)) for model in view.models}
    right = {model: Sector(name, -30, 48, rows, share=True) for model, rows in own.items() if rows}
    if not right:
        return EMPTY
    scales = {sector.name: _range([sector]) for sector in optics_sectors} | {name: _range(list(right.values()))}
    without = tag("p", "SSIM has not been measured for this run. To measure it, type: ", tag("code", GET), cls="note")
    return join(
        [
            tag("h3", "Field map"),
            tag(
                "p",
                "Each ring is a distance from the middle of the lens's picture; the values are means over all lenses"
                + (", and mAP is that of the pictures of all lenses together." if name == MAP else "."),
                cls="about",
            ),
            _maps(optics_sectors, right, scales),
            _legend([*optics_sectors, next(iter(right.values()))], scales),
            EMPTY if "SSIM" in scales else without,
            _table(optics_sectors, right, "accuracy" if name == RIGHT else name),
        ]
    )


def _sharpness(view: View) -> pl.DataFrame:
    """Return the mean MTF50 of the lenses at each field position; ``n`` counts lenses, and the interval is over them."""
    each = with_lenses(view.table).select("lens", "lens_field", "mtf50").drop_nulls().unique(["lens", "lens_field"])
    value, n = pl.col("mtf50"), pl.len()
    means = each.group_by("lens_field").agg(value=value.mean(), n=n.cast(pl.Int64), variance=value.var() / n)
    return means.with_columns(**normal_interval(pl.col("value"), pl.col("variance"))).collect()


def _by_field(rows: pl.DataFrame) -> Rows:
    complete = rows.drop_nulls(["lens_field", "value"]).sort("lens_field")
    return {row["lens_field"]: row for row in complete.to_dicts()}


def _range(sectors: Sequence[Sector]) -> tuple[float, float]:
    values = [row["value"] for sector in sectors for row in sector.rows.values()]
    return min(values), max(values)


def _maps(optics_sectors: Sequence[Sector], right: Mapping[str, Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    figures = []
    for model, sector in right.items():
        several = [*optics_sectors, sector]
        label = f"Field map of {model}: {', '.join(sector.name for sector in several)} by distance from the middle"
        head = tag("h4", model, style="text-align:center")
        figures.append(tag("figure", head, rings(label, several, scales), style="flex:1 1 14rem;max-width:20rem"))
    return tag("div", *figures, style="display:flex;flex-wrap:wrap;gap:0.5rem 1.5rem;justify-content:center")


def _legend(sectors: Sequence[Sector], scales: Mapping[str, tuple[float, float]]) -> Html:
    stops = ",".join(f"rgb{one}" for one in (LOW, MIDDLE, HIGH))
    bar = tag("i", style=f"height:0.7rem;border-radius:3px;background:linear-gradient(90deg,{stops})")
    cells = []
    for sector in sectors:
        low, high = (tag("span", sector.text(end)) for end in scales[sector.name])
        cells += [tag("span", SCALES[sector.name]), low, bar, high]
    style = (
        "display:grid;grid-template-columns:auto auto minmax(5rem,14rem) auto;gap:0.15rem 0.7rem;align-items:center;"
        "justify-content:center;margin:0.6rem 0 1rem;print-color-adjust:exact"
    )
    return tag("div", *cells, cls="note", style=style)


def _table(optics_sectors: Sequence[Sector], right: Mapping[str, Sector], shown: str) -> Html:
    fields = sorted({field for sector in [*optics_sectors, *right.values()] for field in sector.rows})
    counted = {"MTF50": "lenses", MAP: "pictures"}
    columns = [(sector, counted.get(sector.name, "samples")) for sector in [*optics_sectors, *right.values()]]
    lines = [[percent(field, 0), *(sector.whole(field, of) for sector, of in columns)] for field in fields]
    caption = f"Mean, 95 % interval and n at each distance from the middle (in % of the half field); models show {shown}"
    return grid(["", *(sector.name for sector in optics_sectors), *right], lines, caption=caption)
