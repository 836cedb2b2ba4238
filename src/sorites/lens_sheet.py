"""A lens as one picture: its layout, its kernels over the field, its MTF curves and what its wavefront is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from PIL import ImageDraw, ImageFont

from sorites.lenses import Entry

WIDTH, LEFT, GAP, TILE = 920, 16, 12, 120
INK, FAINT = (40, 40, 40), (190, 190, 190)
FIELDS = ("0", "30", "50", "70", "90")
COLOURS = ((200, 40, 40), (20, 140, 60), (40, 70, 200))
"""Of the C, d and F lines."""
BLUES = ((10, 30, 90), (30, 80, 160), (60, 120, 200), (110, 160, 220), (160, 200, 240))
"""Fields, from the middle outward."""
TERMS = {
    4: "defocus",
    5: "astigmatism",
    6: "astigmatism 45",
    7: "coma x",
    8: "coma y",
    9: "spherical",
    10: "trefoil",
    11: "trefoil 30",
}
Array = NDArray[np.float32]


def sheet(entry: Entry) -> Pillow.Image:
    """Layout above, kernels in the middle (fields across, azimuths down), MTF and Zernike coefficients below."""
    page = Pillow.new("RGB", (WIDTH, 1000), (255, 255, 255))
    draw = ImageDraw.Draw(page)
    about = entry.about
    size = f"EFL {about['efl_mm']:.2f} mm   F/{about['f_number']:.2f}   field {about['fov_deg']:.0f} deg"
    told = f"{size}   pixel {about['pitch_um']:.2f} um   quality {about['quality']:.3f} cycles/px"
    draw.text((LEFT, 10), entry.name, INK, ImageFont.load_default(20))
    draw.text((LEFT, 36), told, INK, ImageFont.load_default(14))
    _layout(draw, entry, (LEFT, 64, WIDTH - LEFT, 284))
    _kernels(page, draw, entry.arrays["kernels"], 300)
    _curves(draw, entry.arrays["mtf"], (LEFT + 20, 740, 440, 960))
    _wavefront(draw, entry.arrays["zernike12"], (500, 740, WIDTH - LEFT, 960))
    return page


def _layout(draw: ImageDraw.ImageDraw, entry: Entry, box: tuple[int, int, int, int]) -> None:
    """Surfaces and rays in the yz plane, one scale for both axes."""
    held = entry.about["layout"]
    rays = [[np.array(path) for path in some] for some in held["rays"]]
    every = np.concatenate([path for some in rays for path in some])
    (z0, y0), (z1, y1) = every.min(0), every.max(0)
    scale = min((box[2] - box[0]) / max(z1 - z0, 1e-9), (box[3] - box[1]) / max(y1 - y0, 1e-9)) * 0.96

    def at(z: float, y: float) -> tuple[float, float]:
        return box[0] + (z - z0) * scale, (box[1] + box[3]) / 2 - (y - (y0 + y1) / 2) * scale

    for some, colour in zip(rays, (COLOURS[2], COLOURS[1]), strict=True):
        for path in some:
            draw.line([at(z, y) for z, y in path], fill=colour)
    for i, (vertex, radius, glass) in enumerate(held["surfaces"]):
        reach = max(abs(float(path[i, 1])) for some in rays for path in some) * 1.05 + 1e-9
        heights = np.linspace(max(-reach, y0), min(reach, y1), 41)
        sag = 0 * heights if radius == 0 else radius - np.sign(radius) * np.sqrt(np.maximum(radius**2 - heights**2, 0))
        shade = INK if glass or i + 1 == len(held["surfaces"]) or held["surfaces"][i - 1][2] else FAINT
        draw.line([at(vertex + s, h) for s, h in zip(sag, heights, strict=True)], fill=shade, width=2 if i != held["stop"] else 1)


def _kernels(page: Pillow.Image, draw: ImageDraw.ImageDraw, kernels: Array, top: int) -> None:
    """Square-rooted, each kernel to its own brightest tap."""
    for column, field in enumerate(FIELDS):
        left = LEFT + 90 + column * (TILE + GAP)
        draw.text((left, top), f"{field} % of the field", INK, ImageFont.load_default(13))
        for row in range(3 if column else 1):
            taps = kernels[0 if column == 0 else 1 + 3 * (column - 1) + row]
            shown = np.rint(255 * np.sqrt(taps / taps.max((1, 2), keepdims=True))).astype(np.uint8)
            tile = Pillow.fromarray(np.ascontiguousarray(np.moveaxis(shown, 0, -1))).resize(
                (TILE, TILE), Pillow.Resampling.NEAREST
            )
            page.paste(tile, (left, top + 20 + row * (TILE + GAP)))
    for row, azimuth in enumerate((0, 45, 90)):
        draw.text((LEFT, top + 70 + row * (TILE + GAP)), f"{azimuth} degrees", INK, ImageFont.load_default(13))


def _curves(draw: ImageDraw.ImageDraw, mtf: Array, box: tuple[int, int, int, int]) -> None:
    """The colours' mean at each field, contrast 0 to 1 over 0 to 500 cycles/mm."""
    left, top, right, bottom = box
    draw.rectangle(box, outline=FAINT)
    draw.text((left, top - 20), "MTF, 0 to 500 cycles/mm", INK, ImageFont.load_default(13))
    for i, curve in enumerate(mtf.mean(1)):
        x = np.linspace(left, right, len(curve))
        draw.line(list(zip(x.tolist(), (bottom - curve * (bottom - top)).tolist(), strict=True)), fill=BLUES[i], width=2)
        draw.text((right - 60, top + 6 + 16 * i), f"{FIELDS[i]} %", BLUES[i], ImageFont.load_default(13))


def _wavefront(draw: ImageDraw.ImageDraw, zernike: Array, box: tuple[int, int, int, int]) -> None:
    """Fringe coefficients of a twelve-term fit, the colours' mean: a bar a field, up to the largest."""
    left, top, right, bottom = box
    mean = zernike.mean(1)[:, [term - 1 for term in TERMS]]
    most = max(float(np.abs(mean).max()), 1e-9)
    draw.rectangle(box, outline=FAINT)
    draw.text((left, top - 20), f"Zernike coefficients, up to {most:.2f} waves", INK, ImageFont.load_default(13))
    middle, step = (top + bottom) / 2, (right - left) / len(TERMS)
    for t, name in enumerate(TERMS.values()):
        draw.text((left + t * step + 2, bottom + 4 + 13 * (t % 2)), name, INK, ImageFont.load_default(11))
        for i, value in enumerate(mean[:, t]):
            x = left + t * step + 4 + i * (step - 8) / 5
            tip = middle - float(value) / most * (bottom - top) / 2 * 0.95
            draw.rectangle((x, min(middle, tip), x + (step - 8) / 5 - 1, max(middle, tip)), fill=BLUES[i])
