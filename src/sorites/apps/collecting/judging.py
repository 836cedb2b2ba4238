"""Decide whether a file is worth keeping: whole, large enough, a photograph, and not nearly the
same as another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from PIL import Image

from sorites.core import ImageU8
from sorites.core.errors import BadImage
from sorites.sources.decode import decode

# The least number of px on the shorter side.
SMALLEST = 224

# The most bits of 64 in which the hashes of nearly the same image differ.
NEAR = 4

_SUFFIXES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"RIFF", ".webp"),
    (b"II", ".tif"),
    (b"MM", ".tif"),
)
_FLAT, _COLOURS = 0.8, 200


class LeftOut(Exception):
    """An image that is not kept; the message says why."""


@dataclass(frozen=True)
class Judged:
    """A file that can be kept: the ending of its name by its first bytes, its size in px, and its
    perceptual hash.
    """

    suffix: str
    width: int
    height: int
    hash: int


def judge(data: bytes, smallest: int = SMALLEST) -> Judged:
    """Decode a file and return what is known of it; whatever a server called it, its first bytes decide."""
    suffix = next((suffix for magic, suffix in _SUFFIXES if data.startswith(magic)), None)
    if suffix is None:
        raise LeftOut("not a photograph: expected JPEG, PNG, WebP or TIFF")
    try:
        image = decode(data, "it")
    except BadImage as error:
        raise LeftOut(f"broken: {error}") from error
    height, width = image.shape[:2]
    if min(height, width) < smallest:
        raise LeftOut(f"too small: {width} × {height} px, expected {smallest} on the shorter side")
    if is_drawn(image):
        raise LeftOut("not a photograph: it has few colours in flat areas")
    return Judged(suffix, width, height, perceptual_hash(image))


def is_drawn(image: ImageU8) -> bool:
    """Return whether an image looks like a drawing, a map or a chart: few colours, and most
    neighbours exactly alike.

    A dark or foggy photograph has few colours too, but noise; both have to hold.
    """
    middle = _middle(image, 512)
    alike = (middle[:, 1:] == middle[:, :-1]).all(axis=2).mean()
    coarse = (middle >> 3).astype(np.uint32)
    colours = np.unique(coarse[..., 0] << 10 | coarse[..., 1] << 5 | coarse[..., 2], return_counts=True)[1]
    return bool(alike > _FLAT and (colours >= colours.sum() / 10_000).sum() < _COLOURS)


def _middle(image: ImageU8, side: int) -> ImageU8:
    top, left = ((length - min(length, side)) // 2 for length in image.shape[:2])
    return image[top : top + side, left : left + side]


def perceptual_hash(image: ImageU8) -> int:
    """Return 64 bits that stay when an image is scaled or compressed: signs of the low cosine
    waves of its brightness.

    Each bit says whether one of the 8 × 8 lowest coefficients of the 32 × 32 grey copy lies above
    their median; the first is the highest bit (pHash, Zauner 2010, as the package imagehash
    computes it).
    """
    grey = Image.fromarray(image).convert("L").resize((32, 32), Image.Resampling.LANCZOS)
    waves = scipy.fft.dct(scipy.fft.dct(np.asarray(grey, np.float64), axis=0), axis=1)[:8, :8]
    bits = (waves > np.median(waves)).ravel()
    return int("".join("1" if bit else "0" for bit in bits), 2)


class Hashes:
    """The hashes of the images that are kept, to be asked for near duplicates."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._bits: NDArray[np.uint64] = np.zeros(64, np.uint64)

    def add(self, key: str, hash_: int) -> None:
        """Add an image."""
        if len(self._keys) == len(self._bits):
            self._bits = np.concatenate([self._bits, np.zeros_like(self._bits)])
        self._bits[len(self._keys)] = hash_
        self._keys.append(key)

    def remove(self, key: str) -> None:
        """Take an image out; the last one takes its place."""
        at = self._keys.index(key)
        self._bits[at] = self._bits[len(self._keys) - 1]
        self._keys[at] = self._keys[-1]
        self._keys.pop()

    def near(self, hash_: int, bits: int = NEAR) -> list[str]:
        """Return the images whose hashes differ in at most so many bits."""
        apart = np.bitwise_count(self._bits[: len(self._keys)] ^ np.uint64(hash_))
        return [self._keys[at] for at in np.flatnonzero(apart <= bits)]
