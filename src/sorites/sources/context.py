"""Read composites made by ``sorites context``: a dataset folder whose sidecar holds the settings, and a file with the boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

from sorites.core import Box, Sample, add_source
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.reading.frames import parquet, refuse_types
from sorites.reading.places import is_file, path_of
from sorites.sources import _sidecar as sidecar
from sorites.table import BOX, SCHEMA

TRUTH = "truth.parquet"
"""The file that maps an image id to the boxes of what it shows."""


@add_source
def context(path: str | None, labels: Labels) -> list[Sample]:
    """Read things in common and uncommon settings, with their boxes as truth, from a folder made by ``sorites context``."""
    if path is None:
        raise SoritesError("composites have to be made first. Type: sorites context --out DIR, and then --source context:DIR")
    root = path_of(path)
    if not is_file(root / sidecar.NAME):
        raise SoritesError(f"{root} holds no composites. Make them with: sorites context --out {root}")
    samples = sidecar.read(root, labels)
    if any(sample.truth is not None for sample in samples):  # composites of several things have their boxes in the sidecar
        return samples
    boxes = _boxes(root / TRUTH)
    return [replace(s, truth=boxes.get(str(s.image_id), ())) for s in samples]


def _boxes(file: Path) -> dict[str, tuple[Box, ...]]:
    """Map the id of each image to the boxes of what it shows."""
    frame = parquet(file, 'the boxes of composites; make them again with "sorites context"')
    if lost := [name for name in ("image_id", "truth") if name not in frame.columns]:
        raise SoritesError(f"{file}: wanted the columns image_id and truth; {', '.join(lost)} missing")
    refuse_types(frame, {"image_id": SCHEMA["image_id"], "truth": pl.List(BOX)}, file)
    return {
        id_: tuple(_box(box, f"{file}, {id_}") for box in some or ()) for id_, some in frame.select("image_id", "truth").rows()
    }


def _box(box: dict[str, float] | None, where: str) -> Box:
    if box is None or any(box[side] is None for side in ("x0", "y0", "x1", "y1", "label")):
        raise SoritesError(f"{where}: wanted x0, y0, x1, y1 and label of each box, got {box}")
    return Box((box["x0"], box["y0"], box["x1"], box["y1"]), int(box["label"]))
