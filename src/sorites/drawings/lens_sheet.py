"""Draw a lens as one picture: its layout, its kernels over the field, its MTF curves and the terms of its wavefront."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.drawings.lens_panels import HEIGHT, Array, panels
from sorites.lenses.store import Entry
from sorites.optics.tracing.positions import AZIMUTHS, PERCENT

WIDTH, LEFT, GAP, TILE = 920, 16, 12, 120
INK, FAINT = (40, 40, 40), (190, 190, 190)
RAYS = {"on the axis": (40, 70, 200), "at 70 % of the field": (20, 140, 60)}


def sheet(entry: Entry) -> Pillow.Image:
    """Draw the layout above, kernels in the middle (fields across, azimuths down), MTF and Zernike coefficients below."""
    page = Pillow.new("RGB", (WIDTH, 716 + HEIGHT), (255, 255, 255))
    draw = ImageDraw.Draw(page)
    about = entry.about
    draw.text((LEFT, 10), entry.name, INK, ImageFont.load_default(20))
    draw.text((LEFT, 36), summary_line(about), INK, ImageFont.load_default(14))
    _layout(draw, entry, (LEFT, 64, WIDTH - LEFT, 284))
    _kernels(page, draw, entry.arrays["kernels"], 300)
    page.paste(panels(entry, WIDTH), (0, page.height - HEIGHT))
    return page


def summary_line(about: Mapping[str, Any]) -> str:
    """Return the lens in numbers as one line; the width of its picture in pixels is included if it is known."""
    size = f"EFL {about['efl_mm']:.2f} mm   F/{about['f_number']:.2f}   field {about['fov_deg']:.0f} deg"
    across = f"   {about['pixels']:,} pixels across" if about.get("pixels") else ""
    return f"{size}   pixel {about['pitch_um']:.2f} um{across}   quality {about['quality']:.3f} cycles/px"


def _layout(draw: ImageDraw.ImageDraw, entry: Entry, box: tuple[int, int, int, int]) -> None:
    """Draw surfaces and rays in the yz plane, with one scale for both axes."""
    stored = entry.about["layout"]
    rays = [[np.array(path) for path in some] for some in stored["rays"]]
    every = np.concatenate([path for some in rays for path in some])
    (z0, y0), (z1, y1) = every.min(0), every.max(0)
    scale = min((box[2] - box[0]) / max(z1 - z0, 1e-9), (box[3] - box[1]) / max(y1 - y0, 1e-9)) * 0.96

    def at(z: float, y: float) -> tuple[float, float]:
        return box[0] + (z - z0) * scale, (box[1] + box[3]) / 2 - (y - (y0 + y1) / 2) * scale

    for i, (some, (name, colour)) in enumerate(zip(rays, RAYS.items(), strict=True)):
        draw.text((box[2], 15 + 21 * i), f"rays {name}", colour, ImageFont.load_default(13), anchor="ra")
        for path in some:
            draw.line([at(z, y) for z, y in path], fill=colour)
    for i, (vertex, radius, glass) in enumerate(stored["surfaces"]):
        reach = max(abs(float(path[i, 1])) for some in rays for path in some) * 1.05 + 1e-9
        heights = np.linspace(max(-reach, y0), min(reach, y1), 41)
        sag = 0 * heights if radius == 0 else radius - np.sign(radius) * np.sqrt(np.maximum(radius**2 - heights**2, 0))
        shade = INK if glass or i + 1 == len(stored["surfaces"]) or stored["surfaces"][i - 1][2] else FAINT
        draw.line(
            [at(vertex + s, h) for s, h in zip(sag, heights, strict=True)], fill=shade, width=2 if i != stored["stop"] else 1
        )


def _kernels(page: Pillow.Image, draw: ImageDraw.ImageDraw, kernels: Array, top: int) -> None:
    """Draw the kernels with a square-root scale; each colour of each kernel is scaled to its brightest tap."""
    for column, field in enumerate(PERCENT):
        left = LEFT + 90 + column * (TILE + GAP)
        draw.text((left, top), f"{field} % of the field", INK, ImageFont.load_default(13))
        for row in range(3 if column else 1):
            taps = kernels[0 if column == 0 else 1 + 3 * (column - 1) + row]
            shown = np.rint(255 * np.sqrt(taps / taps.max((1, 2), keepdims=True))).astype(np.uint8)
            tile = Pillow.fromarray(np.ascontiguousarray(np.moveaxis(shown, 0, -1))).resize(
                (TILE, TILE), Pillow.Resampling.NEAREST
            )
            page.paste(tile, (left, top + 20 + row * (TILE + GAP)))
    for row, azimuth in enumerate(AZIMUTHS):
        draw.text((LEFT, top + 70 + row * (TILE + GAP)), f"{azimuth} degrees", INK, ImageFont.load_default(13))
