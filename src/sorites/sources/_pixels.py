"""Limit the size of pictures. A small file can claim any size, so its header is held against the limit before it is decoded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from PIL import ImageFile

from sorites.errors import BadPicture, SoritesError

MOST = 100_000_000
"""The most pixels of a picture, where nothing else is said."""

VARIABLE = "SORITES_MAX_PIXELS"
"""The environment variable that says otherwise. Worker processes inherit it, and no number of a run follows from it."""

_TWICE = ("WEBP",)
"""Formats of which a pixel takes twice the memory while it is decoded: 16 bytes; others take 5 to 12, alpha and 16 bits too."""


def allowed() -> int:
    """Return the most pixels that a picture may have now."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return MOST
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) > 0):
        raise SoritesError(f"{VARIABLE} wants a whole number above 0, got {text[:40]!r}")
    return int(text)


@contextlib.contextmanager
def pixels_allowed(most: int | None) -> Iterator[None]:
    """Allow pictures of up to ``most`` pixels meanwhile, in this process and in those that it starts; None changes nothing."""
    before = os.environ.get(VARIABLE)
    if most is not None:
        os.environ[VARIABLE] = str(most)
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        elif most is not None:
            os.environ.pop(VARIABLE, None)


def refuse_large(image: ImageFile.ImageFile) -> None:
    """Refuse a picture that has too many pixels, or none."""
    pixels = image.width * image.height
    if not pixels:
        raise BadPicture("it has no pixels")
    twice = image.format in _TWICE
    counted, most = pixels * (2 if twice else 1), allowed()
    if counted > most:
        why = f", each counted twice as {image.format} takes twice the memory," if twice else ""
        raise BadPicture(
            f"{image.width} x {image.height} pixels{why} are more than the {most:,} allowed. To read it: --max-pixels {counted}"
        )
