"""A whole large picture through a lens: light from every place is blurred by the kernel of that place.

Between the traced fields and azimuths a kernel is the linear mix of its neighbours, so the lens is a sum of few kernels, each
weighted over the picture by a hat: the picture is cut into tiles without overlap, each tile weighted by the hats that reach it
and transformed once for each, multiplied by the kernels' cached transforms, summed and transformed back once. What a tile sends
beyond its rim is added to its neighbours (overlap-add; weights before the blur as in Nagy and O'Leary 1998). The mix is exact at
every pixel: the tiles' size changes the time alone. Beyond its border the picture is mirrored without repeating its edge.
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

from sorites.errors import SoritesError
from sorites.optics.tracing.positions import FIELDS

Array = NDArray[np.floating[Any]]
Image = NDArray[np.float32]
Spectrum = NDArray[np.complex64]
EIGHTHS = 8
"""Azimuths of the full turn with a kernel of their own: the traced 0, 45 and 90 degrees and their mirror images."""
SMALL, TILE, FINE = 1 << 18, 256, 72
"""Pictures up to so many pixels are cut finer and keep their tiles' transforms; pixels of a tile's side, and of a fine one's."""


def kernel_at(kernels: Array, field: float, azimuth: float) -> Array:
    """The kernel (colour, y, x) at a part of the half field and an azimuth in degrees, mixed from the nearest traced ones.

    ``kernels`` are a lens's thirteen, in the order of ``POSITIONS``. The lens is symmetric, so an azimuth beyond 90 degrees is a
    mirrored one within; beyond the last field, that field goes on.
    """
    turn = math.radians(azimuth)
    folded = math.degrees(math.atan2(abs(math.sin(turn)), abs(math.cos(turn))))
    place = float(np.interp(field, FIELDS, range(len(FIELDS))))
    low = min(int(place), len(FIELDS) - 2)
    mixed = (low + 1 - place) * _turned(kernels, low, folded) + (place - low) * _turned(kernels, low + 1, folded)
    mixed = mixed[:, ::-1] if math.sin(turn) < 0 else mixed
    return np.asarray(mixed[:, :, ::-1] if math.cos(turn) < 0 else mixed)


def _turned(kernels: Array, at: int, azimuth: float) -> Array:
    if at == 0:
        return np.asarray(kernels[0])
    place = azimuth / 45
    low = min(int(place), 1)
    first = 1 + 3 * (at - 1) + low
    return np.asarray((low + 1 - place) * kernels[first] + (place - low) * kernels[first + 1])


def weights(field: Image, eighth: Image) -> dict[int, Image]:
    """By which of the thirty-three kernels light from some places is blurred, and with what shares; shares sum to one.

    ``field``: parts of the half field, ``eighth``: azimuths in eighths of a turn. Kernel 0 stands on the axis, then come eight
    azimuths of each field. Kernels without a share are left out.
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
    """One at an azimuth, none from its neighbours on, around the full turn."""
    away = np.abs(eighth - k)
    return np.asarray(np.maximum(0, 1 - np.minimum(away, EIGHTHS - away)))


@dataclass(frozen=True)
class Cut:
    """How a picture of one size is cut: the tiles' edges, mirrored margin included, and the size of their transforms.

    Tiles are even in number along both sides, but for a lone pixel, so that the axis falls on an edge and few kernels reach one.
    """

    height: int
    width: int
    reach: int
    """Pixels from a kernel's middle to its rim."""
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    size: tuple[int, int]


def cut(height: int, width: int, side: int) -> Cut:
    """For kernels of ``side`` px, with a reach rounded up to fives so that many lenses share it."""
    reach = 5 * math.ceil((side // 2) / 5)
    tile = FINE if height * width <= SMALL else TILE
    rows, columns = (_edges(length, reach, tile) for length in (height, width))
    down, across = (max(np.diff(edges)) + 2 * reach for edges in (rows, columns))
    size = fft.next_fast_len(int(down)), fft.next_fast_len(int(across), real=True)
    return Cut(height, width, reach, rows, columns, size)


def _edges(length: int, reach: int, tile: int) -> tuple[int, ...]:
    many = 2 * math.ceil((length + 2 * reach) / 2 / tile)
    return tuple(int(edge) for edge in np.unique(np.rint(np.linspace(-reach, length + reach, many + 1))))


def transfer(kernels: Array, how: Cut) -> Spectrum:
    """The transforms of a lens's thirty-three kernels (33, colour, row, column), for all pictures that are cut alike."""
    spread = [45.0 * k for k in range(EIGHTHS)]
    every = [kernels[0], *(kernel_at(kernels, field, azimuth) for field in FIELDS[1:] for azimuth in spread)]
    margin = how.reach - kernels.shape[-1] // 2
    grid = np.pad(np.asarray(every, np.float32), ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    return np.asarray(fft.rfft2(grid, how.size))


class Scene:
    """A picture (H x W x 3, float32 or 8 bits) on the sensor of a lens, its middle on the axis and its corners at ``corner`` of
    the half field, ready to be seen through any lens whose kernels are of a size."""

    def __init__(self, picture: NDArray[np.generic], side: int, corner: float = 1.0) -> None:
        if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size or side % 2 == 0:
            raise SoritesError(f"field blur: wanted a picture of H x W x 3 and odd kernels, got {picture.shape} and {side} px")
        if not 0 < corner <= 1:
            raise SoritesError(f"field blur: wanted a corner above 0 and up to 1 of the half field, got {corner}")
        self.picture, self.corner = picture, corner
        self.cut = cut(picture.shape[0], picture.shape[1], side)
        self._kept: dict[tuple[int, int], Mapping[int, Spectrum]] = {}

    def through(self, taps: Spectrum) -> Iterator[tuple[int, Image]]:
        """The blurred picture from top to bottom, as strips with the row where each begins; ``taps`` from ``transfer``."""
        how, done = self.cut, 0
        carry = np.zeros((3, 2 * how.reach, how.width + 4 * how.reach), np.float32)
        for row, (top, bottom) in enumerate(itertools.pairwise(how.rows)):
            high = bottom - top
            strip = np.concatenate([carry, np.zeros((3, high, carry.shape[2]), np.float32)], axis=1)
            for column, (left, right) in enumerate(itertools.pairwise(how.columns)):
                place = slice(left + how.reach, right + 3 * how.reach)
                strip[:, :, place] += self._tile(row, column, taps)[:, : strip.shape[1], : place.stop - place.start]
            carry = strip[:, high:]
            ready = strip[:, max(0, done - (top - how.reach)) : high, 2 * how.reach : 2 * how.reach + how.width]
            if ready.size:
                yield done, np.ascontiguousarray(np.moveaxis(np.clip(ready, 0, 1), 0, -1))
                done += ready.shape[1]

    def _tile(self, row: int, column: int, taps: Spectrum) -> Image:
        """A tile's light, (colour, row, column), from ``reach`` above and left of the tile."""
        total = np.zeros(taps.shape[1:], np.complex64)
        for index, spectrum in self._spectra(row, column).items():
            total += taps[index] * spectrum
        return np.asarray(fft.irfft(fft.ifft(total, axis=-2, overwrite_x=True), self.cut.size[1]))

    def _spectra(self, row: int, column: int) -> Mapping[int, Spectrum]:
        if self.cut.height * self.cut.width > SMALL:
            return self._transformed(row, column)
        if (row, column) not in self._kept:
            self._kept[row, column] = self._transformed(row, column)
        return self._kept[row, column]

    def _transformed(self, row: int, column: int) -> dict[int, Spectrum]:
        how = self.cut
        down, right = np.arange(*how.rows[row : row + 2]), np.arange(*how.columns[column : column + 2])
        part = _taken(_taken(self.picture, _mirrored(down, how.height), 0), _mirrored(right, how.width), 1)
        light = np.array(np.moveaxis(part, -1, 0), np.float32, order="C")
        light *= np.float32(1 / 255 if part.dtype == np.uint8 else 1)
        y, x = (down + 0.5 - how.height / 2)[:, None], (right + 0.5 - how.width / 2)[None]
        field = (2 * self.corner / math.hypot(how.height, how.width)) * np.hypot(y, x)
        eighth = (np.arctan2(y, x) * (EIGHTHS / 2 / math.pi)) % EIGHTHS
        shares = weights(field.astype(np.float32), eighth.astype(np.float32))
        weighted = np.zeros((len(shares), 3, *how.size), np.float32)
        for held, share in zip(weighted, shares.values(), strict=True):
            np.multiply(light, share, out=held[:, : len(down), : len(right)])
        return dict(zip(shares, fft.rfft2(weighted), strict=True))


def _taken(picture: NDArray[np.generic], places: NDArray[np.int64], axis: int) -> NDArray[np.generic]:
    """The pixels at some places along a side, without a copy where these are neighbours in rising order."""
    first, last = int(places.min()), int(places.max())
    near = picture[first : last + 1] if axis == 0 else picture[:, first : last + 1]
    return near if (np.diff(places) == 1).all() else np.take(near, places - first, axis)


def _mirrored(places: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Which pixel stands at each place along a side, the picture mirrored beyond it as often as needed."""
    if length == 1:
        return np.zeros_like(places)
    turned = np.abs(places) % (2 * length - 2)
    return np.asarray(np.minimum(turned, 2 * length - 2 - turned))


def field_blur(image: Image, kernels: Array, corner: float = 1.0) -> Image:
    """``image`` (H x W x 3) as the lens shows it, its middle on the axis and its corners at ``corner`` of the half field."""
    scene = Scene(image, kernels.shape[-1], corner)
    made = np.empty(image.shape, np.float32)
    for top, strip in scene.through(transfer(kernels, scene.cut)):
        made[top : top + len(strip)] = strip
    return made
