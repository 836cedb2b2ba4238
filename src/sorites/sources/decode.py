"""Decode files to images: upright, sRGB, 8 bits, whatever the file holds.

Numbers are read as sRGB, as the loaders that models are trained with do: ICC profiles are not
applied, and CMYK becomes RGB by (255 - ink)(255 - black) / 255. 16 bits become 8 by dropping the
low byte. Only the first frame of an animation is read. What Pillow decoded is brought to RGB in
strips, so that a large image is in memory twice and not six times.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageChops,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from sorites.core import ImageU8
from sorites.core.errors import BadImage, SoritesError, as_utf8
from sorites.io.paths import is_dir, is_file, reason
from sorites.io.stores import StorePath, place

# Limit the size of images. A small file can claim any size, so its header is held against the limit
# before it is decoded.


# The most pixels of an image, where nothing else is said.
MOST = 100_000_000

# The environment variable that says otherwise. Worker processes inherit it, and no number of a run
# follows from it.
VARIABLE = "SORITES_MAX_PIXELS"

# Formats of which a pixel takes twice the memory while it is decoded: 16 bytes; others take 5 to
# 12, alpha and 16 bits too.
_TWICE = ("WEBP",)


def allowed() -> int:
    """Return the most pixels that an image may have now."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return MOST
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and int(text) > 0):
        raise SoritesError(f"{VARIABLE} wants a whole number above 0, got {text[:40]!r}")
    return int(text)


@contextlib.contextmanager
def pixels_allowed(most: int | None) -> Iterator[None]:
    """Allow images of up to ``most`` pixels meanwhile, in this process and in those that it
    starts; None changes nothing.
    """
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
    """Refuse an image that has too many pixels, or none."""
    pixels = image.width * image.height
    if not pixels:
        raise BadImage("it has no pixels")
    twice = image.format in _TWICE
    counted, most = pixels * (2 if twice else 1), allowed()
    if counted > most:
        why = f", each counted twice as {image.format} takes twice the memory," if twice else ""
        raise BadImage(
            f"{image.width} x {image.height} pixels{why} are more than the {most:,} allowed. To read it:"
            f" --max-pixels {counted}"
        )


# The grey (of 255, sRGB) that shows through transparent pixels.
GROUND = 128

# The pixels that are brought to RGB at a time.
STRIP = 1 << 20

# From a loaded image to the array that is wanted of it.
Turn = Callable[[Image.Image], NDArray[np.uint8]]

# The endings of file names that promise an image; the first bytes of a file decide what it is.
SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".jpe",
    ".png",
    ".webp",
    ".bmp",
    ".tif",
    ".tiff",
    ".gif",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
)

# The factories are called by signature and not through Image.open: that would reach every parser
# Pillow has, and would
# answer an image of 90 million pixels with a warning, which threads cannot silence one by one.
_FACTORIES: tuple[tuple[bytes, Callable[[IO[bytes], str], ImageFile.ImageFile]], ...] = (
    (b"\xff\xd8\xff", JpegImagePlugin.jpeg_factory),
    (b"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile),
    (b"RIFF", WebPImagePlugin.WebPImageFile),
    (b"BM", BmpImagePlugin.BmpImageFile),
    *((magic, TiffImagePlugin.TiffImageFile) for magic in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
    *((magic, GifImagePlugin.GifImageFile) for magic in (b"GIF87a", b"GIF89a")),
    *((b"P%d" % kind, PpmImagePlugin.PpmImageFile) for kind in range(1, 7)),
)

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112


def decode(source: str | Path | bytes, name: str = "") -> ImageU8:
    """Return an image of H x W x 3, with transparent pixels laid on ``GROUND``.

    ``name`` is what messages call an image that is given as bytes.
    """
    return _read(
        source,
        name,
        lambda image: on_ground(_array(image, "RGBA")) if image.has_transparency_data else _array(image),
    )


def decode_rgba(source: str | Path | bytes, name: str = "") -> NDArray[np.uint8]:
    """Return H x W x 4: the image and its alpha, which is 255 where the file has none."""
    return _read(source, name, lambda image: _array(image, "RGBA"))


def _array(image: Image.Image, mode: str = "RGB") -> NDArray[np.uint8]:
    return np.array(image if image.mode == mode else image.convert(mode))


def size(path: str | Path) -> tuple[int, int]:
    """Return the width and the height of an image as ``decode`` gives it, from the first bytes of
    its file.
    """
    try:
        with _stream(path) as stream:
            opened = _open(stream)
            width, height = opened.size
            if isinstance(
                opened, TiffImagePlugin.TiffImageFile
            ):  # releases of Pillow differ in when they turn the size of a TIFF
                width, height = (
                    opened.tag_v2[tag] for tag in (TiffImagePlugin.IMAGEWIDTH, TiffImagePlugin.IMAGELENGTH)
                )
            return (
                (height, width) if opened.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8) else (width, height)
            )
    except BadImage as error:
        raise BadImage(f"{path}: {error}") from None
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise BadImage(f"{path}: cannot be read as an image: {error or type(error).__name__}") from error


def on_ground(rgba: NDArray[np.uint8]) -> ImageU8:
    """Lay a cut-out on ``GROUND``: mix the 8-bit sRGB values by alpha and round."""
    alpha = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3] * alpha + GROUND * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)


def _read(source: str | Path | bytes, name: str, turn: Turn) -> NDArray[np.uint8]:
    """Load an image, upright and in a mode that ``convert`` turns into RGB or RGBA correctly, and
    turn it into an array.
    """
    called = name or ("bytes" if isinstance(source, bytes) else as_utf8(str(source)))
    try:
        with _stream(source) as stream:
            opened = _open(stream)
            opened.load()
            return _in_strips(_upright(opened), opened, turn)
    except BadImage as error:
        raise BadImage(f"{called}: {error}") from None
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise BadImage(f"{called}: cannot be read as an image: {reason(error)}") from error


def _in_strips(image: Image.Image, opened: ImageFile.ImageFile, turn: Turn) -> NDArray[np.uint8]:
    """Turn an image strip by strip: every pixel stands for itself, so that the result is that of
    the whole.
    """
    width, height = image.size
    rows = max(1, STRIP // width)
    if rows >= height:
        return turn(_eight_bits(image, opened))
    parts = (
        turn(_eight_bits(image.crop((0, top, width, min(top + rows, height))), opened))
        for top in range(0, height, rows)
    )
    first = next(parts)
    whole = np.empty((height, *first.shape[1:]), np.uint8)
    whole[:rows] = first
    for number, part in enumerate(parts, start=1):
        whole[number * rows : number * rows + len(part)] = part
    return whole


def _stream(source: str | Path | bytes) -> IO[bytes]:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    path = place(source)
    if isinstance(path, StorePath):
        return io.BytesIO(path.read_bytes())
    if is_dir(path) or (os.path.exists(path) and not is_file(path)):
        raise BadImage(f"wanted an image, got a {'folder' if is_dir(path) else 'special file'}")
    return path.open("rb")


def _open(stream: IO[bytes]) -> ImageFile.ImageFile:
    start = stream.read(16)
    if not start:
        raise BadImage("the file is empty")
    factory = next((make for magic, make in _FACTORIES if start.startswith(magic)), None)
    if factory is None or (start[:4] == b"RIFF" and start[8:12] != b"WEBP"):
        raise BadImage("not an image: wanted JPEG, PNG, WebP, BMP, TIFF, GIF or PPM")
    stream.seek(0)
    image = factory(stream, "")
    refuse_large(image)
    return image


def _upright(image: ImageFile.ImageFile) -> Image.Image:
    """Turn an image as its EXIF says; a TIFF was turned while it loaded.

    EXIF that cannot be read is ignored.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return image
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:
        orientation = 1
    return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image


def _eight_bits(image: Image.Image, opened: ImageFile.ImageFile) -> Image.Image:
    """Bring 16-bit grey to 8 bits, and CMYK to RGB."""
    if image.mode == "CMYK":
        # Pillow takes every CMYK JPEG for Adobe's, which stores ink inverted; without
        # Adobe's mark it is not inverted.
        plain = isinstance(opened, JpegImagePlugin.JpegImageFile) and "adobe" not in opened.info
        return (ImageChops.invert(image) if plain else image).convert("RGB")
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > 65535:
        raise BadImage(
            f"pixels of mode {image.mode} have no stated white; save it with 8 or 16 bits per channel"
        )
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if "transparency" in image.info:
        grey.putalpha(
            Image.fromarray(np.where(values == image.info["transparency"], 0, 255).astype(np.uint8))
        )
    return grey
