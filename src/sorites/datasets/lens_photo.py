"""Render whole images through a lens as lossless PNG files that record how they were made."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import PngImagePlugin

from sorites.core import ImageU8, to_uint8
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.core.progress import Bar
from sorites.io.decode import decode
from sorites.io.files import write_bytes
from sorites.io.paths import is_file, resolve
from sorites.lenses.store import Entry, warn_of_rotation
from sorites.optics.tracing.field import TiledImage, transfer

# Increment when a pixel changes.
VERSION = 2
# PNG text key of the record of how a file was made; a file with an equal record is not made again.
NOTE = "sorites"


def through(entry: Entry, image: ImageU8, corner: float = 1.0) -> ImageU8:
    """Return an 8-bit image seen through the lens; extra memory does not grow with its height."""
    tiled = TiledImage(image, entry.arrays["kernels"].shape[-1], corner)
    result = np.empty(image.shape, np.uint8)
    for top, strip in tiled.through(transfer(entry.around(), tiled.tiling)):
        result[top : top + len(strip)] = to_uint8(strip)
    return result


def photograph(
    entry: Entry, images: Sequence[Path], out: Path, corner: float = 1.0, bar: Bar | None = None
) -> list[tuple[Path, str]]:
    """Write each image, seen through a lens, to ``out`` as a PNG with the same stem.

    Args:
        entry: The lens.
        images: Image files.
        out: Folder of the results.
        corner: Position of the image corners as a fraction of the half field.
        bar: Progress display.

    Returns:
        The images that failed, with the reasons.
    """
    if not 0 < corner <= 1:
        raise SoritesError(
            f"{option('corner', None)}: expected a fraction of the half field above 0, up to 1, got {corner}"
        )
    warn_of_rotation([entry])
    tick = bar("lens", len(images)) if bar else lambda n: None
    failed = []
    for path, target in _targets(images, out):
        try:
            if isinstance(target, str):
                raise SoritesError(target)
            _write(entry, path, target, corner)
        except SoritesError as error:
            failed.append((path, str(error)))
        tick(1)
    return failed


def _targets(images: Sequence[Path], out: Path) -> Iterator[tuple[Path, Path | str]]:
    """Yield the output path of each image, or the reason why it cannot be written.

    No two images may share a file, and files written by others are not replaced.
    """
    inputs = {resolve(path) for path in images}
    taken: dict[Path, Path] = {}
    elsewhere = f"choose another {option('out', 'DIR')}"
    for path in images:
        target = out / f"{path.stem}.png"
        if resolve(target) in inputs:
            yield path, f"{path}: it would overwrite {target}; {elsewhere}"
        elif os.path.lexists(target) and _read_note(target) is None:
            yield path, f"{path}: {target} exists and is not an earlier result; {elsewhere}"
        elif taken.setdefault(target, path) != path:
            yield (
                path,
                f"{path}: {target} is already the result for {taken[target]}; rename one, or {elsewhere}",
            )
        else:
            yield path, target


def _write(entry: Entry, path: Path, target: Path, corner: float) -> None:
    """Write one image, unless the target already records the same lens, image and corner."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SoritesError(f"{path}: {error.strerror or error}") from error
    note = _note(entry, raw, corner)
    if _read_note(target) == note:
        return
    info = PngImagePlugin.PngInfo()
    info.add_text(NOTE, note)
    buffer = io.BytesIO()
    Pillow.fromarray(through(entry, decode(raw, str(path)), corner)).save(
        buffer, "PNG", compress_level=4, pnginfo=info
    )
    write_bytes(buffer.getvalue(), target)


def _note(entry: Entry, raw: bytes, corner: float) -> str:
    """Return the record of how an image is made: hashes of kernels and image, lens, corner and version."""
    kernels = [entry.arrays[key].tobytes() for key in ("kernels", "between") if key in entry.arrays]
    hashes = {"kernels": b"".join(kernels), "image": raw}
    parts = {key: hashlib.blake2b(data, digest_size=8).hexdigest() for key, data in hashes.items()}
    return json.dumps({**parts, "lens": entry.name, "corner": corner, "version": VERSION}, sort_keys=True)


def _read_note(target: Path) -> str | None:
    """Return the record of a file, or None if it is missing or was not written here."""
    if not is_file(target):
        return None
    try:
        with PngImagePlugin.PngImageFile(target) as file:
            return file.info.get(NOTE)
    except Exception:  # Pillow can raise anything for a damaged file
        return None
