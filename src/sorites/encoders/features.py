"""Features of pictures as the distances need them: checked, and computed in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import numpy as np

from sorites.core import Features, Picture, Referee
from sorites.core.errors import SoritesError

BATCH = 32


def checked(name: str, features: object, n: int) -> Features:
    """Return what referee ``name`` gave as float32; anything but N x D finite numbers is an error."""
    found = np.asarray(features, np.float32)
    if found.ndim != 2 or len(found) != n:
        raise SoritesError(f"referee {name}: wanted features of {n} x D, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise SoritesError(f"referee {name} gave features that are not finite")
    return found


def features(referee: Referee, pictures: Iterable[tuple[Picture, bool]]) -> Features:
    """Return one row per picture, in order; each picture comes with whether it is framed.

    Memory holds one batch at most.
    """
    found = [referee.images(some, framed) for some, framed in _batches(pictures)]
    if not found:
        raise SoritesError(f"there are no pictures for referee {referee.name} to look at")
    return np.concatenate(found)


def _batches(pictures: Iterable[tuple[Picture, bool]]) -> Iterator[tuple[list[Picture], bool]]:
    for framed, run in groupby(pictures, key=lambda pair: pair[1]):
        while some := [picture for picture, _ in islice(run, BATCH)]:
            yield some, framed
