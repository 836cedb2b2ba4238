"""Randomness belongs to the sample: each (seed, sample, shift) has its own stream, independent of batches, order and workers."""

from __future__ import annotations

import hashlib

import numpy as np


def digest(*parts: object, size: int = 16) -> bytes:
    """Return a stable hash of the parts' text; lengths are hashed too, so ("ab", "c") and ("a", "bc") differ."""
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        text = str(part).encode()
        hasher.update(len(text).to_bytes(8, "little") + text)
    return hasher.digest()


def rng_for(seed: int, sample_id: str, shift: str) -> np.random.Generator:
    """Return the generator of one trajectory. It does not depend on severity, so all severities of a sample share one draw."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest(seed, sample_id, shift), "little")))
