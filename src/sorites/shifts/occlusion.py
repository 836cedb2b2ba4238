"""Occlusions: patches, objects in front of the scene, and dirt or water drops on the lens.

The severity is the share of the image that is covered. What is covered at one severity is covered at every
higher one. Ground-truth boxes stay in place; a box of which less than a quarter is visible becomes a crowd
region (see ``scenes.moved_boxes``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sorites.core import SHIFTS, Box, ImageF32, Shift
from sorites.core.errors import SoritesError
from sorites.core.plugins import summary_of
from sorites.core.types import Stage
from sorites.io.digests import digest_of
from sorites.scenes.cutouts import Blob, Blobs, Cutout, cutouts_in
from sorites.scenes.fields import Field, smooth
from sorites.scenes.moved_boxes import boxes_behind
from sorites.scenes.point_maps import Size
from sorites.shifts.base import check, clip

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5)
UNIT = "fraction of the area"


class Cover(Protocol):
    """An object in front of the image, drawn by the sample, that grows with the severity."""

    def hidden(self, severity: float) -> Field:
        """Return how much of each pixel is covered, H x W from 0 to 1; ``severity`` on average."""

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        """Return the image behind the cover."""


Draw = Callable[[np.random.Generator, Size], Cover]


def occlusion(name: str, draw: Draw, stage: Stage, version: int | str = 1) -> Shift:
    """Return the shift ``name``; ``draw`` decides what covers the image of a sample.

    Args:
        name: The name of the shift.
        draw: Draws the cover for an image of a size.
        stage: Where in the making of an image the shift acts.
        version: The version of the shift.
    """

    def sweep(image: ImageF32, severities: Sequence[float], rng: np.random.Generator) -> Any:
        check(name, severities, 1, UNIT)
        cover = draw(rng, image.shape[:2])
        for severity in severities:
            yield clip(cover.painted(image, severity))

    def apply(image: ImageF32, severity: float, rng: np.random.Generator) -> ImageF32:
        return next(iter(sweep(image, [severity], rng)))

    shift = Shift(
        name, apply, "occlusion", UNIT, LEVELS, version=version, about=summary_of(draw), stage=stage
    )
    shift.sweeper(sweep)

    @shift.box_mover
    def move(boxes: Sequence[Box], severity: float, rng: np.random.Generator, size: Size) -> Sequence[Box]:
        check(name, [severity], 1, UNIT)
        return boxes_behind(boxes, draw(rng, size).hidden(severity))

    return shift


def _mixed(image: ImageF32, alpha: Field, colour: ImageF32 | NDArray[np.float32]) -> ImageF32:
    """Return the image with a colour laid over it."""
    return image + (colour - image) * alpha[..., None]


# Patches on a grid, covered in an order drawn per sample.

# The number of patches along the shorter side, as in a vision transformer with patches of 16 px.
PATCHES = 14
GREY = np.full(3, 0.5, np.float32)


@dataclass(frozen=True)
class _Patches:
    before: NDArray[np.float64]
    """The area of the patches that are covered before each pixel's own, and the area of its own."""
    own: NDArray[np.float64]

    def hidden(self, severity: float) -> Field:
        missing = severity * self.own.size - self.before
        return np.clip(missing / self.own, 0, 1).astype(np.float32)

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        return _mixed(image, self.hidden(severity), GREY)


def occlusion_patches(rng: np.random.Generator, size: Size) -> Cover:
    """Cover ``severity`` of the image with grey square patches on a grid, in an order drawn per sample.

    A patch has a fourteenth of the shorter side; the last patch is partly transparent.
    """
    side = max(1, round(min(size) / PATCHES))
    rows, cols = np.arange(size[0]) // side, np.arange(size[1]) // side
    number = rows[:, None] * (cols[-1] + 1) + cols
    areas = np.bincount(number.ravel()).astype(np.float64)
    order = rng.permutation(len(areas))
    before = np.empty_like(areas)
    before[order] = np.cumsum(areas[order]) - areas[order]
    return _Patches(before[number], areas[number])


# Objects and cut-outs.

# The number of objects that can be in front of the scene.
OBJECTS = 3


@dataclass(frozen=True)
class _Objects:
    blobs: Blobs
    colours: NDArray[np.float32]
    shade: Field

    def hidden(self, severity: float) -> Field:
        return self.blobs.alpha(severity, softness=0.02)

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        colour = self.colours[self.blobs.nearest] * self.shade[..., None]
        return _mixed(image, self.hidden(severity), colour)


def occlusion_objects(rng: np.random.Generator, size: Size) -> Cover:
    """Put objects in front of the scene until they cover ``severity`` of it: leaf-like shapes in muted
    colours, or your own cut-outs.

    The option ``cutouts`` is a folder of PNG files with transparency; each sample draws one, which grows with
    the severity.
    """
    blobs = [Blob.drawn(rng, wobble=0.35) for _ in range(OBJECTS)]
    tints = rng.uniform(0.15, 0.6, (OBJECTS, 1)) + rng.uniform(-0.12, 0.12, (OBJECTS, 3))
    colours = tints.astype(np.float32)
    texture = smooth(rng.standard_normal(size, dtype=np.float32), max(0.5, min(size) / 60))
    shade = 1 + np.float32(0.12) * texture / max(float(texture.std()), 1e-6)
    return _Objects(Blobs(blobs, size), colours, np.clip(shade, 0.3, 1.7))


@dataclass(frozen=True)
class _Pasted:
    cutout: Cutout
    place: tuple[float, float]
    size: Size

    def hidden(self, severity: float) -> Field:
        return self.cutout.laid(severity, self.place, self.size)[1]

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        colour, alpha = self.cutout.laid(severity, self.place, self.size)
        return _mixed(image, alpha, colour)


def with_cutouts(*, cutouts: str | None = None) -> Shift:
    """Return the shift with other options.

    Args:
        cutouts: A folder of PNG files with transparency; None draws leaf-like shapes.
    """
    if cutouts is None:
        return occlusion("occlusion_objects", occlusion_objects, "scene")
    files = cutouts_in(Path(cutouts))
    if not files:
        raise SoritesError(f"occlusion_objects: expected PNG files with transparency in {cutouts}")

    @functools.wraps(occlusion_objects)
    def draw(rng: np.random.Generator, size: Size) -> Cover:
        cutout = files[int(rng.integers(len(files)))]
        return _Pasted(cutout, (float(rng.uniform(0.25, 0.75)), float(rng.uniform(0.25, 0.75))), size)

    version = digest_of(b"".join(one.rgba.tobytes() for one in files))
    return occlusion("occlusion_objects", draw, "scene", f"1 {version}")


# Dirt and water on the lens.

# The number of specks or drops.
SPECKS, DROPS = 24, 16
DIRT = np.array((0.16, 0.12, 0.08), np.float32)
# How much smaller the scene appears in a drop, and the blur of a drop relative to the shorter side.
DROP_REDUCTION, DROP_BLUR = 4.0, 1 / 40


@dataclass(frozen=True)
class _Dirt:
    blobs: Blobs

    def hidden(self, severity: float) -> Field:
        return self.blobs.alpha(severity, softness=0.35)

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        return _mixed(image, self.hidden(severity), DIRT)


def lens_dirt(rng: np.random.Generator, size: Size) -> Cover:
    """Put dirt on the lens: dark specks with soft edges that cover ``severity`` of the image."""
    return _Dirt(Blobs([Blob.drawn(rng, wobble=0.15) for _ in range(SPECKS)], size))


@dataclass(frozen=True)
class _Drops:
    blobs: Blobs

    def hidden(self, severity: float) -> Field:
        return self.blobs.alpha(severity, softness=0.08)

    def painted(self, image: ImageF32, severity: float) -> ImageF32:
        alpha = self.hidden(severity)
        seen = self._refracted(image)
        rim = np.float32(1) - np.float32(0.5) * (4 * alpha * (1 - alpha))
        return _mixed(image, alpha, seen * rim[..., None])

    def _refracted(self, image: ImageF32) -> ImageF32:
        """Return what each pixel shows inside its nearest drop: the scene upside down, small and soft."""
        height, width = image.shape[:2]
        soft = smooth(image, max(0.5, min(height, width) * DROP_BLUR))
        row, col = np.mgrid[:height, :width].astype(np.float32)
        centre = self.blobs.centres[self.blobs.nearest]
        y = centre[..., 0] - (row - centre[..., 0]) * np.float32(DROP_REDUCTION)
        x = centre[..., 1] - (col - centre[..., 1]) * np.float32(DROP_REDUCTION)
        return soft[_mirrored(y, height), _mirrored(x, width)]


def _mirrored(position: Field, length: int) -> NDArray[np.int64]:
    """Return whole positions inside the image, mirrored at its border."""
    index = np.floor(position + 0.5).astype(np.int64) % (2 * length)
    return np.asarray(np.minimum(index, 2 * length - 1 - index))


def lens_drops(rng: np.random.Generator, size: Size) -> Cover:
    """Put water drops on the lens that cover ``severity`` of the image and show the scene upside down, small
    and soft.
    """
    return _Drops(Blobs([Blob.drawn(rng, wobble=0.08) for _ in range(DROPS)], size))


for _name, _draw, _stage in (
    ("occlusion_patches", occlusion_patches, "scene"),
    ("lens_dirt", lens_dirt, "optics"),
    ("lens_drops", lens_drops, "optics"),
):
    SHIFTS.add(_name, occlusion(_name, _draw, _stage))  # type: ignore[arg-type]
_objects = with_cutouts()
_objects.configure = with_cutouts
SHIFTS.add("occlusion_objects", _objects)
