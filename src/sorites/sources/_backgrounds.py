"""Photographs of places without things in them, from two Debian packages: grass, forest, rocks, water.

The table ``backgrounds.tsv`` names them, their licences and where the ground begins. They are fetched once, into the user's
cache, and are not shipped with Sorites. Places that no photograph shows are drawn (see ``sorites.scenes.scenery``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby

import numpy as np
from PIL import Image as Pillow

from sorites.core import Picture
from sorites.files import cache
from sorites.sources import _debian as debian
from sorites.sources._decode import decode


@dataclass(frozen=True)
class Background:
    """One row of the table; ``horizon`` is the share of the picture's height that lies above the ground."""

    location: str
    package: str
    folder: str
    file: str
    horizon: float
    sha256: str
    credit: str

    def load(self) -> Picture:
        """Return the photograph, at most ``LARGEST`` px per side; the array is read-only and kept once it was read."""
        return _loaded(self.package, self.file)


LARGEST = 1024
"""The most pixels per side of a loaded photograph."""


@functools.cache
def _loaded(package: str, file: str) -> Picture:
    picture = Pillow.fromarray(decode(cache("backgrounds", package, file)))
    picture.thumbnail((LARGEST, LARGEST), Pillow.Resampling.LANCZOS)
    pixels = np.asarray(picture)
    pixels.flags.writeable = False
    return pixels


@functools.cache
def table() -> tuple[Background, ...]:
    """Return the rows of ``backgrounds.tsv``."""
    lines = files("sorites.sources").joinpath("backgrounds.tsv").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines[1:])
    return tuple(Background(a, b, c, d, float(horizon), *rest) for a, b, c, d, horizon, *rest in rows)


def fetch() -> tuple[Background, ...]:
    """Fetch the photographs that are not yet in the cache, and return the rows of all."""
    for (package, folder), rows in groupby(sorted(table(), key=_place), key=_place):
        wanted = {row.file: row.sha256 for row in rows}
        note = f"Fetching {len(wanted)} photographs of places from Debian's {package}. It is not installed."
        debian.fetch(package, folder, wanted, cache("backgrounds", package), note)
    return table()


def _place(row: Background) -> tuple[str, str]:
    return row.package, row.folder
