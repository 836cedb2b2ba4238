"""The section on features at camera settings: how they are distributed, how they lie on a map, how well classes cluster.

Baek et al., "Unexplored Faces of Robustness and Out-of-Distribution", CVPR 2024, Figures 11 and 12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from sorites.core import CLEAN
from sorites.metrics._clusters import Array, neighbour_map, prepared, principal_map
from sorites.pipeline.clusters import NUMBERS, Place, clusters, places, vectors
from sorites.reports.parts.camera_settings import dials
from sorites.reports.parts.feature_maps import NAMED, Mark, class_keys, distribution, feature_map
from sorites.reports.parts.markup import DASH, EMPTY, Html, between, count, folded, grid, join, percent, tag
from sorites.reports.parts.picker import picked
from sorites.reports.section import Section, add_section
from sorites.reports.view import View

POINTS = 300
"""The most pictures on a map: t-SNE of as many takes about a second."""
WEIGHT = 900_000
"""The maps of a page may take this many bytes, as they stand in the file; models that come later have numbers only."""
ROW = "display:grid;gap:0.8rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,13rem),1fr));margin-top:0.6rem"
DRAWN = ("best", "worst", "auto")
WORDS = {CLEAN: "clean", "best": "best setting", "worst": "worst setting", "auto": "automatic exposure"}


@add_section(order=38)
def features(view: View) -> Section | None:
    """Distributions, maps and cluster numbers per model; absent without a camera grid whose features were kept."""
    if not any(run.features for run in view.runs):
        return None
    drawn: dict[str, Html] = {}
    lines: list[Sequence[object]] = []
    for model in view.models:
        at = [place for place in places(view.table, model) if place.what in WORDS]
        numbers = clusters(at, view.features) if any(place.what == "best" for place in at) else pl.DataFrame()
        if not numbers.height:
            continue
        lines += _lines(at, numbers)
        if sum(map(len, drawn.values())) < WEIGHT and (part := _drawings(view, at)):
            drawn[model] = part
    if not lines:
        return None
    lead = (
        "The features of the model's last layer but one, at its best and worst camera setting and with automatic exposure. The "
        "further classes lie apart on a map, the easier they are to tell. PCA has the same axes for all three settings; t-SNE "
        "has its own for each and shows neighbourhoods alone. Maps show at most "
        f"{POINTS} pictures."
    )
    table = _numbers(lines)
    return Section("Do features still cluster by class?", join([picked("features", "Model", drawn), table]), "Features", lead)


def _numbers(lines: Sequence[Sequence[object]]) -> Html:
    """Return the table of cluster numbers."""
    caption = (
        "The silhouette runs from −1 to 1 (classes far apart), with a jackknife interval; nearest centroid is the share of "
        "pictures that are nearest to the centroid of their own class, themselves left out; from clean is the mean distance "
        "between the features of a picture and of its clean original. Distances are 1 − cosine, because exposure changes the "
        "length of features."
    )
    head = ["", "setting", "lamp", "silhouette", "nearest centroid", "from clean", "n", "classes"]
    table = grid(head, lines, text=3, caption=caption)
    return tag("div", folded("How well do classes cluster?", table, len(lines), most=21), cls="below")


def _lines(at: Sequence[Place], numbers: pl.DataFrame) -> list[Sequence[object]]:
    found: list[Sequence[object]] = []
    for place in at:
        same = numbers.filter(*(pl.col(name).eq_missing(pl.lit(value)) for name, value in place.names().items()))
        rows = {row["number"]: row for row in same.to_dicts()}
        if not rows:
            continue
        setting = (
            join([WORDS[place.what], tag("small", dials(place.names()))]) if place.dials[0] is not None else WORDS[place.what]
        )
        some = next(iter(rows.values()))
        values = [_value(rows.get(name), name, some["n"]) for name in NUMBERS]
        found.append([place.model, setting, place.light or DASH, *values, count(some["n"]), count(some["classes"])])
    return found


def _value(row: Mapping[str, Any] | None, name: str, n: int) -> Html:
    if row is None or row["value"] is None:
        return tag("span", DASH)
    text = percent if name == "nearest centroid" else _plain
    small = [between(text(row["low"]), text(row["high"]))] if row["low"] is not None else []
    small += [f"n = {count(row['n'])}"] if row["n"] != n else []
    return join([text(row["value"]), tag("small", ", ".join(small)) if small else EMPTY])


def _plain(value: float | None) -> str:
    return DASH if value is None else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")


def _drawings(view: View, at: Sequence[Place]) -> Html:
    """Draw the light under which the best setting is best."""
    best = max((place for place in at if place.what == "best"), key=lambda place: float(place.images["correct"].mean() or 0))  # type: ignore[arg-type]
    shown = {place.what: place for place in at if place.what == CLEAN or (place.light, place.shift) == (best.light, best.shift)}
    held = view.features(best.model, {image for place in shown.values() for image in place.images["image_id"]})
    parts = {what: vectors(shown[what], held) for what in (CLEAN, *DRAWN) if what in shown}
    parts = {what: part for what, part in parts.items() if part[0].height > 1}
    if not set(DRAWN) & parts.keys():
        return EMPTY
    lamp = f" · lamp {best.light}" if best.light else ""
    spread = distribution({what: rows for what, (_, rows) in parts.items()}, f"Feature values of {best.model}")
    cards = [tag("article", tag("h3", f"How features are distributed{lamp}"), spread, cls="card")]
    return tag("div", *cards, _maps(view, {what: parts[what] for what in DRAWN if what in parts}, shown), cls="stack")


Part = tuple[pl.DataFrame, Array]


def _maps(view: View, parts: Mapping[str, Part], shown: Mapping[str, Place]) -> Html:
    some = {what: (images.head(POINTS), prepared(rows[:POINTS])) for what, (images, rows) in parts.items()}
    counted = Counter(label for images, _ in some.values() for label in images["label"])
    named = sorted(sorted(counted), key=lambda label: -counted[label])[:NAMED]
    run_id = next(iter(some.values()))[0]["run_id"][0]
    names = [view.class_name(run_id, label) for label in named]
    joint, shares = principal_map(np.concatenate([rows for _, rows in some.values()]))
    starts = np.cumsum([0, *(len(rows) for _, rows in some.values())])
    flat = {what: joint[start:stop] for what, start, stop in zip(some, starts, starts[1:], strict=False)}
    near = {what: points for what, (_, rows) in some.items() if (points := neighbour_map(rows)) is not None}
    kinds: dict[str, tuple[Mapping[str, Array], Array | None]] = {}
    kinds[f"PCA, {percent(float(shares.sum()), 0)} of the variance"] = flat, joint
    if len(near) == len(some):
        kinds["t-SNE"] = near, None
    rows = [
        tag(
            "div",
            *(_card(kind, what, some[what][0], points[what], whole, named, names, shown[what]) for what in some),
            style=ROW,
        )
        for kind, (points, whole) in kinds.items()
    ]
    return tag("article", class_keys(names, len(counted) - len(named)), *rows, cls="card")


def _card(
    kind: str,
    what: str,
    images: pl.DataFrame,
    points: Array,
    whole: Array | None,
    named: list[int],
    names: list[str],
    place: Place,
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
