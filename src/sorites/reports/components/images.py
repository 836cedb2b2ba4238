"""Thumbnails embedded in the page, and images with boxes as inline SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sorites.core import CLEAN, ImageU8
from sorites.reports.components.markup import Html, tag
from sorites.reports.view import View

# Longer side of a thumbnail, px.
SIDE = 160


def data_uri(image: ImageU8, side: int = SIDE) -> str:
    """Return an image as a small WebP data URI; it is never enlarged."""
    from PIL import Image

    small = Image.fromarray(np.ascontiguousarray(image))
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "WEBP", quality=74, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


@dataclass
class Album:
    """Thumbnails as data URIs, each made once; ``left`` counts down the allowance of bytes."""

    view: View
    left: int
    side: int = SIDE
    uris: dict[tuple[str, str, str, float], str | None] = field(default_factory=dict)

    def thumbnail(self, run_id: str, sample_id: str, shift: str, severity: float) -> str | None:
        """Return the thumbnail of an image, or None if no run can recompute it."""
        key = (run_id, sample_id, shift if severity else CLEAN, severity)
        if key not in self.uris:
            image = self.view.image(*key)
            self.uris[key] = None if image is None else data_uri(image, self.side)
        self.left -= len(self.uris[key] or "")
        return self.uris[key]


@dataclass(frozen=True)
class DrawnBox:
    """A box in pixels of the image, its text, and its kind, which is a CSS class (see page.css)."""

    xyxy: tuple[float, float, float, float]
    text: str
    kind: str


def boxed(image_u8: ImageU8, boxes: Sequence[DrawnBox], alt: str, side: int = SIDE) -> Html:
    """Return the image with its boxes as SVG; later boxes are on top.

    Args:
        image_u8: The image.
        boxes: The boxes.
        alt: The text of the image.
        side: Longer side of the embedded image, px.
    """
    height, width = image_u8.shape[:2]
    image = tag(
        "image", href=data_uri(image_u8, side), width=width, height=height, preserveAspectRatio="none"
    )
    scale = max(height, width) / SIDE
    drawn = [part for box in boxes for part in _box(box, scale, width, height)]
    return tag(
        "svg", tag("title", alt), image, *drawn, viewBox=f"0 0 {width} {height}", role="img", cls="boxed"
    )


def _box(box: DrawnBox, scale: float, width: int, height: int) -> list[Html]:
    x0, y0, x1, y1 = (
        min(max(value, 0.0), side)
        for value, side in zip(box.xyxy, (width, height, width, height), strict=True)
    )
    shape = {"x": f"{x0:.1f}", "y": f"{y0:.1f}", "width": f"{x1 - x0:.1f}", "height": f"{y1 - y0:.1f}"}
    frame = tag("rect", **shape, cls=box.kind, stroke_width=f"{1.6 * scale:.2f}")
    below = y0 < 12 * scale
    position = {
        "x": f"{x0 + 1.5 * scale:.1f}",
        "y": f"{(y0 + 10 * scale) if below else (y0 - 2.5 * scale):.1f}",
    }
    return [
        frame,
        tag(
            "text",
            box.text,
            **position,
            cls=box.kind,
            font_size=f"{9 * scale:.1f}",
            stroke_width=f"{2.2 * scale:.1f}",
        ),
    ]
