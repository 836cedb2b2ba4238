"""Random streams per sample: each (seed, sample, shift) has its own, independent of batches, order and
workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Object = TypeVar("Object")


def digest(*parts: object, size: int = 16) -> bytes:
    """Return a stable hash of the parts' text.

    Lengths are hashed too, so ("ab", "c") and ("a", "bc") differ.

    Args:
        parts: Objects with a stable ``str``.
        size: Number of bytes of the hash.

    Returns:
        The hash, equal on every machine.

    Example:
        >>> digest("ab", "c", size=4).hex() == digest("a", "bc", size=4).hex()
        False
    """
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        text = str(part).encode(errors="backslashreplace")
        hasher.update(len(text).to_bytes(8, "little") + text)
    return hasher.digest()


def hash_prefixes(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return the first eight bytes of the ``digest`` of each text as integers with the same order."""
    prefixes = []
    for text in texts:
        encoded = text.encode(errors="backslashreplace")
        prefixes.append(
            hashlib.blake2b(len(encoded).to_bytes(8, "little") + encoded, digest_size=16).digest()[:8]
        )
    return np.frombuffer(b"".join(prefixes), ">u8").astype(np.uint64)


def hashed_order(objects: Iterable[Object], parts: Callable[[Object], Iterable[object]]) -> list[Object]:
    """Sort objects by the hash of their parts, so that any prefix is a random sample whatever the input
    order.
    """
    return sorted(objects, key=lambda obj: digest(*parts(obj)))


def rng_for(seed: int, sample_id: str, shift: str) -> np.random.Generator:
    """Return the random generator of one sample and shift.

    It does not depend on the severity, so all severities of a sample share one draw.

    Args:
        seed: Seed of the run.
        sample_id: Id of the sample.
        shift: Name of the shift.

    Returns:
        A new generator; the same arguments give the same stream.

    Example:
        >>> first, again = (rng_for(0, "cat.jpg", "coma").random() for _ in range(2))
        >>> first == again != rng_for(1, "cat.jpg", "coma").random()
        True
    """
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest(seed, sample_id, shift), "little")))
