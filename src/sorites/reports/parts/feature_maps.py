"""Drawings of features without a script: how their values are distributed, and maps whose marks show class and verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.reports.parts.charts import COLOURS
from sorites.reports.parts.markup import Html, join, number, percent, tag

Array = NDArray[np.float64]
BINS, WIDE, TALL, SIDE = 48, 400, 110, 240
"""The number of bins; the width and height of a distribution, and the side of a map, in their own units."""
FLOOR = 1e-3
"""A bin with this share of the fullest bin, or less, has no height."""
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
NAMED = len(SHAPES)
"""This many classes have a colour and a shape of their own; the others are small grey dots."""


@dataclass(frozen=True)
class Mark:
    """One picture on a map: the place of its class among the named ones (or None), its verdict, and a text for hovering."""

    named: int | None
    right: bool
    hover: str


def distribution(values: Mapping[str, Array], label: str) -> Html:
    """Draw the distribution of feature values at several settings; heights are logarithms, because many values are near 0."""
    every = np.concatenate([part.ravel() for part in values.values()])
    low, high = (float(end) for end in np.percentile(every, [0.5, 99.5]))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    shares = {name: np.histogram(part, edges)[0] / part.size for name, part in values.items()}
    top = max(float(share.max()) for share in shares.values())
    lines = [_outline(name, 1 + np.log10(np.maximum(share / top, FLOOR)) / -np.log10(FLOOR)) for name, share in shares.items()]
    base = Html(f'<line x1="0" y1="{TALL}" x2="{WIDE}" y2="{TALL}" stroke="currentColor" stroke-opacity=".4"/>')
    box = f"0 -2 {WIDE} {TALL + 3}"
    drawn = tag("svg", base, *lines, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label)
    ends = [number(low), "value of a feature (heights on a logarithmic scale)", number(high)]
    keys = [_line_key(name, part) for name, part in values.items()]
    return tag("div", tag("p", *keys, cls="keys"), drawn, tag("p", *(tag("span", end) for end in ends), cls="ends"), cls="scores")


def _outline(name: str, heights: Array) -> Html:
    step = WIDE / BINS
    points = " ".join(f"{(i + 0.5) * step:.1f},{TALL * (1 - 0.97 * height):.1f}" for i, height in enumerate(heights))
    colour = SETTINGS[name]
    return Html(
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{DASHES[name]}" '
        'vector-effect="non-scaling-stroke"/>'
    )


def _line_key(name: str, values: Array) -> Html:
    dash = Html(
        '<svg viewBox="0 0 26 8" style="width:26px;height:8px;display:inline;vertical-align:middle" aria-hidden="true">'
        f'<line y1="4" x2="26" y2="4" stroke="{SETTINGS[name]}" stroke-width="2.5" stroke-dasharray="{DASHES[name]}"/></svg>'
    )
    length = np.linalg.norm(values, axis=1).mean()
    return tag("span", dash, " ", f"{name}: {percent((values == 0).mean(), 0)} zero, mean length {number(float(length))}")


def feature_map(points: Array, marks: Sequence[Mark], ends: tuple[Array, Array], label: str) -> Html:
    """Draw a map; filled marks are right, hollow ones wrong. ``ends`` are the least and greatest of each axis."""
    low, high = ends
    span = np.where(high > low, high - low, 1)
    at = 8 + (SIDE - 16) * (points - low) / span
    order = sorted(range(len(marks)), key=lambda i: marks[i].named is not None)
    drawn = [_mark(at[i, 0], SIDE - at[i, 1], marks[i]) for i in order]
    frame = Html(f'<rect width="{SIDE}" height="{SIDE}" rx="6" fill="none" stroke="currentColor" stroke-opacity=".18"/>')
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
    """Return the legend of a map's classes."""
    drawn = [tag("span", _icon(_mark(6, 6, Mark(i, True, name))), " ", name) for i, name in enumerate(names)]
    if others:
        drawn.append(tag("span", _icon(_mark(6, 6, Mark(None, True, ""))), f" {others} other classes"))
    drawn.append(tag("span", "filled: right, hollow: wrong"))
    return tag("p", *drawn, cls="keys")


def _icon(mark: Html) -> Html:
    style = "width:14px;height:14px;display:inline;vertical-align:-2px"
    return tag("svg", mark, viewBox="0 0 12 12", style=style, aria_hidden="true")
