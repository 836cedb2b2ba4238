"""Sections on OOD scores: histograms by kind and correctness, and F1 at each camera setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from sorites import metrics
from sorites.core.table import Table
from sorites.metrics.camera import AUTO, SETTING, with_settings
from sorites.reports.components.camera import Row, dials, setting_maps
from sorites.reports.components.charts import PERCENT_AXIS, Pen
from sorites.reports.components.markup import (
    EMPTY,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    picked,
    several,
    tag,
)
from sorites.reports.components.scorers import MAX_LINES, chart, estimate, scorer_pen, scorers
from sorites.reports.section import Section, add_section, split_by_split
from sorites.reports.view import View

# Number of bins, and width and height of a drawing in its own units.
BINS, WIDE, TALL = 40, 400, 120
# Name and colour of each pool.
POOLS = {
    "ID": ("clean", "#0072b2"),
    "C-OOD": ("shifted", "#e69f00"),
    "S-OOD": ("unknown class", "#d55e00"),
    "id": ("correct", "#009e73"),
    "ood": ("misclassified", "#cc79a7"),
}


@add_section(order=62)
def histograms(view: View) -> Section | None:
    """Two histograms per model and scorer: by kind of image, and by correctness."""
    frames = [
        view.compute(metrics.score_histogram, framework=name, bins=BINS)
        for name in ("kind", "model-specific")
    ]
    parts = {
        scorer: tag("div", *cards, cls="cards two wide")
        for scorer in scorers(view)
        if (cards := _cards(view, scorer, frames))
    }
    if not parts:
        return None
    lead = (
        "Each group of images has the same area, so small groups are as visible as large ones. The further"
        " two"
        " groups are apart, the better a threshold separates them. The first histogram groups images by kind,"
        " the second by correctness."
    )
    return Section("How are the scores distributed?", picked("scores", "Scorer", parts), "Scores", lead)


def _cards(view: View, scorer: str, found: list[pl.DataFrame]) -> list[Html]:
    cards = []
    for model in view.models:
        frames = [rows.filter(pl.col("model") == model, pl.col("scorer") == scorer) for rows in found]
        drawn = [_drawing(rows) for rows in frames if rows["pool"].n_unique() > 1]
        if drawn:
            cards.append(
                tag("article", tag("h3", f"{model} · {scorer}"), tag("div", *drawn, cls="pair"), cls="card")
            )
    return cards


def _drawing(rows: pl.DataFrame) -> Html:
    pools = [pool for pool in POOLS if pool in set(rows["pool"])]
    top = float(rows["value"].max() or 1)  # type: ignore[arg-type]
    shapes = [_shape(rows.filter(pool=pool), POOLS[pool][1], top) for pool in pools]
    base = Html(
        f'<line x1="0" y1="{TALL}" x2="{WIDE}" y2="{TALL}" stroke="currentColor" stroke-opacity=".4"/>'
    )
    drawn = tag(
        "svg",
        *shapes,
        base,
        viewBox=f"0 0 {WIDE} {TALL + 1}",
        preserveAspectRatio="none",
        role="img",
        aria_label="Scores",
    )
    ends = [number(rows["left"].min()), "score (right is more OOD)", number(rows["right"].max())]  # type: ignore[arg-type]
    keys = [_key(pool, int(rows.filter(pool=pool)["n"][0])) for pool in pools]
    return tag(
        "div",
        tag("p", *keys, cls="keys"),
        drawn,
        tag("p", *(tag("span", end) for end in ends), cls="ends"),
        cls="scores",
    )


def _key(pool: str, n: int) -> Html:
    name, colour = POOLS[pool]
    return tag("span", tag("i", style=f"background:{colour}"), f"{name} ({several(n, 'image')})")


def _shape(rows: pl.DataFrame, colour: str, top: float) -> Html:
    """Return the outline of one pool, with a tooltip for each bin."""
    step = WIDE / BINS
    shares = dict(rows.select("bin", "value").iter_rows())
    height = {i: TALL * (1 - shares.get(i, 0.0) / top * 0.96) for i in range(BINS)}
    corners = " ".join(
        f"L{i * step:.1f},{height[i]:.1f} L{(i + 1) * step:.1f},{height[i]:.1f}" for i in range(BINS)
    )
    outline = Html(
        f'<path d="M0,{TALL} {corners} L{WIDE},{TALL}Z" fill="{colour}" fill-opacity=".22" stroke="{colour}"'
        ' stroke-width="1.6" vector-effect="non-scaling-stroke"/>'
    )
    return join([outline, *(_tip(row, step) for row in rows.iter_rows(named=True))]) if rows.height else EMPTY


def _tip(row: dict[str, float], step: float) -> Html:
    name = POOLS[str(row["pool"])][0]
    hover = f"{name}: {percent(row['value'])} between {number(row['left'])} and {number(row['right'])}"
    return tag(
        "rect",
        tag("title", hover),
        x=f"{row['bin'] * step:.1f}",
        y="0",
        width=f"{step:.1f}",
        height=TALL,
        fill="transparent",
    )


# --- F1 at each camera setting (ImageNet-ES, figure 8)

BY = ("model", "scorer", *SETTING)


@add_section(order=60)
@split_by_split
def setting_f1(view: View) -> Section | None:
    """F1 against accuracy, maps per scorer, and extremes; absent without scores at camera settings."""
    settings = view.compute(f1_by_setting)
    if settings["value"].null_count() == settings.height:
        return None
    lead = (
        "At each camera setting, the threshold accepts 95 % of the images that the model classifies"
        " correctly;"
        " images above it are rejected. Correct images that are accepted are true positives (TP),"
        " misclassified"
        " ones that are accepted false positives (FP), correct ones that are rejected false negatives (FN),"
        " and"
        " F1 = 2 TP / (2 TP + FP + FN); 100 % means that every correct image is accepted and every"
        " misclassified"
        " one rejected. F1 falls with accuracy even for an equally good score, so compare scorers at the same"
        " accuracy."
    )
    names = scorers(view)
    maps = {
        name: drawn for name in names if (drawn := _maps(view, settings.filter(pl.col("scorer") == name)))
    }
    below = tag(
        "div", picked(view.named("setting-f1"), "Scorer", maps), _ends(view, settings), cls="stack below"
    )
    return Section(
        "Does the score detect where the camera settings fail?",
        join([_charts(view, settings), below]),
        "F1",
        lead,
    )


def f1_by_setting(table: Table, by: Sequence[str] = BY) -> pl.DataFrame:
    """Return ``f1_at_tpr95`` at each setting of a camera grid, with automatic shots pooled."""
    return metrics.f1_at_tpr95(with_settings(table), by)


def _charts(view: View, settings: pl.DataFrame) -> Html:
    """Return F1 against accuracy, one point per setting and scorer; empty with too many scorers."""
    if len(scorers(view)) > MAX_LINES:
        return EMPTY
    manual = settings.filter(~AUTO & pl.col("value").is_not_null()).sort("id", *SETTING)
    cards = []
    for model in view.models:
        model_rows = manual.filter(pl.col("model") == model)
        parts = {
            name: part
            for name in scorers(view)
            if (part := model_rows.filter(pl.col("scorer") == name)).height
        }
        points = {name: _points(part, scorer_pen(scorers(view), name)) for name, part in parts.items()}
        if points:
            axes = {"xaxis": PERCENT_AXIS, "yaxis": PERCENT_AXIS}
            label = f"F1 of each scorer against the accuracy of the setting, {model}"
            drawn = chart(view, scorers(view), ("accuracy at the setting", "F1"), points, label=label, **axes)
            cards.append(tag("article", tag("h3", f"{model} · one point per setting"), drawn, cls="card"))
    return tag("div", *cards, cls="cards two")


def _points(rows: pl.DataFrame, pen: Pen) -> dict[str, Any]:
    """Return the points of a scorer with faint bars for their intervals."""
    up, down = ((rows[end] - rows["value"]).abs().to_list() for end in ("high", "low"))
    bars = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1, "width": 0}
    hover = [[f"{dials(row)}, {_lamp(row)}", _counted(row)] for row in rows.to_dicts()]
    return {
        "mode": "markers",
        "x": (rows["id"] / rows["n"]).to_list(),
        "y": rows["value"].to_list(),
        "error_y": {**bars, "color": pen.faint(0.3)},
        "customdata": hover,
        "hovertemplate": (
            "<b>%{fullData.name}</b><br>%{customdata[0]}<br>accuracy %{x:.1%}<br>F1 %{y:.1%}"
            "<br>%{customdata[1]}<extra></extra>"
        ),
    }


def _maps(view: View, settings: pl.DataFrame) -> Html:
    parts = []
    for model in view.models:
        model_rows = settings.filter(pl.col("model") == model)
        if model_rows["value"].null_count() < model_rows.height:
            head = (
                tag("h3", f"{model}: F1 in % at each ISO and shutter time") if len(view.models) > 1 else EMPTY
            )
            parts.append(tag("div", head, setting_maps(model_rows, _counted)))
    return tag("div", *parts, cls="stack") if parts else EMPTY


def _ends(view: View, settings: pl.DataFrame) -> Html:
    """Return the lowest and highest F1 over manual settings, and that of automatic exposure per light."""
    lights = [light for light in ("on", "off", None) if light in settings.filter(AUTO)["light"].to_list()]
    lines = []
    for model in view.models:
        for scorer in scorers(view):
            model_rows = settings.filter(
                pl.col("model") == model, pl.col("scorer") == scorer, pl.col("value").is_not_null()
            )
            manual, auto = (
                model_rows.filter(~AUTO).sort("value", *SETTING).to_dicts(),
                model_rows.filter(AUTO).to_dicts(),
            )
            ends = [
                join([estimate(row, _counts(row)), tag("small", f"{dials(row)}, {_lamp(row)}")])
                for row in manual[:1] + manual[-1:]
            ]
            by_light = {row["light"]: estimate(row, _counts(row)) for row in auto}
            if ends:
                lines.append(
                    [model, scorer, *ends, *(by_light.get(light, estimate(None)) for light in lights)]
                )
    head = ["", "scorer", "lowest", "highest", *(f"automatic, {_lamp({'light': light})}" for light in lights)]
    caption = (
        "F1 at the settings where it is lowest and highest, and with automatic exposure; n = correct"
        " + misclassified"
    )
    return folded(
        "Lowest and highest F1 of each scorer", grid(head, lines, text=2, caption=caption), len(lines)
    )


def _lamp(row: Row) -> str:
    return f"lamp {row['light']}" if row["light"] else "one light"


def _counts(row: Row) -> str:
    return f"n = {count(row['id'])} + {count(row['ood'])}"


def _counted(row: Row) -> str:
    """Format the interval and the numbers of correct and misclassified images."""
    images = f"{count(row['id'])} correct, {count(row['ood'])} misclassified"
    return (
        f"95 %: {between(percent(row['low']), percent(row['high']))}, {images}"
        if row["low"] is not None
        else images
    )
