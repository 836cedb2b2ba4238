"""Read composites made by ``sorites context``: a dataset folder whose sidecar holds the settings, and a file with the boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from sorites.core import Box, Sample, add_source
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.sources import _sidecar as sidecar

TRUTH = "truth.parquet"
"""The file that maps an image id to the boxes of what it shows."""


@add_source
def context(path: str | None, labels: Labels) -> list[Sample]:
    """Read things in common and uncommon settings, with their boxes as truth, from a folder made by ``sorites context``."""
    if path is None:
        raise SoritesError("composites have to be made first. Type: sorites context --out DIR, and then --source context:DIR")
    root = Path(path).expanduser()
    if not (root / sidecar.NAME).is_file():
        raise SoritesError(f"{root} holds no composites. Make them with: sorites context --out {root}")
    samples = sidecar.read(root, labels)
    if any(sample.truth is not None for sample in samples):  # composites of several things have their boxes in the sidecar
        return samples
    try:
        boxes = dict(pl.read_parquet(root / TRUTH).select("image_id", "truth").iter_rows())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SoritesError(f"cannot read {root / TRUTH}: {error}. Make the composites again.") from error
    return [replace(s, truth=tuple(_box(box) for box in boxes.get(s.image_id, ()))) for s in samples]


def _box(box: dict[str, float]) -> Box:
    return Box((box["x0"], box["y0"], box["x1"], box["y1"]), int(box["label"]))
