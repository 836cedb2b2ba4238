"""Decide whether a downloaded file is kept: readable, large enough, a photograph, and not a near
duplicate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from PIL import Image

from sorites.apps.collecting.options import MIN_SIDE, NEAR_BITS
from sorites.core import ImageU8
from sorites.core.errors import BadImage
from sorites.io.decode import decode

_SUFFIXES = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG", ".png"),
    (b"RIFF", ".webp"),
    (b"II", ".tif"),
    (b"MM", ".tif"),
)
# Drawings have more than this share of equal neighbours and fewer than this many colours.
_FLAT, _COLOURS = 0.8, 200


class LeftOut(Exception):
    """An image that is not kept; the message is the reason."""


@dataclass(frozen=True)
class Judged:
    """A file that can be kept: suffix by its first bytes, size in px and perceptual hash."""

    suffix: str
    width: int
    height: int
    hash: int


def judge(data: bytes, smallest: int = MIN_SIDE) -> Judged:
    """Decode and check a file; its type follows from its first bytes, not from what the server says."""
    suffix = next((suffix for magic, suffix in _SUFFIXES if data.startswith(magic)), None)
    if suffix is None:
        raise LeftOut("not a photograph: expected JPEG, PNG, WebP or TIFF")
    try:
        image = decode(data, "it")  # the message continues "broken: it ..."
    except BadImage as error:
        raise LeftOut(f"broken: {error}") from error
    height, width = image.shape[:2]
    if min(height, width) < smallest:
        raise LeftOut(f"too small: {width} × {height} px, expected {smallest} on the shorter side")
    if is_drawn(image):
        raise LeftOut("not a photograph: it has few colours in flat areas")
    return Judged(suffix, width, height, perceptual_hash(image))


def is_drawn(image: ImageU8) -> bool:
    """Return whether an image looks like a drawing, map or chart: few colours and mostly equal neighbours.

    Dark or foggy photographs also have few colours, but noise, so both must hold.
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
    """Return a 64-bit hash that survives scaling and compression (pHash, Zauner 2010, as in the package
    imagehash).

    Each bit tells whether one of the 8 × 8 lowest DCT coefficients of the 32 × 32 grey image is above their
    median; the first is the highest bit.
    """
    grey = Image.fromarray(image).convert("L").resize((32, 32), Image.Resampling.LANCZOS)
    waves = scipy.fft.dct(scipy.fft.dct(np.asarray(grey, np.float64), axis=0), axis=1)[:8, :8]
    bits = (waves > np.median(waves)).ravel()
    return int("".join("1" if bit else "0" for bit in bits), 2)


class Hashes:
    """Hashes of the kept images, to search for near duplicates."""

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
        """Remove an image; the last one takes its position."""
        at = self._keys.index(key)
        self._bits[at] = self._bits[len(self._keys) - 1]
        self._keys[at] = self._keys[-1]
        self._keys.pop()

    def near(self, hash_: int, bits: int = NEAR_BITS) -> list[str]:
        """Return the images whose hashes differ in at most ``bits`` bits."""
        apart = np.bitwise_count(self._bits[: len(self._keys)] ^ np.uint64(hash_))
        return [self._keys[at] for at in np.flatnonzero(apart <= bits)]
