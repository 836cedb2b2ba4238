"""The six distortions of LAION-C (Li et al., ICML 2025), which images on the web do not show.

Written from the definitions that its authors publish, with their five intensities as levels. Lengths are
those of images of 224 px and grow with the shorter side. Each is continuous: between the levels their
parameters are interpolated, and a lower severity than level 1 leads to the unchanged image. Where the
original pastes photographs (mosaic, stickers), textures with the spectrum of photographs take their place,
because no photographs are shipped: mosaic keeps the mean colour of each tile, as the original does by its
choice of photographs. The glitch shifts rows and colour channels as the original does through a package; it
is written from its description, not from its code, with draws per sample instead of one seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sorites.core import Box, ImageF32, to_uint8
from sorites.scenes.moved_boxes import boxes_behind
from sorites.scenes.point_maps import Size
from sorites.scenes.shapes import Shape, drawn_lines, drawn_shapes
from sorites.shifts.base import add_continuous_shift, clip

FAMILY = "laion_c"
# The shorter side to which the published lengths refer.
REFERENCE = 224
Array = NDArray[np.float32]


def _unit(size: Sequence[int]) -> float:
    """Return the number of pixels of a published pixel."""
    return min(size[:2]) / REFERENCE


def _texture(rng: np.random.Generator, size: Size) -> Array:
    """Return a texture with the spectrum of photographs (amplitude 1/f): H x W x 3, mean 0, spread 1."""
    rows, columns = (np.fft.fftfreq(side) for side in size)
    frequency = np.hypot(rows[:, None], columns[None])
    frequency[0, 0] = np.inf
    noise = np.fft.fft2(rng.normal(size=(*size, 3)), axes=(0, 1)) / frequency[..., None]
    made = np.real(np.fft.ifft2(noise, axes=(0, 1)))
    spread = float(made.std())
    return np.asarray(made / spread if spread > 0 else made, np.float32)


# Mosaic.

# The standard deviation of the texture of a tile, in units of the full range; about that of photographs.
CONTRAST = 0.18


def _tile_numbers(side: int, tile: float) -> NDArray[np.int64]:
    return np.floor(np.arange(side) / max(tile, 1.0) + 1e-9).astype(np.int64)


def _prepare_mosaic(image: ImageF32, rng: np.random.Generator) -> Array:
    return CONTRAST * _texture(rng, image.shape[:2])


@add_continuous_shift(
    _prepare_mosaic,
    family=FAMILY,
    unit="px of a tile (of 224)",
    levels=(4, 6, 8, 16, 28),
    limit=224,
    stage="isp",
)
def laion_mosaic(image: ImageF32, severity: float, texture: Array) -> ImageF32:
    """Replace square tiles of ``severity`` px by textures with the mean colour of each tile."""
    side = max(severity * _unit(image.shape), 1.0)
    less, part = int(side), np.float32(side - int(side))
    tiled = _tiled(image, texture, less)
    # Between whole sizes, the two neighbours are mixed.
    return clip(tiled + part * (_tiled(image, texture, less + 1) - tiled) if part else tiled)


def _tiled(image: ImageF32, texture: Array, tile: int) -> Array:
    """Return the mosaic with tiles of a whole number of pixels; a tile of one pixel is unchanged."""
    rows, columns = (_tile_numbers(side, tile) for side in image.shape[:2])
    number = rows[:, None] * (columns[-1] + 1) + columns
    counts = np.bincount(number.ravel()).astype(np.float32)

    def means(values: Array) -> Array:
        sums = [np.bincount(number.ravel(), values[..., c].ravel()) for c in range(3)]
        return np.asarray((np.stack(sums, axis=-1) / counts[:, None])[number], np.float32)

    return means(image) + texture - means(texture)


# Luminance checkerboard.

CHECK = 14
# The published ranges of the change, in 8-bit steps: the lower end by the upper end.
UPPER, LOWER = (0, 50, 100, 125, 150, 255), (0, 0, 50, 100, 125, 150)


def _prepare_checks(image: ImageF32, rng: np.random.Generator) -> tuple[Array, Array]:
    tile = CHECK * _unit(image.shape)
    rows, columns = (_tile_numbers(side, tile) for side in image.shape[:2])
    shares = rng.random((rows[-1] + 1, columns[-1] + 1)).astype(np.float32)[rows[:, None], columns]
    signs = np.where((rows[:, None] + columns) % 2, -1, 1).astype(np.float32)
    return shares[..., None], signs[..., None]


@add_continuous_shift(
    _prepare_checks,
    family=FAMILY,
    unit="8-bit steps",
    levels=UPPER[1:],
    limit=255,
    stage="sensor",
)
def laion_luminance_checkerboard(image: ImageF32, severity: float, drawn: tuple[Array, Array]) -> ImageF32:
    """Brighten and darken tiles of 14 px in turn by up to ``severity`` 8-bit steps.

    Each tile draws its change from the published range, such as 100 to 125.
    """
    shares, signs = drawn
    low = float(np.interp(severity, UPPER, LOWER))
    change = np.asarray(signs * (low + (severity - low) * shares) / 255, np.float32)
    return clip(image + change)


# Geometric shapes.

# The sides of shapes in px, from the first to before the second.
SHAPE_SIDES = (6, 16)
SHAPES = ("triangle", "square", "star", "circle")
MOST_SHAPES = 2000


def _draw_shapes(rng: np.random.Generator, size: Size) -> list[Shape]:
    numbers, unit = rng.random((MOST_SHAPES, 8)), _unit(size)
    low, high = SHAPE_SIDES
    return [
        Shape(
            SHAPES[int(4 * row[0])],
            row[1] * size[1],
            row[2] * size[0],
            max(1.0, unit * math.floor(low + (high - low) * row[3])),
            360 * row[4],
            (int(256 * row[5]), int(256 * row[6]), int(256 * row[7])),
        )
        for row in numbers
    ]


def _with_shapes(image: ImageF32, severity: float, shapes: Sequence[Shape]) -> ImageF32:
    """Paste the first ``severity`` shapes; the last one in part, as a mixture."""
    whole, part = int(severity), severity - int(severity)
    size = image.shape[:2]
    alpha, colours = drawn_shapes(shapes[:whole], size)
    made = image + (colours - image) * alpha[..., None]
    if part:
        alpha, colours = drawn_shapes(shapes[whole : whole + 1], size)
        made = made + np.float32(part) * (colours - made) * alpha[..., None]
    return clip(made)


def _prepare_shapes(image: ImageF32, rng: np.random.Generator) -> list[Shape]:
    return _draw_shapes(rng, image.shape[:2])


@add_continuous_shift(
    _prepare_shapes,
    family=FAMILY,
    unit="shapes",
    levels=(150, 300, 600, 800, 1000),
    limit=MOST_SHAPES,
    stage="scene",
)
def laion_geometric_shapes(image: ImageF32, severity: float, shapes: list[Shape]) -> ImageF32:
    """Paste ``severity`` triangles, squares, stars and circles of 6 to 15 px in random colours."""
    return _with_shapes(image, severity, shapes)


@laion_geometric_shapes.box_mover
def _behind_shapes(
    boxes: Sequence[Box], severity: float, rng: np.random.Generator, size: Size
) -> Sequence[Box]:
    return boxes_behind(boxes, drawn_shapes(_draw_shapes(rng, size)[: round(severity)], size)[0])


# Stickers.

STICKER = 16
MOST_STICKERS = 2400


@dataclass(frozen=True)
class _Stickers:
    """Where stickers are, in their order, and what they show."""

    side: int
    corners: NDArray[np.int64]
    looks: Array

    @classmethod
    def drawn(cls, rng: np.random.Generator, size: Size) -> _Stickers:
        """Draw places inside the image, a mean colour, and a part of a texture for each sticker."""
        side = max(1, min(round(STICKER * _unit(size)), *size))
        numbers = rng.random((MOST_STICKERS, 7))
        room = np.array(size) - side + 1
        corners = (numbers[:, :2] * room).astype(np.int64)
        texture = 1.5 * CONTRAST * _texture(rng, (256, 256))
        at = (numbers[:, 2:4] * (256 - side if side < 256 else 1)).astype(np.int64)
        cut = min(side, 256)
        parts = [texture[y : y + cut, x : x + cut] for y, x in at]
        if cut < side:
            index = np.arange(side) * cut // side
            parts = [part[index][:, index] for part in parts]
        return cls(side, corners, clip(numbers[:, None, None, 4:].astype(np.float32) + np.stack(parts)))

    def number(self, size: Size, severity: float) -> NDArray[np.int64]:
        """Return the sticker that each pixel shows, -1 for none."""
        shown = np.full(size, -1, np.int64)
        for k in range(math.ceil(severity)):
            y, x = self.corners[k]
            shown[y : y + self.side, x : x + self.side] = k
        return shown


def _prepare_stickers(image: ImageF32, rng: np.random.Generator) -> _Stickers:
    return _Stickers.drawn(rng, image.shape[:2])


@add_continuous_shift(
    _prepare_stickers,
    family=FAMILY,
    unit="stickers",
    levels=(100, 200, 400, 600, 1200),
    limit=MOST_STICKERS,
    stage="scene",
)
def laion_stickers(image: ImageF32, severity: float, stickers: _Stickers) -> ImageF32:
    """Paste ``severity`` square stickers of 16 px with textures at random places."""
    made = image.copy()
    for k in range(math.ceil(severity)):
        (y, x), side = stickers.corners[k], stickers.side
        place = made[y : y + side, x : x + side]
        place += np.float32(min(1.0, severity - k)) * (stickers.looks[k] - place)
    return clip(made)


@laion_stickers.box_mover
def _behind_stickers(
    boxes: Sequence[Box], severity: float, rng: np.random.Generator, size: Size
) -> Sequence[Box]:
    shown = _Stickers.drawn(rng, size).number(size, round(severity))
    return boxes_behind(boxes, (shown >= 0).astype(np.float32))


# Vertical lines.

# Published pairs: the spacing of the lines and their step, in px of 224.
SPACING = tuple(REFERENCE / lines for lines in (224, 178, 112, 84, 60))
STEPS = (1, 2, 4, 6, 8)
# How far a line is moved to the left where the image is black, in px of 224.
DEFLECTION = 40


def _nothing(image: ImageF32, rng: np.random.Generator) -> None:
    return None


@add_continuous_shift(
    _nothing, family=FAMILY, unit="px between lines (of 224)", levels=SPACING, limit=28, stage="isp"
)
def laion_vertical_lines(image: ImageF32, severity: float, _: None) -> ImageF32:
    """Draw the image as vertical lines on black, ``severity`` px apart, which dark parts deflect to the left.

    Below 1 px the lines stay as dense as pixels, and the deflection of 40 px falls to 0.
    """
    height, width = image.shape[:2]
    unit = _unit(image.shape)
    spacing = max(1.0, severity * unit)
    step = max(1, round(float(np.interp(severity, SPACING, STEPS)) * unit))
    xs = np.arange(0, width, spacing)
    columns = np.minimum(xs.astype(np.int64), width - 1)
    means = np.add.reduceat(image, np.arange(0, height, step), axis=0)
    counts = np.diff([*range(0, height, step), height])[:, None, None].astype(np.float32)
    ends = np.minimum(np.maximum((xs + spacing).astype(np.int64), columns + 1), width)
    sums = np.cumsum(np.pad(means / counts, ((0, 0), (1, 0), (0, 0))), axis=1, dtype=np.float64)
    cells = (sums[:, ends] - sums[:, columns]) / (ends - columns)[None, :, None]
    luma = cells @ np.array([0.299, 0.587, 0.114])
    places = xs - DEFLECTION * min(1.0, severity) * unit * (1 - luma)
    colours = to_uint8(np.clip(cells, 0, 1).astype(np.float32))
    line_width = max(1, round(min(spacing, unit)))
    return drawn_lines(xs, places, step, colours, (height, width), line_width)


# Glitch.

GLITCHES = (2.0, 4.0, 5.0, 8.0, 10.0)


def _prepare_glitch(image: ImageF32, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return start, height and offset of each strip in rows 1 to 20, and channel and shift in row 0."""
    return rng.random((2 * int(GLITCHES[-1]) + 1, 3))


@add_continuous_shift(
    _prepare_glitch, family=FAMILY, unit="glitch amount", levels=GLITCHES, limit=GLITCHES[-1], stage="codec"
)
def laion_glitch(image: ImageF32, severity: float, drawn: NDArray[np.float64]) -> ImageF32:
    """Move 2 ``severity`` strips sideways by up to ``severity``² percent of the width, with wrap-around.

    One colour channel is shifted by up to 2 ``severity`` px, and every other line is black (below level 1 in
    part).
    """
    height, width = image.shape[:2]
    made, most = image.copy(), severity**2 / 100 * width
    for k, (start, tall, offset) in enumerate(drawn[1 : 1 + math.ceil(2 * severity)]):
        top = int(start * height)
        strip = slice(top, min(height, top + 1 + int(tall * height / 4)))
        share = min(1.0, 2 * severity - k)
        made[strip] = np.roll(made[strip], round((2 * offset - 1) * most * share), axis=1)
    channel, across, down = drawn[0]
    limit = 2 * severity * _unit(image.shape)
    moved = [round((2 * share - 1) * limit) for share in (down, across)]
    made[..., int(3 * channel)] = np.roll(made[..., int(3 * channel)], moved, axis=(0, 1))
    made[::2] *= np.float32(1 - min(1.0, severity / GLITCHES[0]))
    return clip(made)


# Both move parts of objects in ways that no box follows.
laion_vertical_lines.moves_objects = True
laion_glitch.moves_objects = True
