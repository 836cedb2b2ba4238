"""Draw boxes on a picture: an outline in the colour of its class between two dark lines, and the class on a filled tag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.core import Box, Picture

COLOURS = ((255, 220, 0), (0, 200, 255), (255, 110, 180), (120, 255, 120), (255, 150, 40), (200, 170, 255), (255, 255, 255))
"""Light colours, so that one dark ink can be read on all of them."""
INK = (20, 20, 20)
Font = ImageFont.ImageFont | ImageFont.FreeTypeFont
DASH = 6
"""The length in px of the dashes by which a crowd is drawn."""


def with_boxes(picture: Picture, boxes: Sequence[Box], names: Sequence[str]) -> Picture:
    """Return a copy of the picture with the boxes drawn on it, large ones first; without boxes, the picture itself."""
    if not boxes:
        return picture
    page = Pillow.fromarray(np.array(picture))
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(12)
    for box in sorted(boxes, key=lambda box: -(box.xyxy[2] - box.xyxy[0]) * (box.xyxy[3] - box.xyxy[1])):
        colour = COLOURS[box.label % len(COLOURS)]
        _outline(draw, box, colour)
        said = names[box.label] if 0 <= box.label < len(names) else str(box.label)
        said += "" if box.conf is None else f" {box.conf:.2f}"
        _tag(draw, box, f"{said} (crowd)" if box.crowd else said, colour, font, page.size)
    return np.asarray(page)


def _outline(draw: ImageDraw.ImageDraw, box: Box, colour: tuple[int, int, int]) -> None:
    x0, y0, x1, y1 = (round(edge) for edge in box.xyxy)
    right, below = max(x0, x1 - 1), max(y0, y1 - 1)
    for grow, ink in ((-1, INK), (2, INK), (0, colour), (1, colour)):
        corners = (x0 - grow, y0 - grow, right + grow, below + grow)
        if corners[0] <= corners[2] and corners[1] <= corners[3]:
            draw.rectangle(corners, outline=ink)
    if box.crowd:
        for x in range(x0, right, 2 * DASH):
            draw.line((x, y0, min(x + DASH, right), y0), fill=INK, width=2)
            draw.line((x, below, min(x + DASH, right), below), fill=INK, width=2)


def _tag(
    draw: ImageDraw.ImageDraw, box: Box, text: str, colour: tuple[int, int, int], font: Font, size: tuple[int, int]
) -> None:  # fmt: skip
    """Draw the tag above the box, or inside it where there is no room above; it stays inside the picture."""
    wide, high = round(font.getbbox(text)[2]) + 6, 15
    left = max(0, min(round(box.xyxy[0]) - 2, size[0] - wide))
    top = round(box.xyxy[1]) - high - 1
    top = top if top >= 0 else min(max(round(box.xyxy[1]) + 2, 0), size[1] - high)
    draw.rectangle((left, top, left + wide - 1, top + high - 1), fill=colour, outline=INK)
    draw.text((left + 3, top), text, INK, font)
