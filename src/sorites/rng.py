"""Randomness belongs to the sample: one stream for each (seed, sample, shift), whatever runs around it."""

from __future__ import annotations

import hashlib

import numpy as np


def digest(*parts: object, size: int = 16) -> bytes:
    """A stable hash of the parts' text; parts cannot run into each other."""
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        text = str(part).encode()
        hasher.update(len(text).to_bytes(8, "little") + text)
    return hasher.digest()


def rng_for(seed: int, sample_id: str, shift: str) -> np.random.Generator:
    """The generator of one trajectory. Severity is not in it: turning the dial keeps the draw."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest(seed, sample_id, shift), "little")))
