"""The pictures that are photographed: where each lies in the published layout, and the bytes that the screen shows."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites.core import CLEAN, Picture, Sample
from sorites.errors import SoritesError
from sorites.labels import Labels
from sorites.rng import digest
from sorites.sources._decode import decode
from sorites.stores import place

_KEPT = (".jpg", ".jpeg", ".png")
_UNSAFE = re.compile(r"[^0-9A-Za-z._+\-() \u00a1-\uffff]")
LONGER = 1.5
"""The most that a picture's longer side may be of the shorter side that is asked for."""
LONGEST = 120
"""The most letters of a file's name."""


@dataclass(frozen=True)
class Reference:
    """A picture to photograph: its class folder and the stem of its file's name, both safe on any disk."""

    id: str
    folder: str
    stem: str
    load: Any
    side: int | None = None
    """The shorter side that the picture is brought to, or None to show it as it is."""

    @functools.cached_property
    def file(self) -> tuple[bytes, str]:
        """The bytes of the reference's file and its ending: the file itself where the sample is one, otherwise a PNG."""
        plain = self.side is None and isinstance(self.load, functools.partial) and self.load.func is decode
        path = place(self.load.args[0]) if plain and isinstance(self.load.args[0], str | Path) else None
        if path is not None and path.suffix.lower() in _KEPT:
            return path.read_bytes(), ".JPEG" if path.suffix.lower() != ".png" else ".png"
        return self.png(), ".png"

    def picture(self) -> Picture:
        """Return the pixels that the screen shows and that photographs are compared with."""
        picture: Picture = self.load()
        if self.side is None:
            return picture
        high, wide = picture.shape[:2]
        scale = min(self.side / min(high, wide), LONGER * self.side / max(high, wide))
        size = (max(16, round(wide * scale)), max(16, round(high * scale)))
        return np.asarray(Pillow.fromarray(picture).resize(size, Pillow.Resampling.LANCZOS))

    def png(self) -> bytes:
        """Return the picture as the bytes of a PNG file."""
        file = io.BytesIO()
        Pillow.fromarray(self.picture()).save(file, "PNG", compress_level=1)
        return file.getvalue()


def references(samples: Iterable[Sample], labels: Labels, side: int | None = None) -> list[Reference]:
    """Return the clean pictures of a source as references; every one needs a label, which names its folder."""
    made: dict[tuple[str, str], Reference] = {}
    for sample in samples:
        if sample.shift != CLEAN:
            continue
        if sample.label is None:
            raise SoritesError(f"{sample.id} has no label: pictures lie in class folders in this dataset. Put it into one")
        folder, stem = safe(labels.ids[sample.label]), safe(PurePosixPath(sample.id).stem)
        if (folder.lower(), stem.lower()) in made:
            stem = f"{stem}-{digest(sample.id, size=4).hex()}"
        made[folder.lower(), stem.lower()] = Reference(sample.id, folder, stem, sample.load, side)
    if not made:
        raise SoritesError("the source holds no clean pictures to photograph")
    return list(made.values())


def safe(name: str) -> str:
    """Return a name that is a plain file name everywhere: no slashes, no dot first, not too long."""
    plain = _UNSAFE.sub("_", name).strip(" .")[:LONGEST]
    return plain or f"_{digest(name, size=4).hex()}"


def stage_of(held: Iterable[Reference]) -> tuple[int, int]:
    """Return the width and height that hold every picture."""
    sizes = [picture.shape[1::-1] for picture in (reference.picture() for reference in held)]
    return max(width for width, _ in sizes), max(height for _, height in sizes)
