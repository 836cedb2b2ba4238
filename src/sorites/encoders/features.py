"""Encode images in batches and check the features of encoders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, islice

import numpy as np

from sorites.core import Encoder, Features, ImageU8
from sorites.core.errors import SoritesError

IMAGES_PER_BATCH = 32


def checked(name: str, features: object, n: int) -> Features:
    """Return the features of an encoder as float32.

    Args:
        name: The name of the encoder, for error messages.
        features: Its result.
        n: The number of images or texts.

    Raises:
        SoritesError: If the features are not finite numbers of shape N x D.
    """
    array = np.asarray(features, np.float32)
    if array.ndim != 2 or len(array) != n:
        raise SoritesError(f"encoder {name}: expected features of shape {n} x D, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise SoritesError(f"encoder {name} returned features that are not finite")
    return array


def features(encoder: Encoder, images: Iterable[tuple[ImageU8, bool]]) -> Features:
    """Return the features of images, one row each, with one batch of images in memory at a time.

    Args:
        encoder: The encoder.
        images: Pairs of an image and whether it is already cropped and resized to the model's
            frame.

    Raises:
        SoritesError: If there are no images.
    """
    parts = [encoder.images(batch, framed) for batch, framed in _batches(images)]
    if not parts:
        raise SoritesError(f"there are no images for encoder {encoder.name} to encode")
    return np.concatenate(parts)


def _batches(images: Iterable[tuple[ImageU8, bool]]) -> Iterator[tuple[list[ImageU8], bool]]:
    for framed, run in groupby(images, key=lambda pair: pair[1]):
        while batch := [image for image, _ in islice(run, IMAGES_PER_BATCH)]:
            yield batch, framed
