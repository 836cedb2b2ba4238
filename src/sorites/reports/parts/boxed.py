"""A small picture with boxes drawn over it, as inline SVG: sharp at any size, and readable by its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sorites.core import Picture
from sorites.reports.parts.markup import Html, tag
from sorites.reports.parts.thumbnails import data_uri


@dataclass(frozen=True)
class DrawnBox:
    """A box in pixels of the picture, what is written at it, and its kind, which gives it colour and dash (see page.css)."""

    xyxy: tuple[float, float, float, float]
    text: str
    kind: str


def boxed(picture: Picture, boxes: Sequence[DrawnBox], alt: str) -> Html:
    """Return the picture with its boxes; those that come later lie on top."""
    height, width = picture.shape[:2]
    image = tag("image", href=data_uri(picture), width=width, height=height, preserveAspectRatio="none")
    scale = max(height, width) / 160
    drawn = [part for box in boxes for part in _box(box, scale, width, height)]
    return tag("svg", tag("title", alt), image, *drawn, viewBox=f"0 0 {width} {height}", role="img", cls="boxed")


def _box(box: DrawnBox, scale: float, width: int, height: int) -> list[Html]:
    x0, y0, x1, y1 = (min(max(value, 0.0), side) for value, side in zip(box.xyxy, (width, height, width, height), strict=True))
    shape = {"x": f"{x0:.1f}", "y": f"{y0:.1f}", "width": f"{x1 - x0:.1f}", "height": f"{y1 - y0:.1f}"}
    frame = tag("rect", **shape, cls=box.kind, stroke_width=f"{1.6 * scale:.2f}")
    below = y0 < 12 * scale
    place = {"x": f"{x0 + 1.5 * scale:.1f}", "y": f"{(y0 + 10 * scale) if below else (y0 - 2.5 * scale):.1f}"}
    return [frame, tag("text", box.text, **place, cls=box.kind, font_size=f"{9 * scale:.1f}", stroke_width=f"{2.2 * scale:.1f}")]
