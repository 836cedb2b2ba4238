"""Keep the camera's own files as they are, keep them as smaller JPEGs, or drop them."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image as Pillow

from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.studio.cameras import Photo

CHOICES = ("keep", "jpeg", "drop")
FOLDER = "originals"
QUALITY = 80


def checked_choice(choice: str) -> str:
    """Return the choice, or say which there are."""
    if choice not in CHOICES:
        raise SoritesError(f"--originals wants {', '.join(CHOICES)}; got {choice!r}")
    return choice


def kept_original(root: Path, path: str, photo: Photo, choice: str) -> str | None:
    """Keep the file of a camera beside the straightened photograph's path, and return where it lies, from the folder."""
    if choice == "drop":
        return None
    place = f"{FOLDER}/{path}"
    write_bytes(photo.data if choice == "keep" else _smaller(photo.data), root / place)
    return place


def _smaller(data: bytes) -> bytes:
    file = io.BytesIO()
    with Pillow.open(io.BytesIO(data), formats=("JPEG",)) as opened:
        opened.save(file, "JPEG", quality=QUALITY, exif=opened.getexif())
    return file.getvalue()
