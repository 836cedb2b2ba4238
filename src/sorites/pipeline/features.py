"""The features that a run kept (``--keep-features``), by image."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.pipeline import shards

Vectors = dict[str, NDArray[np.float32]]
"""Image id to the image's feature vector."""
Features = Callable[[str, Collection[str]], Vectors]
"""Takes a model and image ids, and returns the vectors of those that were kept."""


def kept_features(run: str | Path, model: str, images: Collection[str]) -> Vectors:
    """Return a model's features of these images, as far as the run kept them; pictures that refine a failure point have none."""
    from safetensors import SafetensorError, safe_open

    wanted, found = frozenset(images), Vectors()
    for path in shards.all_features(Path(run), model) if wanted else ():
        try:
            with safe_open(path, "numpy") as file:
                ids = json.loads(file.metadata()["image_id"])
                rows = [row for row, image in enumerate(ids) if image in wanted]
                if rows and "features" in set(file.keys()):
                    found |= zip(
                        [ids[row] for row in rows], file.get_tensor("features")[rows].reshape(len(rows), -1), strict=True
                    )
        except (OSError, SafetensorError) as error:
            raise SoritesError(f"cannot read the features in {path}: {error}. Delete the file and run again.") from error
    return found


def features_of(run: str | Path) -> Features | None:
    """Return a way to read the features of a run folder, or None where it kept none."""
    folder = Path(run)
    if not any((folder / "features").glob("*.safetensors")):
        return None
    return lambda model, images: kept_features(folder, model, images)
