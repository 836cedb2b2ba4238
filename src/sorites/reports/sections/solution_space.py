"""The section on the solution space of a camera: the settings at which each image is correct.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figure 13.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sorites import metrics
from sorites.analysis.sheet import spread
from sorites.metrics.camera import AUTO, DIALS, OUTCOMES, with_settings
from sorites.reports.components.charts import pen
from sorites.reports.components.markup import (
    DASH,
    EMPTY,
    Html,
    between,
    count,
    folded,
    grid,
    join,
    percent,
    several,
    tag,
)
from sorites.reports.components.scorers import estimate
from sorites.reports.section import Section, add_section, split_by_split
from sorites.reports.view import View

# Width and height of a histogram in its own units, and maximum number of images on a map.
WIDE, TALL, MAX_ROWS = 400, 56, 300
RIGHT, WRONG, MISSING = (0, 114, 178), (240, 228, 214), (160, 160, 160)
Row = Mapping[str, Any]


@add_section(order=35)
@split_by_split
def solution_space(view: View) -> Section | None:
    """Histograms by light, a map of images and settings per model, and pairs of models.

    Absent without a camera grid.
    """
    counts = view.compute(metrics.solution_space)
    if not counts.height:
        return None
    groups = (
        counts.select("light", "settings").unique().sort("light", "settings", descending=[True, False]).rows()
    )
    cards = [
        _histograms(view, counts, light, settings)
        for light, settings in groups
        if _enough(counts, light, settings)
    ]
    lead = (
        "A setting solves an image if the model classifies it correctly there. The bars show at how many"
        " manual"
        " settings an image is solved: at 0 no setting helps, on the right the setting does not matter, and"
        " in"
        " between the setting must be chosen. In the maps below, a row is an image and a column a setting."
    )
    parts = [tag("div", *cards, cls="cards two"), _maps(view), _pairs(view)]
    return Section(
        "Which settings solve which images?",
        tag("div", *(p for p in parts if p), cls="stack"),
        "Solutions",
        lead,
    )


def _enough(counts: pl.DataFrame, light: str | None, settings: int) -> bool:
    """Leave out groups of few samples that lack a setting because of an error."""
    same = counts.filter(pl.col("light").eq_missing(pl.lit(light)))
    return int(same.filter(settings=settings)["n"].max()) * 20 >= int(same["n"].max())  # type: ignore[arg-type]


def _histograms(view: View, counts: pl.DataFrame, light: str | None, settings: int) -> Html:
    here = counts.filter(pl.col("light").eq_missing(pl.lit(light)), settings=settings)
    top = float(here["value"].max() or 1)  # type: ignore[arg-type]
    drawn = [
        part
        for model in view.models
        if (part := _histogram(view, here.filter(model=model), model, settings, top))
    ]
    lamp = f" · lamp {light}" if light else ""
    ends = tag(
        "p",
        *(tag("span", text) for text in ("0", "settings at which an image is correct", settings)),
        cls="ends",
    )
    return tag("article", tag("h3", f"{several(settings, 'setting')}{lamp}"), *drawn, ends, cls="card")


def _histogram(view: View, rows: pl.DataFrame, model: str, settings: int, top: float) -> Html:
    if not rows.height:
        return EMPTY
    by_count = {row["right"]: row for row in rows.to_dicts()}
    step, colour = WIDE / (settings + 1), pen(view, model).colour
    bars = [_bar(right, row, step, colour, top) for right, row in by_count.items()]
    base = Html(
        f'<line x1="0" y1="{TALL}" x2="{WIDE}" y2="{TALL}" stroke="currentColor" stroke-opacity=".4"/>'
    )
    box, label = f"0 0 {WIDE} {TALL + 1}", f"{model}: images by the number of correct settings"
    style = f"height:{TALL}px"
    drawn = tag(
        "svg", *bars, base, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label, style=style
    )
    none, every = (_share(by_count.get(right), rows["n"][0]) for right in (0, settings))
    words = [tag("b", model), f" no setting: {none} · every setting: {every} · n = {count(rows['n'][0])}"]
    return tag("div", tag("p", *words, cls="keys"), drawn, cls="scores")


def _share(row: Row | None, n: int) -> str:
    return (
        f"0 of {count(n)}"
        if row is None
        else f"{percent(row['value'])} ({between(percent(row['low']), percent(row['high']))})"
    )


def _bar(right: int, row: Row, step: float, colour: str, top: float) -> Html:
    high = TALL * 0.97 * row["value"] / top
    hover = (
        f"correct at {right}: {percent(row['value'])}, 95 %:"
        f" {between(percent(row['low']), percent(row['high']))}"
    )
    return tag(
        "rect",
        tag("title", hover),
        x=f"{right * step + 0.08 * step:.2f}",
        y=f"{TALL - high:.2f}",
        width=f"{0.84 * step:.2f}",
        height=f"{high:.2f}",
        fill=colour,
    )


def _maps(view: View) -> Html:
    """Draw the correctness per model: images down, easiest first; settings across, from dark to bright."""
    columns = ("source", "sample_id", "model", "correct", "light", *DIALS)
    rows = with_settings(view.table).filter(
        ~AUTO & (pl.col("output") == "label") & pl.col("correct").is_not_null()
    )
    judged = rows.filter(pl.col("valid").fill_null(True)).select(columns).collect(engine="streaming")
    exposure = pl.col("iso") * pl.col("shutter") / pl.col("aperture") ** 2
    settings = (
        judged.select("light", *DIALS)
        .unique()
        .sort("light", exposure, *DIALS, descending=[True, *[False] * 4], nulls_last=True)
    )
    samples = judged.group_by("source", "sample_id").agg(pl.col("correct").mean())
    samples = samples.sort("correct", "sample_id", descending=[True, False])
    total, samples = samples.height, samples[spread(range(samples.height), MAX_ROWS)]
    placed = judged.join(settings.with_row_index("x"), on=["light", *DIALS], nulls_equal=True)
    placed = placed.join(
        samples.select("source", "sample_id").with_row_index("y"),
        on=["source", "sample_id"],
        nulls_equal=True,
    )
    lights = settings["light"].fill_null("").to_list()
    figures = [_map(placed.filter(model=model), model, samples.height, lights) for model in view.models]
    shown = (
        f"{count(samples.height)} of {several(total, 'image')}"
        if samples.height < total
        else several(total, "image")
    )
    ordered = " then ".join(f"lamp {light}" for light in dict.fromkeys(lights) if light)
    note = (
        f"{shown}, the easiest at the top; settings from dark to bright{', ' + ordered if ordered else ''}."
        " Blue is correct, pale is misclassified, grey was not evaluated. Rows and columns are the same for"
        " all"
        " models."
    )
    return tag("article", tag("p", note, cls="about"), tag("div", *figures, cls="cards"), cls="card")


def _map(placed: pl.DataFrame, model: str, height: int, lights: Sequence[str]) -> Html:
    from PIL import Image

    pixels = np.full((height, len(lights), 3), MISSING, np.uint8)
    pixels[placed["y"].to_numpy(), placed["x"].to_numpy()] = np.where(
        placed["correct"].to_numpy()[:, None], RIGHT, WRONG
    )
    gap = next((i for i in range(1, len(lights)) if lights[i] != lights[0]), None)
    if gap is not None:
        pixels = np.insert(pixels, gap, 255, axis=1)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    shape = f"aspect-ratio:auto;object-fit:fill;height:{min(340, max(90, 6 * height))}px"
    style = f"image-rendering:pixelated;border-radius:3px;{shape}"
    alt = f"{model}: images down, settings across, blue if correct"
    return tag("figure", tag("h4", model), tag("img", src=uri, alt=alt, style=style))


def _pairs(view: View) -> Html:
    rows = view.compute(metrics.solution_overlap).to_dicts()
    by_pair: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_pair.setdefault((row["model"], row["other"]), {})[row["outcome"]] = row
    lines = [_line(pair, outcomes) for pair, outcomes in by_pair.items()]
    caption = (
        "Share of all images and settings that are correct for both models, for one of them only, or for"
        " none;"
        " shared is the share correct for both among those correct for either"
    )
    head = ["", "other", "both", "first only", "other only", "none", "shared", "n"]
    table = grid(head, lines, text=2, caption=caption)
    return folded("Do two models need the same settings?", table, len(lines), most=10) if lines else EMPTY


def _line(pair: tuple[str, str], outcomes: Mapping[str, Row]) -> list[object]:
    both, first, second, _ = (outcomes[name]["value"] for name in OUTCOMES)
    either = both + first + second
    counts = outcomes["both"]
    n = join([several(counts["n"], "image"), tag("small", several(counts["pairs"], "pair"))])
    return [
        *pair,
        *(estimate(outcomes[name]) for name in OUTCOMES),
        percent(both / either) if either else DASH,
        n,
    ]
