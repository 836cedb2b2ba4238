"""Spatially varying blur: blur a whole image like a lens, with the kernel of each position.

Between the traced fields and the azimuths of ``around`` a kernel is the linear mix of its neighbours, so the
lens is a sum of kernels, each weighted over the image by a hat function. The image is cut into tiles without
overlap; each tile is weighted by the hats that reach it, transformed once per hat, multiplied by the kernels'
cached transforms, summed and transformed back once (overlap-add, with weights applied before the blur as in
Nagy and O'Leary 1998). The result is exact at every pixel, so the tile size affects only the time. Beyond its
border the image is mirrored without repeating its edge.
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
from sorites.optics.tracing.around import SECTORS, STEP_DEG
from sorites.optics.tracing.blur import FIELDS

Array = NDArray[np.floating[Any]]
Image = NDArray[np.float32]
Spectrum = NDArray[np.complex64]
# Images up to ``SMALL_PIXELS`` pixels use tiles of ``SMALL_TILE_PX`` px and cache their transforms; larger
# images use tiles of ``TILE_PX`` px.
SMALL_PIXELS, TILE_PX, SMALL_TILE_PX = 1 << 18, 256, 72


def kernel_at(kernels: Array, field: float, azimuth: float) -> Array:
    """Interpolate the kernel (colour, y, x) at a position of the image.

    Args:
        kernels: The kernels of a lens at all azimuths, from ``around``.
        field: Fraction of the half field; beyond the last traced field, its kernel is used.
        azimuth: Degrees.
    """
    ring, sector = (np.full((1, 1), value, np.float64) for value in (field, azimuth / STEP_DEG % SECTORS))
    shares = {index: float(share[0, 0]) for index, share in weights(ring, sector).items()}
    return np.asarray(sum(share * kernels[index] for index, share in shares.items()))


def weights(field: Array, sector: Array) -> dict[int, Array]:
    """Return the weights of the kernels by kernel number, without kernels that have no weight.

    Kernel 0 is on the axis, followed by ``SECTORS`` azimuths per field. The weights of a position sum to 1.

    Args:
        field: Fractions of the half field.
        sector: Azimuths as multiples of 1 / ``SECTORS`` of a turn.
    """
    ring = np.interp(field, FIELDS, range(len(FIELDS))).astype(field.dtype)
    cells = np.flatnonzero(np.bincount(sector.astype(np.int64).ravel())).tolist()
    hats = {k: _hat(sector, k) for k in sorted({k % SECTORS for cell in cells for k in (cell, cell + 1)})}
    by_kernel: dict[int, Array] = {}
    for r in range(int(ring.min()), min(int(ring.max()) + 1, len(FIELDS) - 1) + 1):
        near = np.maximum(0, 1 - np.abs(ring - r))
        if near.any():
            by_kernel |= (
                {1 + SECTORS * (r - 1) + k: near * hat for k, hat in hats.items()} if r else {0: near}
            )
    return {index: share for index, share in by_kernel.items() if share.any()}


def _hat(sector: Array, k: int) -> Array:
    """Return the periodic hat function of azimuth ``k``: 1 there, 0 at its neighbours."""
    away = np.abs(sector - k)
    return np.asarray(np.maximum(0, 1 - np.minimum(away, SECTORS - away)))


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

    @property
    def small(self) -> bool:
        """Whether the image is small enough for small tiles and cached transforms."""
        return self.height * self.width <= SMALL_PIXELS


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
    """Return the transforms (kernel, colour, row, column) of the kernels of ``around`` for images with this
    tiling.
    """
    margin = tiles.reach - kernels.shape[-1] // 2
    spectra = np.empty((*kernels.shape[:2], tiles.size[0], tiles.size[1] // 2 + 1), np.complex64)
    for kernel, spectrum in zip(kernels, spectra, strict=True):
        grid = np.pad(np.asarray(kernel, np.float32), ((0, 0), (margin, margin), (margin, margin)))
        spectrum[:] = fft.rfft2(grid, tiles.size)
    return spectra


class TiledImage:
    """An image on the sensor of a lens, cut into tiles; any lens whose kernels have this ``side`` can blur
    it.

    Args:
        image: H x W x 3, float32 or 8 bits; its middle is on the axis.
        side: Side of the kernels in px.
        corner: Position of the image corners as a fraction of the half field.
        places: Distances from the centre in half diagonals and the fractions of the half field there; by
            default fields are in proportion to distances.
    """

    def __init__(
        self,
        image: NDArray[np.generic],
        side: int,
        corner: float = 1.0,
        places: tuple[Array, Array] | None = None,
    ) -> None:
        if image.ndim != 3 or image.shape[2] != 3 or not image.size or side % 2 == 0:
            raise SoritesError(
                f"field blur: expected an image of H x W x 3 and odd kernels, got {image.shape} and {side} px"
            )
        if not 0 < corner <= 1:
            raise SoritesError(
                f"field blur: expected a corner above 0 and up to 1 of the half field, got {corner}"
            )
        self.image, self.corner, self.places = image, corner, places
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
        if not self.tiling.small:
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
        if self.places is None:
            field = (2 * self.corner / math.hypot(tiles.height, tiles.width)) * np.hypot(y, x)
        else:
            field = np.interp(2 / math.hypot(tiles.height, tiles.width) * np.hypot(y, x), *self.places)
        sector = (np.arctan2(y, x) * (SECTORS / 2 / math.pi)) % SECTORS
        shares = weights(field.astype(np.float32), sector.astype(np.float32))
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
    """Return ``image`` (H x W x 3) seen through the lens, with its corners at ``corner`` of the half field;
    ``kernels`` come from ``around``.
    """
    tiled = TiledImage(image, kernels.shape[-1], corner)
    blurred = np.empty(image.shape, np.float32)
    for top, strip in tiled.through(transfer(kernels, tiled.tiling)):
        blurred[top : top + len(strip)] = strip
    return blurred
