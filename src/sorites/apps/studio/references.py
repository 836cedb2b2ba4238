"""Images to photograph, their paths in the published layout, and grids of camera settings."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image as Pillow

from sorites.apps.studio.cameras import check_value
from sorites.core import CLEAN, FileRef, ImageRef, ImageU8, Sample
from sorites.core import camera_grid as es_grid
from sorites.core.camera_grid import Grid
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.io.paths import is_file, path_of
from sorites.io.readers import lines
from sorites.io.stores import to_path

# The small grid has the published settings at this aperture.
SMALL_APERTURE = 9.0
EXPECTED_CSV = "a CSV file with the columns idx,iso,ss,aperture, as in the released grid files"
MAX_SETTINGS = 1000


def grid(name: str, shots: int | None = None, lights: tuple[str, ...] = tuple(es_grid.LIGHTS)) -> Grid:
    """Return a grid of settings.

    Args:
        name: ``test``, ``val``, ``small``, ``auto`` (no manual settings), or a CSV file.
        shots: Number of automatic shots; the published number by default.
        lights: States of the lamps.
    """
    if name in ("test", "val"):
        return Grid(
            es_grid.published_grid(name).manual, es_grid.AUTO_SHOTS if shots is None else shots, lights
        )
    if name == "small":
        manual = tuple(
            params for params in es_grid.published_grid("test").manual if params["aperture"] == SMALL_APERTURE
        )
        return Grid(manual, 1 if shots is None else shots, lights)
    if name == "auto":
        if shots == 0:
            raise SoritesError(
                f"{option('grid', 'auto')} has automatic shots only; give {option('auto', 'N')} above 0"
            )
        return Grid((), es_grid.AUTO_SHOTS if shots is None else shots, lights)
    return Grid(_from_csv(path_of(name)), es_grid.AUTO_SHOTS if shots is None else shots, lights)


def part_of(name: str) -> str:
    """Return the split whose folder in the layout a capture uses."""
    return "val" if name == "val" else "test"


def _from_csv(path: Path) -> tuple[es_grid.Params, ...]:
    if not is_file(path):
        raise SoritesError(f"no grid named {str(path)!r}: expected test, val, small, auto, or {EXPECTED_CSV}")
    rows = list(csv.DictReader(lines(path, EXPECTED_CSV)))
    if not 0 < len(rows) <= MAX_SETTINGS or not {"iso", "ss", "aperture"} <= set(rows[0]):
        raise SoritesError(
            f"{path}: expected {EXPECTED_CSV}, with 1 to {MAX_SETTINGS} rows; got {len(rows)} rows of"
            f" {list(rows[0]) if rows else 'nothing'}"
        )
    return tuple(_setting(row, f"{path}, row {number}") for number, row in enumerate(rows, 1))


def _setting(row: dict[str, str], where: str) -> es_grid.Params:
    return {
        "iso": round(check_value("iso", row["iso"] or "", where)),
        "shutter": check_value("shutter", row["ss"] or "", where),
        "aperture": check_value("aperture", row["aperture"] or "", where),
    }


_COPIED_SUFFIXES = (".jpg", ".jpeg", ".png")
_UNSAFE = re.compile(r"[^0-9A-Za-z._+\-() \u00a1-\uffff]")
# Maximum of the longer side, as a multiple of the requested shorter side.
MAX_ASPECT = 1.5
# Maximum characters of a file name.
MAX_NAME = 120


@dataclass(frozen=True)
class Reference:
    """An image to photograph, with a class folder and file stem that are safe on any file system."""

    id: str
    folder: str
    stem: str
    source: ImageRef
    side: int | None = None
    """Shorter side that the image is resized to, or None to show it unchanged."""

    @functools.cached_property
    def file(self) -> tuple[bytes, str]:
        """Content and suffix of the reference file: the original file if the sample is one, otherwise a
        PNG.
        """
        file = self.source
        if self.side is None and isinstance(file, FileRef) and file.size is None and file.within is None:
            suffix = to_path(file.path).suffix.lower()
            if suffix in _COPIED_SUFFIXES:
                return file.read(), ".JPEG" if suffix != ".png" else ".png"
        return self.png(), ".png"

    def image(self) -> ImageU8:
        """Return the pixels that the screen shows."""
        image = self.source.load()
        if self.side is None:
            return image
        high, wide = image.shape[:2]
        scale = min(self.side / min(high, wide), MAX_ASPECT * self.side / max(high, wide))
        size = (max(16, round(wide * scale)), max(16, round(high * scale)))
        return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.LANCZOS))

    def png(self) -> bytes:
        """Encode the image as PNG."""
        file = io.BytesIO()
        Pillow.fromarray(self.image()).save(file, "PNG", compress_level=1)
        return file.getvalue()


def references(samples: Iterable[Sample], labels: Labels, side: int | None = None) -> list[Reference]:
    """Return the clean images of a source as references; each needs a label, which names its folder."""
    by_name: dict[tuple[str, str], Reference] = {}
    for sample in samples:
        if sample.shift != CLEAN:
            continue
        if sample.label is None:
            raise SoritesError(f"{sample.id} has no label, which this dataset needs for its class folders")
        folder, stem = safe_name(labels.ids[sample.label]), safe_name(PurePosixPath(sample.id).stem)
        if (folder.lower(), stem.lower()) in by_name:
            stem = f"{stem}-{digest(sample.id, size=4).hex()}"
        by_name[folder.lower(), stem.lower()] = Reference(sample.id, folder, stem, sample.image, side)
    if not by_name:
        raise SoritesError("the source contains no clean images to photograph")
    return list(by_name.values())


def safe_name(name: str) -> str:
    """Return a portable file name: no slashes, no leading dot, limited length."""
    plain = _UNSAFE.sub("_", name).strip(" .")[:MAX_NAME]
    return plain or f"_{digest(name, size=4).hex()}"


def stage_of(references: Iterable[Reference]) -> tuple[int, int]:
    """Return the smallest width and height that fit every image."""
    sizes = [image.shape[1::-1] for image in (reference.image() for reference in references)]
    return max(width for width, _ in sizes), max(height for _, height in sizes)
