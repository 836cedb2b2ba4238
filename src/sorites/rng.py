"""Randomness belongs to the sample: one stream for each (seed, sample, shift), whatever runs around it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

Thing = TypeVar("Thing")


def digest(*parts: object, size: int = 16) -> bytes:
    """A stable hash of the parts' text; parts cannot run into each other."""
    hasher = hashlib.blake2b(digest_size=size)
    for part in parts:
        text = str(part).encode()
        hasher.update(len(text).to_bytes(8, "little") + text)
    return hasher.digest()


def fair_order(things: Iterable[Thing], parts: Callable[[Thing], Iterable[object]]) -> list[Thing]:
    """Order things by the hash of their parts: any prefix is a fair sample, and the order they came in does not matter."""
    return sorted(things, key=lambda thing: digest(*parts(thing)))


def rng_for(seed: int, sample_id: str, shift: str) -> np.random.Generator:
    """The generator of one trajectory. Severity is not in it: turning the dial keeps the draw."""
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest(seed, sample_id, shift), "little")))
