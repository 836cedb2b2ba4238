"""Blur a whole large image as a lens does: light from every position is blurred by the kernel of
that position.

Between the traced fields and azimuths a kernel is the linear mix of its neighbours, so the lens is
a sum of few kernels, each weighted over the image by a hat function. The image is cut into
tiles without overlap. Each tile is weighted by the hats that reach it and transformed once per hat,
multiplied by the kernels' cached transforms, summed and transformed back once. Light that leaves a
tile is added to its neighbours (overlap-add; weights before the blur as in Nagy and O'Leary 1998).
The mix is exact at every pixel, so the size of the tiles changes only the time. Beyond its border
the image is mirrored without repeating its edge.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sorites.core.errors import SoritesError
from sorites.optics.tracing.blur import FIELDS

Array = NDArray[np.floating[Any]]
Image = NDArray[np.float32]
Spectrum = NDArray[np.complex64]
# The number of azimuths in a full turn that have a kernel: the traced 0, 45 and 90 degrees and
# their mirror images.
EIGHTHS = 8
# Images of up to ``SMALL`` pixels are cut into tiles of ``FINE`` px and keep the tiles'
# transforms; larger ones are cut into tiles of ``TILE`` px.
SMALL, TILE, FINE = 1 << 18, 256, 72


def kernel_at(kernels: Array, field: float, azimuth: float) -> Array:
    """Return the kernel (colour, y, x) at a fraction of the half field and an azimuth in degrees,
    mixed from the nearest traced ones.

    ``kernels`` are the thirteen kernels of a lens, in the order of ``POSITIONS``. The lens is
    symmetric, so an azimuth beyond 90 degrees is the mirror image of one below. Beyond the last
    traced field, the kernel of that field is used.
    """
    turn = math.radians(azimuth)
    folded = math.degrees(math.atan2(abs(math.sin(turn)), abs(math.cos(turn))))
    place = float(np.interp(field, FIELDS, range(len(FIELDS))))
    low = min(int(place), len(FIELDS) - 2)
    mixed = (low + 1 - place) * _at_azimuth(kernels, low, folded) + (place - low) * _at_azimuth(
        kernels, low + 1, folded
    )
    mixed = mixed[:, ::-1] if math.sin(turn) < 0 else mixed
    return np.asarray(mixed[:, :, ::-1] if math.cos(turn) < 0 else mixed)


def _at_azimuth(kernels: Array, at: int, azimuth: float) -> Array:
    """Return the kernel at the traced field number ``at`` and an azimuth of 0 to 90 degrees."""
    if at == 0:
        return np.asarray(kernels[0])
    place = azimuth / 45
    low = min(int(place), 1)
    first = 1 + 3 * (at - 1) + low
    return np.asarray((low + 1 - place) * kernels[first] + (place - low) * kernels[first + 1])


def weights(field: Image, eighth: Image) -> dict[int, Image]:
    """Return the weights of the thirty-three kernels at some positions, by kernel number; at each
    position they sum to one.

    ``field`` is in fractions of the half field, ``eighth`` is the azimuth in eighths of a turn.
    Kernel 0 is the one on the axis; then come eight azimuths per field. Kernels without any weight
    are left out.
    """
    ring = np.interp(field, FIELDS, range(len(FIELDS))).astype(np.float32)
    cells = np.flatnonzero(np.bincount(eighth.astype(np.int64).ravel())).tolist()
    hats = {k: _hat(eighth, k) for k in sorted({k % EIGHTHS for cell in cells for k in (cell, cell + 1)})}
    found: dict[int, Image] = {}
    for r in range(int(ring.min()), min(int(ring.max()) + 1, len(FIELDS) - 1) + 1):
        near = np.maximum(0, 1 - np.abs(ring - r))
        if near.any():
            found |= {1 + EIGHTHS * (r - 1) + k: near * hat for k, hat in hats.items()} if r else {0: near}
    return {index: share for index, share in found.items() if share.any()}


def _hat(eighth: Image, k: int) -> Image:
    """Return the hat function of azimuth ``k``: 1 there, falling to 0 at its neighbours, around the
    full turn.
    """
    away = np.abs(eighth - k)
    return np.asarray(np.maximum(0, 1 - np.minimum(away, EIGHTHS - away)))


@dataclass(frozen=True)
class Tiling:
    """The tiles of all images of one size: their edges, including the mirrored margin, and the
    size of their transforms.

    The number of tiles along each side is even (except for a single pixel), so that the axis falls
    on an edge between tiles and few kernels reach each tile.
    """

    height: int
    width: int
    reach: int
    """Distance in pixels from a kernel's middle to its rim."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    size: tuple[int, int]


def tiling(height: int, width: int, side: int) -> Tiling:
    """Return the tiling for kernels of ``side`` px; the reach is rounded up to fives so that many
    lenses share a tiling.
    """
    reach = 5 * math.ceil((side // 2) / 5)
    tile = FINE if height * width <= SMALL else TILE
    rows, columns = (_edges(length, reach, tile) for length in (height, width))
    down, across = (max(np.diff(edges)) + 2 * reach for edges in (rows, columns))
    size = fft.next_fast_len(int(down)), fft.next_fast_len(int(across), real=True)
    return Tiling(height, width, reach, rows, columns, size)


def _edges(length: int, reach: int, tile: int) -> tuple[int, ...]:
    """Return the tiles' edges along one side, from ``-reach`` to ``length + reach``."""
    many = 2 * math.ceil((length + 2 * reach) / 2 / tile)
    return tuple(int(edge) for edge in np.unique(np.rint(np.linspace(-reach, length + reach, many + 1))))


def transfer(kernels: Array, tiles: Tiling) -> Spectrum:
    """Return the transforms of a lens's thirty-three kernels (33, colour, row, column), for all
    images with this tiling.
    """
    spread = [45.0 * k for k in range(EIGHTHS)]
    every = [kernels[0], *(kernel_at(kernels, field, azimuth) for field in FIELDS[1:] for azimuth in spread)]
    margin = tiles.reach - kernels.shape[-1] // 2
    grid = np.pad(np.asarray(every, np.float32), ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    return np.asarray(fft.rfft2(grid, tiles.size))


class TiledImage:
    """An image (H x W x 3, float32 or 8 bits) on the sensor of a lens, cut into tiles.

    Its middle is on the axis and its corners are at ``corner`` of the half field. Any lens whose
    kernels have this ``side`` can blur it.
    """

    def __init__(self, image: NDArray[np.generic], side: int, corner: float = 1.0) -> None:
        if image.ndim != 3 or image.shape[2] != 3 or not image.size or side % 2 == 0:
            raise SoritesError(
                f"field blur: wanted an image of H x W x 3 and odd kernels, got {image.shape} and {side} px"
            )
        if not 0 < corner <= 1:
            raise SoritesError(
                f"field blur: wanted a corner above 0 and up to 1 of the half field, got {corner}"
            )
        self.image, self.corner = image, corner
        self.tiling = tiling(image.shape[0], image.shape[1], side)
        self._kept: dict[tuple[int, int], Mapping[int, Spectrum]] = {}

    def through(self, taps: Spectrum) -> Iterator[tuple[int, Image]]:
        """Yield the blurred image from top to bottom, as strips with their first rows; ``taps``
        come from ``transfer``.
        """
        tiles, done = self.tiling, 0
        carry = np.zeros((3, 2 * tiles.reach, tiles.width + 4 * tiles.reach), np.float32)
        for row, (top, bottom) in enumerate(itertools.pairwise(tiles.rows)):
            high = bottom - top
            strip = np.concatenate([carry, np.zeros((3, high, carry.shape[2]), np.float32)], axis=1)
            for column, (left, right) in enumerate(itertools.pairwise(tiles.columns)):
                place = slice(left + tiles.reach, right + 3 * tiles.reach)
                strip[:, :, place] += self._tile(row, column, taps)[
                    :, : strip.shape[1], : place.stop - place.start
                ]
            carry = strip[:, high:]
            ready = strip[
                :, max(0, done - (top - tiles.reach)) : high, 2 * tiles.reach : 2 * tiles.reach + tiles.width
            ]
            if ready.size:
                yield done, np.ascontiguousarray(np.moveaxis(np.clip(ready, 0, 1), 0, -1))
                done += ready.shape[1]

    def _tile(self, row: int, column: int, taps: Spectrum) -> Image:
        """Return a tile's blurred light (colour, row, column); it starts ``reach`` above and left
        of the tile.
        """
        total = np.zeros(taps.shape[1:], np.complex64)
        for index, spectrum in self._spectra(row, column).items():
            total += taps[index] * spectrum
        return np.asarray(fft.irfft(fft.ifft(total, axis=-2, overwrite_x=True), self.tiling.size[1]))

    def _spectra(self, row: int, column: int) -> Mapping[int, Spectrum]:
        """Return a tile's transforms by kernel number, kept for next time if the image is small."""
        if self.tiling.height * self.tiling.width > SMALL:
            return self._transformed(row, column)
        if (row, column) not in self._kept:
            self._kept[row, column] = self._transformed(row, column)
        return self._kept[row, column]

    def _transformed(self, row: int, column: int) -> dict[int, Spectrum]:
        """Return the transforms of a tile weighted for each kernel that reaches it, by kernel number."""
        tiles = self.tiling
        down, right = np.arange(*tiles.rows[row : row + 2]), np.arange(*tiles.columns[column : column + 2])
        part = _taken(_taken(self.image, _mirrored(down, tiles.height), 0), _mirrored(right, tiles.width), 1)
        light = np.array(np.moveaxis(part, -1, 0), np.float32, order="C")
        light *= np.float32(1 / 255 if part.dtype == np.uint8 else 1)
        y, x = (down + 0.5 - tiles.height / 2)[:, None], (right + 0.5 - tiles.width / 2)[None]
        field = (2 * self.corner / math.hypot(tiles.height, tiles.width)) * np.hypot(y, x)
        eighth = (np.arctan2(y, x) * (EIGHTHS / 2 / math.pi)) % EIGHTHS
        shares = weights(field.astype(np.float32), eighth.astype(np.float32))
        weighted = np.zeros((len(shares), 3, *tiles.size), np.float32)
        for plane, share in zip(weighted, shares.values(), strict=True):
            np.multiply(light, share, out=plane[:, : len(down), : len(right)])
        return dict(zip(shares, fft.rfft2(weighted), strict=True))


def _taken(image: NDArray[np.generic], places: NDArray[np.int64], axis: int) -> NDArray[np.generic]:
    """Return the pixels at some places along an axis, without a copy if the places are consecutive
    and rising.
    """
    first, last = int(places.min()), int(places.max())
    near = image[first : last + 1] if axis == 0 else image[:, first : last + 1]
    return near if (np.diff(places) == 1).all() else np.take(near, places - first, axis)


def _mirrored(places: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return the index of the pixel at each place along a side, with the image mirrored beyond
    its ends as often as needed.
    """
    if length == 1:
        return np.zeros_like(places)
    turned = np.abs(places) % (2 * length - 2)
    return np.asarray(np.minimum(turned, 2 * length - 2 - turned))


def field_blur(image: Image, kernels: Array, corner: float = 1.0) -> Image:
    """Return ``image`` (H x W x 3) as seen through the lens, with its corners at ``corner`` of the
    half field.
    """
    tiled = TiledImage(image, kernels.shape[-1], corner)
    blurred = np.empty(image.shape, np.float32)
    for top, strip in tiled.through(transfer(kernels, tiled.tiling)):
        blurred[top : top + len(strip)] = strip
    return blurred
