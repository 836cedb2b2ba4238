"""Features of images as the distances need them: checked, and computed in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import numpy as np

from sorites.core import Encoder, Features, ImageU8
from sorites.core.errors import SoritesError

BATCH = 32


def checked(name: str, features: object, n: int) -> Features:
    """Return what encoder ``name`` gave as float32; anything but N x D finite numbers is an error."""
    found = np.asarray(features, np.float32)
    if found.ndim != 2 or len(found) != n:
        raise SoritesError(f"encoder {name}: expected features of {n} x D, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise SoritesError(f"encoder {name} gave features that are not finite")
    return found


def features(encoder: Encoder, images: Iterable[tuple[ImageU8, bool]]) -> Features:
    """Return one row per image, in order; each image comes with whether it is framed.

    Memory holds one batch at most.
    """
    found = [encoder.images(some, framed) for some, framed in _batches(images)]
    if not found:
        raise SoritesError(f"there are no images for encoder {encoder.name} to look at")
    return np.concatenate(found)


def _batches(images: Iterable[tuple[ImageU8, bool]]) -> Iterator[tuple[list[ImageU8], bool]]:
    for framed, run in groupby(images, key=lambda pair: pair[1]):
        while some := [image for image, _ in islice(run, BATCH)]:
            yield some, framed
