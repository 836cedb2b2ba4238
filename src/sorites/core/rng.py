"""Randomness belongs to the sample: each (seed, sample, shift) has its own stream, independent of
batches, order and workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Object = TypeVar("Object")


def digest(*parts: object, size: int = 16) -> bytes:
    """Return a stable hash of the parts' text; lengths are hashed too, so ("ab", "c") and ("a",
    "bc") differ.
    """
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        text = str(part).encode(errors="backslashreplace")
        hasher.update(len(text).to_bytes(8, "little") + text)
    return hasher.digest()


def heads(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return the first eight bytes of the ``digest`` of each text, as numbers that order as they do."""
    held = []
    for text in texts:
        spelled = text.encode(errors="backslashreplace")
        held.append(
            hashlib.blake2b(len(spelled).to_bytes(8, "little") + spelled, digest_size=16).digest()[:8]
        )
    return np.frombuffer(b"".join(held), ">u8").astype(np.uint64)


def fair_order(objects: Iterable[Object], parts: Callable[[Object], Iterable[object]]) -> list[Object]:
    """Order objects by the hash of their parts: any prefix is a fair sample, and the order they came
    in does not matter.
    """
    return sorted(objects, key=lambda obj: digest(*parts(obj)))


def rng_for(seed: int, sample_id: str, shift: str) -> np.random.Generator:
    """Return the generator of one trajectory.

    It does not depend on severity, so all severities of a sample share one draw.
    """
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest(seed, sample_id, shift), "little")))
