"""Things that cover a share of an image: blobs of a drawn shape, and cut-outs from PNG files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.scenes.fields import Field
from sorites.scenes.point_maps import Size

# The outline of a blob has this many waves.
HARMONICS = 5


@dataclass(frozen=True)
class Blob:
    """A shape whose outline is seen whole from its centre.

    Attributes:
        centre: Row and column, relative to the size of the image.
        radius: Relative to other blobs.
        waves: Amplitude and phase of the waves of its outline.
    """

    centre: tuple[float, float]
    radius: float
    waves: tuple[tuple[float, float], ...]

    @classmethod
    def drawn(cls, rng: np.random.Generator, wobble: float) -> Blob:
        """Return a random blob; ``wobble`` is the largest amplitude of its outline."""
        row, col, radius, *rest = rng.random(3 + 2 * HARMONICS)
        waves = tuple(
            (wobble * rest[2 * i] / (i + 1), 2 * math.pi * rest[2 * i + 1]) for i in range(HARMONICS)
        )
        return cls((float(row), float(col)), float(0.5 + radius), waves)

    def distance(self, size: Size) -> NDArray[np.float64]:
        """Return the distance of each pixel from the centre in radii of the blob in its direction."""
        row, col = np.mgrid[: size[0], : size[1]].astype(np.float64)
        y, x = row + 0.5 - self.centre[0] * size[0], col + 0.5 - self.centre[1] * size[1]
        angle = np.arctan2(y, x)
        radius = np.full(size, self.radius)
        for wave, (amplitude, phase) in enumerate(self.waves, 2):
            radius += self.radius * amplitude * np.cos(wave * angle + phase)
        return np.asarray(np.hypot(y, x) / np.maximum(radius, 0.05 * self.radius))


class Blobs:
    """Several blobs that grow together until they cover a share of an image.

    Args:
        blobs: The blobs.
        size: Height and width of the image.
    """

    def __init__(self, blobs: Sequence[Blob], size: Size) -> None:
        distances = np.stack([blob.distance(size) for blob in blobs])
        self.nearest = distances.argmin(axis=0)
        self.centres = np.array([np.multiply(blob.centre, size) for blob in blobs], np.float32)
        self._distance = distances.min(axis=0)
        self._ranked = np.sort(self._distance, axis=None)

    def alpha(self, share: float, softness: float) -> Field:
        """Return how much of each pixel is covered, ``share`` on average.

        Args:
            share: The share of the image to cover.
            softness: The width of the edge relative to the size of a blob.
        """
        if share <= 0:
            return np.zeros(self._distance.shape, np.float32)
        if share >= 1:
            return np.ones(self._distance.shape, np.float32)
        low, high = 0.0, float(self._ranked[-1]) * (1 + softness) + 1
        # The mean coverage grows with the radius: bisect it.
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._mean(middle, softness) < share else (low, middle)
            if high - low < 1e-9 * high:
                break
        return self._at(self._distance, (low + high) / 2, softness).astype(np.float32)

    def _mean(self, radius: float, softness: float) -> float:
        """Return the mean coverage for blobs of a radius; only pixels at the edge are partly covered."""
        half = max(radius * softness, 1e-12) / 2
        inside, outside = np.searchsorted(self._ranked, (radius - half, radius + half))
        edge = self._at(self._ranked[inside:outside], radius, softness)
        return float(inside + edge.sum()) / len(self._ranked)

    def _at(self, distance: NDArray[np.float64], radius: float, softness: float) -> NDArray[np.float64]:
        """Return the coverage for blobs of a radius: 1 inside, 0 outside, smooth across the edge."""
        width = max(radius * softness, 1e-12)
        step = np.clip((radius - distance) / width + 0.5, 0, 1)
        return np.asarray(step * step * (3 - 2 * step))


# Bisection steps and sampled pixels per side to find the size of a cut-out.
STEPS, SAMPLED = 40, 96


@dataclass(frozen=True, eq=False)
class Cutout:
    """An image with transparency.

    Attributes:
        rgba: H x W x 4, 8 bits, cut to its opaque part.
    """

    rgba: NDArray[np.uint8]

    def laid(self, share: float, place: tuple[float, float], size: Size) -> tuple[Field, Field]:
        """Return the colours and the coverage of the cut-out over an image.

        Args:
            share: The share of the image to cover. If the cut-out cannot cover it, it is enlarged as far as
                its opaque part covers more.
            place: Row and column of its centre, relative to the size of the image.
            size: Height and width of the image.
        """
        reach = self._reach(share, place, size)
        alpha, colour = self._at(reach, place, size)
        return colour, alpha

    def _reach(self, share: float, place: tuple[float, float], size: Size) -> float:
        """Return the height of the cut-out relative to that of the image at which it covers a share of it."""
        low, high = 0.0, 16.0
        for _ in range(STEPS):
            middle = (low + high) / 2
            covered = float(self._alpha(middle, place, size, SAMPLED).mean(dtype=np.float64))
            low, high = (middle, high) if covered < share else (low, middle)
        return high

    def _alpha(self, reach: float, place: tuple[float, float], size: Size, most: int) -> NDArray[np.float64]:
        """Return the coverage at up to ``most`` pixels per side."""
        rows, cols = (
            np.linspace(0, side, min(side, most), endpoint=False) + 0.5 * side / min(side, most)
            for side in size
        )
        y, x = self._texture(rows, cols, reach, place, size)
        height, width = self.rgba.shape[:2]
        inside = ((y >= 0) & (y < height))[:, None] & ((x >= 0) & (x < width))
        near = self.rgba[
            np.clip(y, 0, height - 1).astype(int)[:, None], np.clip(x, 0, width - 1).astype(int), 3
        ]
        return np.where(inside, near / 255.0, 0.0)

    def _texture(
        self,
        rows: NDArray[np.float64],
        cols: NDArray[np.float64],
        reach: float,
        place: tuple[float, float],
        size: Size,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rows and columns of the cut-out that rows and columns of the image show."""
        height, width = self.rgba.shape[:2]
        per_px = height / max(reach * size[0], 1e-9)
        y = (rows - place[0] * size[0]) * per_px + height / 2
        x = (cols - place[1] * size[1]) * per_px + width / 2
        return y, x

    def _at(self, reach: float, place: tuple[float, float], size: Size) -> tuple[Field, Field]:
        """Return coverage and colour at every pixel, reduced with the colours weighted by coverage."""
        from sorites.scenes.resample import resized

        height, width = self.rgba.shape[:2]
        step = height / max(reach * size[0], 1e-9)
        start = height / 2 - place[0] * size[0] * step, width / 2 - place[1] * size[1] * step
        alpha = self.rgba[..., 3:].astype(np.float32) / np.float32(255)
        premultiplied = self.rgba[..., :3].astype(np.float32) / np.float32(255) * alpha
        # Around the cut-out there is nothing: the grey of the resampling is taken off again.
        layers = np.concatenate([premultiplied, alpha], axis=2) + np.float32(0.5)
        laid = resized(layers, size, (step, step), start) - np.float32(0.5)
        cover = np.clip(laid[..., 3], 0, 1)
        colour = np.clip(laid[..., :3] / np.maximum(cover, np.float32(1e-6))[..., None], 0, 1)
        return cover, colour


def cutouts_in(folder: Path) -> list[Cutout]:
    """Return the PNG files with transparency of a folder, by name, each cut to its opaque part.

    Args:
        folder: The folder.
    """
    from PIL import Image as pil

    found = []
    for path in sorted(folder.glob("*.png")):
        with pil.open(path) as opened:
            rgba = np.asarray(opened.convert("RGBA"))
        rows, cols = (np.flatnonzero(rgba[..., 3].any(axis=axis)) for axis in (1, 0))
        if len(rows) and rgba[..., 3].min() < 255:
            found.append(Cutout(rgba[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1]))
    return found
