"""Stacked areas as inline SVG: how the shares of a whole change along a severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sorites.reports.components.markup import Html, tag

WIDTH, HEIGHT = 240.0, 110.0


@dataclass(frozen=True)
class Band:
    """A part of the whole: its name, its colour, and its share at each severity."""

    name: str
    colour: str
    shares: Sequence[float]


def stacked(severities: Sequence[float], bands: Sequence[Band], alt: str) -> Html:
    """Return bands on top of each other, the first at the bottom, with a key of their names.

    Args:
        severities: At least two severities in rising order.
        bands: The parts, whose shares at a severity add up to 1.
        alt: The text of the picture.
    """
    first, last = severities[0], severities[-1]
    x = [WIDTH * (severity - first) / (last - first) for severity in severities]
    floor = [0.0] * len(x)
    shapes, names = [], []
    for band in bands:
        top = [low + share for low, share in zip(floor, band.shares, strict=True)]
        corners = [*zip(x, top, strict=True), *reversed(list(zip(x, floor, strict=True)))]
        points = " ".join(f"{across:.1f},{HEIGHT * (1 - up):.1f}" for across, up in corners)
        shapes.append(tag("polygon", points=points, fill=band.colour))
        ends = f"{100 * band.shares[0]:.0f} → {100 * band.shares[-1]:.0f} %"
        names.append(
            tag("li", tag("i", style=f"background:{band.colour}"), f"{band.name} ", tag("small", ends))
        )
        floor = top
    drawing = tag(
        "svg",
        tag("title", alt),
        *shapes,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        cls="areas",
    )
    return tag("div", drawing, tag("ul", *names, cls="key"))
