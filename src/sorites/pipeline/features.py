"""The features that a run kept (``--keep-features``), by image."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.pipeline import shards
from sorites.pipeline.tensors import read_tensors
from sorites.stores import place

Vectors = dict[str, NDArray[np.float32]]
"""Image id to the image's feature vector."""
Features = Callable[[str, Collection[str]], Vectors]
"""Takes a model and image ids, and returns the vectors of those that were kept."""


def kept_features(run: str | Path, model: str, images: Collection[str]) -> Vectors:
    """Return a model's features of these images, as far as the run kept them; pictures that refine a failure point have none."""
    wanted, found = frozenset(images), Vectors()
    for path in shards.all_features(place(run), model) if wanted else ():
        about, arrays = read_tensors(path, ("image_id",), ("features",))
        ids = about["image_id"]
        rows = [row for row, image in enumerate(ids) if image in wanted]
        if rows and "features" in arrays:
            found |= zip([ids[row] for row in rows], arrays["features"][rows].reshape(len(rows), -1), strict=True)
    return found


def features_of(run: str | Path) -> Features | None:
    """Return a way to read the features of a run folder, or None where it kept none."""
    folder = place(run)
    if not any((folder / "features").glob("*.safetensors")):
        return None
    return lambda model, images: kept_features(folder, model, images)
