"""The section on features at camera settings: their distribution, maps, and how well classes cluster.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figures 11 and 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites.analysis.features import (
    NUMBERS,
    SettingImages,
    clusters,
    neighbour_map,
    prepared,
    principal_map,
    setting_images,
    vectors,
)
from sorites.analysis.features import Array as Array_of
from sorites.core import CLEAN
from sorites.reports.components.camera import dials
from sorites.reports.components.charts import COLOURS
from sorites.reports.components.markup import (
    DASH,
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
    tag,
)
from sorites.reports.section import Section, add_section, split_by_split
from sorites.reports.view import View

# --- Drawings without JavaScript: distributions of values, and maps whose marks show class and correctness

Array = NDArray[np.float64]
# Number of bins; width and height of a distribution, and side of a map, in their own units.
BINS, WIDE, TALL, SIDE = 48, 400, 110, 240
# Bins with at most this share of the fullest bin have height 0.
FLOOR = 1e-3
SETTINGS = {"clean": "#7d7d7d", "best": "#0072b2", "worst": "#d55e00", "auto": "#009e73"}
DASHES = {"clean": "2 3", "best": "none", "worst": "7 3", "auto": "7 2 2 2"}
SHAPES = (
    "M{x},{y}m-3.6,0a3.6,3.6 0 1,0 7.2,0a3.6,3.6 0 1,0 -7.2,0Z",
    "M{x},{y}m-3.2,-3.2h6.4v6.4h-6.4Z",
    "M{x},{y}m0,-4.6l4.6,4.6l-4.6,4.6l-4.6,-4.6Z",
    "M{x},{y}m0,-4.2l4.4,7.4h-8.8Z",
    "M{x},{y}m0,4.2l4.4,-7.4h-8.8Z",
    "M{x},{y}m-1.5,-4.2h3v2.7h2.7v3h-2.7v2.7h-3v-2.7h-2.7v-3h2.7Z",
)
# Number of classes with their own colour and shape; the others are small grey dots.
NAMED = len(SHAPES)


@dataclass(frozen=True)
class Mark:
    """One image on a map: the index of its class among the named ones (or None), correctness, and tooltip."""

    named: int | None
    right: bool
    hover: str


def distribution(values: Mapping[str, Array], label: str) -> Html:
    """Draw the distribution of feature values at several settings, on a log scale since many are near 0."""
    every = np.concatenate([part.ravel() for part in values.values()])
    low, high = (float(end) for end in np.percentile(every, [0.5, 99.5]))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    shares = {name: np.histogram(part, edges)[0] / part.size for name, part in values.items()}
    top = max(float(share.max()) for share in shares.values())
    lines = [
        _outline(name, 1 + np.log10(np.maximum(share / top, FLOOR)) / -np.log10(FLOOR))
        for name, share in shares.items()
    ]
    base = Html(
        f'<line x1="0" y1="{TALL}" x2="{WIDE}" y2="{TALL}" stroke="currentColor" stroke-opacity=".4"/>'
    )
    box = f"0 -2 {WIDE} {TALL + 3}"
    drawn = tag("svg", base, *lines, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)
    ends = [number(low), "feature value (logarithmic height)", number(high)]
    keys = [_line_key(name, part) for name, part in values.items()]
    return tag(
        "div",
        tag("p", *keys, cls="keys"),
        drawn,
        tag("p", *(tag("span", end) for end in ends), cls="ends"),
        cls="scores",
    )


def _outline(name: str, heights: Array) -> Html:
    step = WIDE / BINS
    points = " ".join(
        f"{(i + 0.5) * step:.1f},{TALL * (1 - 0.97 * height):.1f}" for i, height in enumerate(heights)
    )
    colour = SETTINGS[name]
    return Html(
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
        f' stroke-dasharray="{DASHES[name]}" vector-effect="non-scaling-stroke"/>'
    )


def _line_key(name: str, values: Array) -> Html:
    dash = Html(
        '<svg viewBox="0 0 26 8" style="width:26px;height:8px;display:inline;vertical-align:middle"'
        f' aria-hidden="true"><line y1="4" x2="26" y2="4" stroke="{SETTINGS[name]}" stroke-width="2.5"'
        f' stroke-dasharray="{DASHES[name]}"/></svg>'
    )
    length = np.linalg.norm(values, axis=1).mean()
    return tag(
        "span",
        dash,
        " ",
        f"{name}: {percent((values == 0).mean(), 0)} zero, mean length {number(float(length))}",
    )


def feature_map(points: Array, marks: Sequence[Mark], ends: tuple[Array, Array], label: str) -> Html:
    """Draw a map; filled marks are correct, hollow ones misclassified.

    ``ends`` are the minimum and maximum of each axis.
    """
    low, high = ends
    span = np.where(high > low, high - low, 1)
    at = 8 + (SIDE - 16) * (points - low) / span
    order = sorted(range(len(marks)), key=lambda i: marks[i].named is not None)
    drawn = [_mark(at[i, 0], SIDE - at[i, 1], marks[i]) for i in order]
    frame = Html(
        f'<rect width="{SIDE}" height="{SIDE}" rx="6" fill="none" stroke="currentColor"'
        ' stroke-opacity=".18"/>'
    )
    style = "width:100%;height:auto;display:block"
    return tag("svg", frame, *drawn, viewBox=f"0 0 {SIDE} {SIDE}", role="img", aria_label=label, style=style)


def _mark(x: float, y: float, mark: Mark) -> Html:
    if mark.named is None:
        fill = 'fill="#8a8f96"' if mark.right else 'fill="none" stroke="#8a8f96" stroke-width=".8"'
        return Html(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.7" {fill} opacity=".6"/>')
    shape, colour = SHAPES[mark.named].format(x=f"{x:.1f}", y=f"{y:.1f}"), COLOURS[mark.named]
    fill = f'fill="{colour}"' if mark.right else 'fill="none"'
    path = Html(f'<path d="{shape}" {fill} stroke="{colour}" stroke-width="1.3"')
    return join([path, Html(">"), tag("title", mark.hover), Html("</path>")])


def class_keys(names: Sequence[str], others: int) -> Html:
    """Return the legend of the classes of a map."""
    drawn = [tag("span", _icon(_mark(6, 6, Mark(i, True, name))), " ", name) for i, name in enumerate(names)]
    if others:
        drawn.append(tag("span", _icon(_mark(6, 6, Mark(None, True, ""))), f" {others} other classes"))
    drawn.append(tag("span", "filled: correct, hollow: misclassified"))
    return tag("p", *drawn, cls="keys")


def _icon(mark: Html) -> Html:
    style = "width:14px;height:14px;display:inline;vertical-align:-2px"
    return tag("svg", mark, viewBox="0 0 12 12", style=style, aria_hidden="true")


# --- The section

# Maximum number of images on a map; t-SNE of 300 takes about a second.
MAX_POINTS = 300
# Maximum size of the maps of a page, in bytes; further models have numbers only.
MAP_BYTES = 900_000
ROW = (
    "display:grid;gap:0.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,13rem),1fr));"
    "margin-top:0.6rem"
)
DRAWN = ("best", "worst", "auto")
WORDS = {CLEAN: "clean", "best": "best setting", "worst": "worst setting", "auto": "automatic exposure"}


@add_section(order=38)
@split_by_split
def features(view: View) -> Section | None:
    """Distributions, maps and cluster numbers per model; absent without features of a camera grid."""
    if not any(run.features for run in view.runs):
        return None
    drawn: dict[str, Html] = {}
    lines: list[Sequence[object]] = []
    for model in view.models:
        at = [place for place in setting_images(view.table, model) if place.what in WORDS]
        numbers = clusters(at, view.features) if any(place.what == "best" for place in at) else pl.DataFrame()
        if not numbers.height:
            continue
        lines += _lines(at, numbers)
        if sum(map(len, drawn.values())) < MAP_BYTES and (part := _drawings(view, at)):
            drawn[model] = part
    if not lines:
        return None
    lead = (
        "Features of the model's penultimate layer at its best and worst camera setting and with automatic"
        " exposure. The further classes are apart on a map, the easier they are to separate. PCA has the same"
        " axes"
        " for all three settings; t-SNE has its own for each and shows only neighbourhoods."
        f" Maps show at most {MAX_POINTS} images."
    )
    table = _numbers(lines)
    return Section(
        "Do features still cluster by class?",
        join([picked(view.named("features"), "Model", drawn), table]),
        "Features",
        lead,
    )


def _numbers(lines: Sequence[Sequence[object]]) -> Html:
    """Return the table of cluster numbers."""
    caption = (
        "The silhouette runs from −1 to 1 (classes far apart), with a jackknife interval; nearest centroid is"
        " the"
        " share of images nearest to the centroid of their own class, leave-one-out; from clean is the mean"
        " distance between the features of an image and of its clean image. Distances are 1 − cosine, since"
        " exposure changes the length of features."
    )
    head = ["", "setting", "lamp", "silhouette", "nearest centroid", "from clean", "n", "classes"]
    table = grid(head, lines, text=3, caption=caption)
    return tag("div", folded("How well do classes cluster?", table, len(lines), most=21), cls="below")


def _lines(at: Sequence[SettingImages], numbers: pl.DataFrame) -> list[Sequence[object]]:
    lines: list[Sequence[object]] = []
    for place in at:
        same = numbers.filter(
            *(pl.col(name).eq_missing(pl.lit(value)) for name, value in place.names().items())
        )
        rows = {row["number"]: row for row in same.to_dicts()}
        if not rows:
            continue
        setting = (
            join([WORDS[place.what], tag("small", dials(place.names()))])
            if place.dials[0] is not None
            else WORDS[place.what]
        )
        first = next(iter(rows.values()))
        values = [_value(rows.get(name), name, first["n"]) for name in NUMBERS]
        lines.append(
            [place.model, setting, place.light or DASH, *values, count(first["n"]), count(first["classes"])]
        )
    return lines


def _value(row: Mapping[str, Any] | None, name: str, n: int) -> Html:
    if row is None or row["value"] is None:
        return tag("span", DASH)
    text = percent if name == "nearest centroid" else _plain
    small = [between(text(row["low"]), text(row["high"]))] if row["low"] is not None else []
    small += [f"n = {count(row['n'])}"] if row["n"] != n else []
    return join([text(row["value"]), tag("small", ", ".join(small)) if small else EMPTY])


def _plain(value: float | None) -> str:
    return DASH if value is None else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _drawings(view: View, at: Sequence[SettingImages]) -> Html:
    """Draw the light under which the best setting has the highest accuracy."""
    best = max(
        (place for place in at if place.what == "best"),
        key=lambda place: float(place.images["correct"].mean() or 0),  # type: ignore[arg-type]
    )
    shown = {
        place.what: place
        for place in at
        if place.what == CLEAN or (place.light, place.shift) == (best.light, best.shift)
    }
    by_image = view.features(
        best.model, {image for place in shown.values() for image in place.images["image_id"]}
    )
    parts = {what: vectors(shown[what], by_image) for what in (CLEAN, *DRAWN) if what in shown}
    parts = {what: part for what, part in parts.items() if part[0].height > 1}
    if not set(DRAWN) & parts.keys():
        return EMPTY
    lamp = f" · lamp {best.light}" if best.light else ""
    spread = distribution(
        {what: rows for what, (_, rows) in parts.items()}, f"Feature values of {best.model}"
    )
    cards = [tag("article", tag("h3", f"How features are distributed{lamp}"), spread, cls="card")]
    return tag(
        "div", *cards, _maps(view, {what: parts[what] for what in DRAWN if what in parts}, shown), cls="stack"
    )


Part = tuple[pl.DataFrame, Array_of]


def _maps(view: View, parts: Mapping[str, Part], shown: Mapping[str, SettingImages]) -> Html:
    selected = {
        what: (images.head(MAX_POINTS), prepared(rows[:MAX_POINTS])) for what, (images, rows) in parts.items()
    }
    counted = Counter(label for images, _ in selected.values() for label in images["label"])
    named = sorted(sorted(counted), key=lambda label: -counted[label])[:NAMED]
    run_id = next(iter(selected.values()))[0]["run_id"][0]
    names = [view.class_name(run_id, label) for label in named]
    joint, shares = principal_map(np.concatenate([rows for _, rows in selected.values()]))
    starts = np.cumsum([0, *(len(rows) for _, rows in selected.values())])
    flat = {what: joint[start:stop] for what, start, stop in zip(selected, starts, starts[1:], strict=False)}
    near = {
        what: points for what, (_, rows) in selected.items() if (points := neighbour_map(rows)) is not None
    }
    kinds: dict[str, tuple[Mapping[str, Array_of], Array_of | None]] = {}
    kinds[f"PCA, {percent(float(shares.sum()), 0)} of the variance"] = flat, joint
    if len(near) == len(selected):
        kinds["t-SNE"] = near, None
    rows = [
        tag(
            "div",
            *(
                _card(kind, what, selected[what][0], points[what], whole, named, names, shown[what])
                for what in selected
            ),
            style=ROW,
        )
        for kind, (points, whole) in kinds.items()
    ]
    return tag("article", class_keys(names, len(counted) - len(named)), *rows, cls="card")


def _card(
    kind: str,
    what: str,
    images: pl.DataFrame,
    points: Array_of,
    whole: Array_of | None,
    named: list[int],
    names: list[str],
    place: SettingImages,
) -> Html:
    marks = [
        Mark(
            named.index(row["label"]) if row["label"] in named else None,
            row["correct"],
            f"{names[named.index(row['label'])]}: {row['sample_id']}" if row["label"] in named else "",
        )
        for row in images.to_dicts()
    ]
    over = points if whole is None else whole
    drawn = feature_map(points, marks, (over.min(axis=0), over.max(axis=0)), f"{kind}, {WORDS[what]}")
    setting = dials(place.names()) if place.dials[0] is not None else ""
    right = percent(float(images["correct"].mean()), 0)  # type: ignore[arg-type]
    words = tag("figcaption", f"{setting}{' · ' if setting else ''}{right} right · {kind}")
    return tag("figure", tag("h4", WORDS[what]), drawn, words)
