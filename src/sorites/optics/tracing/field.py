"""Spatially varying blur: blur a whole image like a lens, with the kernel of each position.

Between the traced fields and azimuths a kernel is the linear mix of its neighbours, so the lens is a sum of a
few kernels, each weighted over the image by a hat function. The image is cut into tiles without overlap; each
tile is weighted by the hats that reach it, transformed once per hat, multiplied by the kernels' cached
transforms, summed and transformed back once (overlap-add, with weights applied before the blur as in Nagy and
O'Leary 1998). The result is exact at every pixel, so the tile size affects only the time. Beyond its border
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
# Azimuths per full turn that have a kernel: the traced 0, 45 and 90 degrees and their mirror images.
EIGHTHS = 8
# Images up to ``SMALL_PIXELS`` pixels use tiles of ``SMALL_TILE_PX`` px and cache their transforms; larger
# images use tiles of ``TILE_PX`` px.
SMALL_PIXELS, TILE_PX, SMALL_TILE_PX = 1 << 18, 256, 72


def kernel_at(kernels: Array, field: float, azimuth: float) -> Array:
    """Interpolate the kernel (colour, y, x) at a position of the image.

    Args:
        kernels: The thirteen kernels of a lens, in the order of ``POSITIONS``.
        field: Fraction of the half field; beyond the last traced field, its kernel is used.
        azimuth: Degrees. The lens is symmetric, so azimuths beyond 90 degrees are mirror images.
    """
    turn = math.radians(azimuth)
    folded = math.degrees(math.atan2(abs(math.sin(turn)), abs(math.cos(turn))))
    position = float(np.interp(field, FIELDS, range(len(FIELDS))))
    low = min(int(position), len(FIELDS) - 2)
    mixed = (low + 1 - position) * _at_azimuth(kernels, low, folded) + (position - low) * _at_azimuth(
        kernels, low + 1, folded
    )
    mixed = mixed[:, ::-1] if math.sin(turn) < 0 else mixed
    return np.asarray(mixed[:, :, ::-1] if math.cos(turn) < 0 else mixed)


def _at_azimuth(kernels: Array, at: int, azimuth: float) -> Array:
    """Return the kernel at traced field number ``at`` and an azimuth of 0 to 90 degrees."""
    if at == 0:
        return np.asarray(kernels[0])
    position = azimuth / 45
    low = min(int(position), 1)
    first = 1 + 3 * (at - 1) + low
    return np.asarray((low + 1 - position) * kernels[first] + (position - low) * kernels[first + 1])


def weights(field: Image, eighth: Image) -> dict[int, Image]:
    """Return the weights of the 33 kernels by kernel number, without kernels that have no weight.

    Kernel 0 is on the axis, followed by eight azimuths per field. The weights of a position sum to 1.

    Args:
        field: Fractions of the half field.
        eighth: Azimuths in eighths of a turn.
    """
    ring = np.interp(field, FIELDS, range(len(FIELDS))).astype(np.float32)
    cells = np.flatnonzero(np.bincount(eighth.astype(np.int64).ravel())).tolist()
    hats = {k: _hat(eighth, k) for k in sorted({k % EIGHTHS for cell in cells for k in (cell, cell + 1)})}
    by_kernel: dict[int, Image] = {}
    for r in range(int(ring.min()), min(int(ring.max()) + 1, len(FIELDS) - 1) + 1):
        near = np.maximum(0, 1 - np.abs(ring - r))
        if near.any():
            by_kernel |= (
                {1 + EIGHTHS * (r - 1) + k: near * hat for k, hat in hats.items()} if r else {0: near}
            )
    return {index: share for index, share in by_kernel.items() if share.any()}


def _hat(eighth: Image, k: int) -> Image:
    """Return the periodic hat function of azimuth ``k``: 1 there, 0 at its neighbours."""
    away = np.abs(eighth - k)
    return np.asarray(np.maximum(0, 1 - np.minimum(away, EIGHTHS - away)))


@dataclass(frozen=True)
class Tiling:
    """The tile edges of all images of one size, including the mirrored margin, and the FFT size.

    The number of tiles per side is even (except for a single pixel), so that the axis falls on an edge
    between tiles and few kernels reach each tile.
    """

    height: int
    width: int
    reach: int
    """Pixels from a kernel's middle to its edge."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    size: tuple[int, int]


def tiling(height: int, width: int, side: int) -> Tiling:
    """Return the tiling for kernels of ``side`` px; the reach is rounded up to fives so that lenses share
    tilings.
    """
    reach = 5 * math.ceil((side // 2) / 5)
    tile = SMALL_TILE_PX if height * width <= SMALL_PIXELS else TILE_PX
    rows, columns = (_edges(length, reach, tile) for length in (height, width))
    down, across = (max(np.diff(edges)) + 2 * reach for edges in (rows, columns))
    size = fft.next_fast_len(int(down)), fft.next_fast_len(int(across), real=True)
    return Tiling(height, width, reach, rows, columns, size)


def _edges(length: int, reach: int, tile: int) -> tuple[int, ...]:
    """Return the tile edges along one side, from ``-reach`` to ``length + reach``."""
    many = 2 * math.ceil((length + 2 * reach) / 2 / tile)
    return tuple(int(edge) for edge in np.unique(np.rint(np.linspace(-reach, length + reach, many + 1))))


def transfer(kernels: Array, tiles: Tiling) -> Spectrum:
    """Return the transforms of a lens's 33 kernels (33, colour, row, column) for images with this tiling."""
    spread = [45.0 * k for k in range(EIGHTHS)]
    every = [kernels[0], *(kernel_at(kernels, field, azimuth) for field in FIELDS[1:] for azimuth in spread)]
    margin = tiles.reach - kernels.shape[-1] // 2
    grid = np.pad(np.asarray(every, np.float32), ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    return np.asarray(fft.rfft2(grid, tiles.size))


class TiledImage:
    """An image on the sensor of a lens, cut into tiles; any lens whose kernels have this ``side`` can blur
    it.

    Args:
        image: H x W x 3, float32 or 8 bits; its middle is on the axis.
        side: Side of the kernels in px.
        corner: Position of the image corners as a fraction of the half field.
    """

    def __init__(self, image: NDArray[np.generic], side: int, corner: float = 1.0) -> None:
        if image.ndim != 3 or image.shape[2] != 3 or not image.size or side % 2 == 0:
            raise SoritesError(
                f"field blur: expected an image of H x W x 3 and odd kernels, got {image.shape} and {side} px"
            )
        if not 0 < corner <= 1:
            raise SoritesError(
                f"field blur: expected a corner above 0 and up to 1 of the half field, got {corner}"
            )
        self.image, self.corner = image, corner
        self.tiling = tiling(image.shape[0], image.shape[1], side)
        self._cache: dict[tuple[int, int], Mapping[int, Spectrum]] = {}

    def through(self, taps: Spectrum) -> Iterator[tuple[int, Image]]:
        """Yield (first row, strip) of the blurred image from top to bottom; ``taps`` come from
        ``transfer``.
        """
        tiles, done = self.tiling, 0
        carry = np.zeros((3, 2 * tiles.reach, tiles.width + 4 * tiles.reach), np.float32)
        for row, (top, bottom) in enumerate(itertools.pairwise(tiles.rows)):
            high = bottom - top
            strip = np.concatenate([carry, np.zeros((3, high, carry.shape[2]), np.float32)], axis=1)
            for column, (left, right) in enumerate(itertools.pairwise(tiles.columns)):
                columns = slice(left + tiles.reach, right + 3 * tiles.reach)
                strip[:, :, columns] += self._tile(row, column, taps)[
                    :, : strip.shape[1], : columns.stop - columns.start
                ]
            carry = strip[:, high:]
            ready = strip[
                :, max(0, done - (top - tiles.reach)) : high, 2 * tiles.reach : 2 * tiles.reach + tiles.width
            ]
            if ready.size:
                yield done, np.ascontiguousarray(np.moveaxis(np.clip(ready, 0, 1), 0, -1))
                done += ready.shape[1]

    def _tile(self, row: int, column: int, taps: Spectrum) -> Image:
        """Return the blurred light of a tile (colour, row, column), starting ``reach`` above and left of
        it.
        """
        total = np.zeros(taps.shape[1:], np.complex64)
        for index, spectrum in self._spectra(row, column).items():
            total += taps[index] * spectrum
        return np.asarray(fft.irfft(fft.ifft(total, axis=-2, overwrite_x=True), self.tiling.size[1]))

    def _spectra(self, row: int, column: int) -> Mapping[int, Spectrum]:
        """Return the transforms of a tile by kernel number, cached for small images."""
        if self.tiling.height * self.tiling.width > SMALL_PIXELS:
            return self._transform(row, column)
        if (row, column) not in self._cache:
            self._cache[row, column] = self._transform(row, column)
        return self._cache[row, column]

    def _transform(self, row: int, column: int) -> dict[int, Spectrum]:
        """Return the transforms of a tile, weighted for each kernel that reaches it, by kernel number."""
        tiles = self.tiling
        down, right = np.arange(*tiles.rows[row : row + 2]), np.arange(*tiles.columns[column : column + 2])
        part = _take(_take(self.image, _mirror(down, tiles.height), 0), _mirror(right, tiles.width), 1)
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


def _take(image: NDArray[np.generic], indices: NDArray[np.int64], axis: int) -> NDArray[np.generic]:
    """Return the pixels at indices along an axis, without a copy if the indices are consecutive."""
    first, last = int(indices.min()), int(indices.max())
    near = image[first : last + 1] if axis == 0 else image[:, first : last + 1]
    return near if (np.diff(indices) == 1).all() else np.take(near, indices - first, axis)


def _mirror(positions: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Map positions along a side to pixel indices, mirroring the image beyond its ends as often as needed."""
    if length == 1:
        return np.zeros_like(positions)
    folded = np.abs(positions) % (2 * length - 2)
    return np.asarray(np.minimum(folded, 2 * length - 2 - folded))


def field_blur(image: Image, kernels: Array, corner: float = 1.0) -> Image:
    """Return ``image`` (H x W x 3) seen through the lens, with its corners at ``corner`` of the half
    field.
    """
    tiled = TiledImage(image, kernels.shape[-1], corner)
    blurred = np.empty(image.shape, np.float32)
    for top, strip in tiled.through(transfer(kernels, tiled.tiling)):
        blurred[top : top + len(strip)] = strip
    return blurred
