"""The images that are photographed: where each lies in the published layout, and the bytes that
the screen shows.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites.apps.studio.cameras import checked
from sorites.core import CLEAN, ImageU8, Sample
from sorites.core import camera_grid as es_grid
from sorites.core.camera_grid import Grid
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.rng import digest
from sorites.io.paths import is_file, path_of
from sorites.io.readers import lines
from sorites.io.stores import place
from sorites.sources.decode import decode

# The grid of a capture: a published one by name, a small one for trying out, or a CSV file.


SMALL_APERTURE = 9.0
WANTED = "a CSV file with the columns idx,iso,ss,aperture, as the released grid files have them"
# The most settings of a grid.
MOST = 1000


def grid(name: str, shots: int | None = None, lights: tuple[str, ...] = tuple(es_grid.LIGHTS)) -> Grid:
    """Return a grid by name (test, val, small) or from a CSV file, with so many automatic shots and
    these lights.
    """
    if name in ("test", "val"):
        return Grid(es_grid.published(name).manual, es_grid.SHOTS if shots is None else shots, lights)
    if name == "small":
        kept = tuple(
            params for params in es_grid.published("test").manual if params["aperture"] == SMALL_APERTURE
        )
        return Grid(kept, 1 if shots is None else shots, lights)
    return Grid(_from_csv(path_of(name)), es_grid.SHOTS if shots is None else shots, lights)


def part_of(name: str) -> str:
    """Return the split whose place in the layout a capture takes."""
    return "val" if name == "val" else "test"


def _from_csv(path: Path) -> tuple[es_grid.Params, ...]:
    if not is_file(path):
        raise SoritesError(f"no grid named {str(path)!r}: expected test, val, small, or {WANTED}")
    rows = list(csv.DictReader(lines(path, WANTED)))
    if not 0 < len(rows) <= MOST or not {"iso", "ss", "aperture"} <= set(rows[0]):
        raise SoritesError(
            f"{path}: expected {WANTED}, with 1 to {MOST} rows; got {len(rows)} rows of"
            f" {list(rows[0]) if rows else 'nothing'}"
        )
    return tuple(_setting(row, f"{path}, row {number}") for number, row in enumerate(rows, 1))


def _setting(row: dict[str, str], where: str) -> es_grid.Params:
    return {
        "iso": round(checked("iso", row["iso"] or "", where)),
        "shutter": checked("shutter", row["ss"] or "", where),
        "aperture": checked("aperture", row["aperture"] or "", where),
    }


_KEPT = (".jpg", ".jpeg", ".png")
_UNSAFE = re.compile(r"[^0-9A-Za-z._+\-() \u00a1-\uffff]")
# The most that an image's longer side may be of the shorter side that is asked for.
LONGER = 1.5
# The most letters of a file's name.
LONGEST = 120


@dataclass(frozen=True)
class Reference:
    """An image to photograph: its class folder and the stem of its file's name, both safe on any disk."""

    id: str
    folder: str
    stem: str
    load: Any
    side: int | None = None
    """The shorter side that the image is brought to, or None to show it as it is."""

    @functools.cached_property
    def file(self) -> tuple[bytes, str]:
        """The bytes of the reference's file and its ending: the file itself where the sample is
        one, otherwise a PNG.
        """
        plain = self.side is None and isinstance(self.load, functools.partial) and self.load.func is decode
        path = place(self.load.args[0]) if plain and isinstance(self.load.args[0], str | Path) else None
        if path is not None and path.suffix.lower() in _KEPT:
            return path.read_bytes(), ".JPEG" if path.suffix.lower() != ".png" else ".png"
        return self.png(), ".png"

    def image(self) -> ImageU8:
        """Return the pixels that the screen shows and that photographs are compared with."""
        image: ImageU8 = self.load()
        if self.side is None:
            return image
        high, wide = image.shape[:2]
        scale = min(self.side / min(high, wide), LONGER * self.side / max(high, wide))
        size = (max(16, round(wide * scale)), max(16, round(high * scale)))
        return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.LANCZOS))

    def png(self) -> bytes:
        """Return the image as the bytes of a PNG file."""
        file = io.BytesIO()
        Pillow.fromarray(self.image()).save(file, "PNG", compress_level=1)
        return file.getvalue()


def references(samples: Iterable[Sample], labels: Labels, side: int | None = None) -> list[Reference]:
    """Return the clean images of a source as references; every one needs a label, which names its
    folder.
    """
    made: dict[tuple[str, str], Reference] = {}
    for sample in samples:
        if sample.shift != CLEAN:
            continue
        if sample.label is None:
            raise SoritesError(
                f"{sample.id} has no label: images lie in class folders in this dataset. Put it into one"
            )
        folder, stem = safe(labels.ids[sample.label]), safe(PurePosixPath(sample.id).stem)
        if (folder.lower(), stem.lower()) in made:
            stem = f"{stem}-{digest(sample.id, size=4).hex()}"
        made[folder.lower(), stem.lower()] = Reference(sample.id, folder, stem, sample.load, side)
    if not made:
        raise SoritesError("the source holds no clean images to photograph")
    return list(made.values())


def safe(name: str) -> str:
    """Return a name that is a plain file name everywhere: no slashes, no dot first, not too long."""
    plain = _UNSAFE.sub("_", name).strip(" .")[:LONGEST]
    return plain or f"_{digest(name, size=4).hex()}"


def stage_of(held: Iterable[Reference]) -> tuple[int, int]:
    """Return the width and height that hold every image."""
    sizes = [image.shape[1::-1] for image in (reference.image() for reference in held)]
    return max(width for width, _ in sizes), max(height for _, height in sizes)
