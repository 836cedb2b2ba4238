"""Draw filled shapes and deflected lines, for shifts that paste them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sorites.core import ImageF32, ImageU8
from sorites.scenes.fields import Field
from sorites.scenes.point_maps import Size

if TYPE_CHECKING:
    from PIL import ImageDraw

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Shape:
    """A shape with its place, side and turn (of stars, in degrees) and its colour."""

    kind: str
    x: float
    y: float
    side: float
    turn: float
    colour: tuple[int, int, int]

    def draw(self, canvas: ImageDraw.ImageDraw, fill: tuple[int, int, int] | int) -> None:
        """Draw the shape with its upper left corner at (x, y); a star is around it."""
        x, y, side = self.x, self.y, self.side
        if self.kind == "triangle":
            canvas.polygon([(x, y), (x + side, y), (x + side / 2, y + side)], fill=fill)
        elif self.kind == "square":
            canvas.rectangle((x, y, x + side, y + side), fill=fill)
        elif self.kind == "circle":
            canvas.ellipse((x, y, x + side, y + side), fill=fill)
        else:
            canvas.polygon([self._tip(k) for k in range(10)], fill=fill)

    def _tip(self, k: int) -> tuple[float, float]:
        radius = self.side / 1.2 / (1 + k % 2)
        angle = math.radians(36 * k + self.turn)
        return self.x + radius * math.sin(angle), self.y + radius * math.cos(angle)


def drawn_shapes(shapes: Sequence[Shape], size: Size) -> tuple[Field, Array]:
    """Return where shapes are (H x W, 0 or 1) and their colours, drawn one over the other."""
    from PIL import Image as pil
    from PIL import ImageDraw

    mask, colours = pil.new("L", (size[1], size[0])), pil.new("RGB", (size[1], size[0]))
    on_mask, on_colours = ImageDraw.Draw(mask), ImageDraw.Draw(colours)
    for shape in shapes:
        shape.draw(on_mask, 255)
        shape.draw(on_colours, shape.colour)
    return np.asarray(mask, np.float32) / np.float32(255), np.asarray(colours, np.float32) / np.float32(255)


def drawn_lines(
    starts: NDArray[np.floating],
    places: NDArray[np.floating],
    step: int,
    colours: ImageU8,
    size: Size,
    width: int,
) -> ImageF32:
    """Return lines from the top to the bottom on black, one over the other from left to right.

    Args:
        starts: Where each line begins, in px from the left.
        places: Where each line is at each step downwards, steps x lines.
        step: The height of a step in px.
        colours: The colour of each line at each step, steps x lines x 3.
        size: Height and width of the image.
        width: The width of a line in px.
    """
    from PIL import Image as pil
    from PIL import ImageDraw

    made = pil.new("RGB", (size[1], size[0]))
    canvas = ImageDraw.Draw(made)
    for i, start in enumerate(starts):
        downwards = [(float(round(x)), float(row * step)) for row, x in enumerate(places[:, i].tolist())]
        corners = [(float(round(float(start))), 0.0), *downwards]
        fills = [(int(r), int(g), int(b)) for r, g, b in colours[:, i]]
        end = corners[-1][0]
        canvas.line((end, corners[-1][1], end, size[0]), fill=fills[-1], width=width)
        # From the bottom up, so that a segment keeps the line on which it ends.
        for row in reversed(range(len(fills))):
            canvas.line((*corners[row], *corners[row + 1]), fill=fills[row], width=width)
    return np.asarray(made, np.float32) / np.float32(255)
