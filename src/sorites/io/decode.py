"""Decode image files to upright, 8-bit sRGB arrays.

Pixel values are read as sRGB, as the data loaders used for training do: ICC profiles are not
applied, and CMYK becomes RGB by (255 - ink)(255 - black) / 255. 16 bits become 8 by dropping the low
byte. Only the first frame of an animation is read. Images are converted to RGB in strips, so that a
large image is in memory twice and not six times.
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

from sorites.core.errors import BadImage, SoritesError, as_utf8
from sorites.core.messages import option
from sorites.io.paths import is_dir, is_file, reason
from sorites.io.stores import StorePath, to_path

# The default maximum number of pixels of an image. A small file can claim any size, so the header is checked
# before the image is decoded.
MAX_PIXELS = 100_000_000

# Formats that need 16 bytes per pixel while decoding; all others need 5 to 12.
_TWICE = ("WEBP",)


class _Limit:
    """The limit of this process, which all of its threads share; it does not affect results."""

    pixels = MAX_PIXELS


def max_pixels() -> int:
    """Return the maximum number of pixels of an image in this process."""
    return _Limit.pixels


def allow_pixels(most: int) -> None:
    """Set the maximum number of pixels of an image in this process, as in a worker process that starts.

    Args:
        most: The maximum, above 0.

    Raises:
        SoritesError: It is not above 0.
    """
    if most < 1:
        raise SoritesError(f"expected a maximum number of pixels above 0, got {most}")
    _Limit.pixels = most


@contextlib.contextmanager
def pixel_limit(most: int | None) -> Iterator[None]:
    """Allow images of up to ``most`` pixels in this process and the workers of its engines.

    Args:
        most: The maximum number of pixels; None keeps the limit.

    Raises:
        SoritesError: It is not above 0.

    Example:
        >>> with pixel_limit(300_000_000):
        ...     max_pixels()
        300000000
        >>> max_pixels()
        100000000
    """
    before = max_pixels()
    allow_pixels(before if most is None else most)
    try:
        yield
    finally:
        allow_pixels(before)


def refuse_large(image: ImageFile.ImageFile) -> None:
    """Raise ``BadImage`` if an image has too many pixels, or none."""
    pixels = image.width * image.height
    if not pixels:
        raise BadImage("it has no pixels")
    twice = image.format in _TWICE
    counted, most = pixels * (2 if twice else 1), max_pixels()
    if counted > most:
        why = f" (counted twice because {image.format} needs twice the memory)" if twice else ""
        raise BadImage(
            f"{image.width} x {image.height} pixels{why} exceed the limit of {most:,}. To read the image,"
            f" pass {option('max_pixels', counted)}"
        )


# The grey level (of 255, sRGB) behind transparent pixels.
GROUND = 128

# The number of pixels converted to RGB at a time.
STRIP = 1 << 20

# Converts a loaded image to an array.
Turn = Callable[[Image.Image], NDArray[np.uint8]]

# File name extensions of images; the content decides the format.
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

# The factories are chosen by file signature instead of Image.open, which would expose every parser of
# Pillow and would emit a warning for images of 90 million pixels that threads cannot silence one by one.
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


def decode(source: str | Path | bytes, name: str = "") -> NDArray[np.uint8]:
    """Return an image as H x W x 3, with transparent pixels blended onto ``GROUND``.

    Args:
        source: A path or the bytes of a file.
        name: The name of the image in error messages, for bytes.

    Raises:
        BadImage: The image cannot be read or is too large.
    """
    return _read(
        source,
        name,
        lambda image: on_ground(_array(image, "RGBA")) if image.has_transparency_data else _array(image),
    )


def decode_rgba(source: str | Path | bytes, name: str = "") -> NDArray[np.uint8]:
    """Return an image as H x W x 4 (RGB and alpha); alpha is 255 if the file has none."""
    return _read(source, name, lambda image: _array(image, "RGBA"))


def _array(image: Image.Image, mode: str = "RGB") -> NDArray[np.uint8]:
    return np.array(image if image.mode == mode else image.convert(mode))


def size(path: str | Path) -> tuple[int, int]:
    """Return the width and height of an image as ``decode`` returns it, reading only the file header."""
    try:
        with _stream(path) as stream:
            opened = _open(stream)
            width, height = opened.size
            if isinstance(opened, TiffImagePlugin.TiffImageFile):
                # Versions of Pillow differ in when they rotate the size of a TIFF, so read the raw tags.
                width, height = (
                    opened.tag_v2[tag] for tag in (TiffImagePlugin.IMAGEWIDTH, TiffImagePlugin.IMAGELENGTH)
                )
            return (
                (height, width) if opened.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8) else (width, height)
            )
    except BadImage as error:
        raise BadImage(f"{path}: {error}") from None
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        raise BadImage(f"{path}: cannot be read as an image: {error or type(error).__name__}") from error


def on_ground(rgba: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend an RGBA image onto ``GROUND``, rounding the 8-bit sRGB values."""
    alpha = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3] * alpha + GROUND * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)


def _read(source: str | Path | bytes, name: str, turn: Turn) -> NDArray[np.uint8]:
    """Load an image upright and convert it with ``turn``."""
    called = name or ("bytes" if isinstance(source, bytes) else as_utf8(str(source)))
    try:
        with _stream(source) as stream:
            opened = _open(stream)
            opened.load()
            return _in_strips(_upright(opened), opened, turn)
    except BadImage as error:
        raise BadImage(f"{called}: {error}") from None
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        raise BadImage(f"{called}: cannot be read as an image: {reason(error)}") from error


def _in_strips(image: Image.Image, opened: ImageFile.ImageFile, turn: Turn) -> NDArray[np.uint8]:
    """Convert an image strip by strip to save memory; pixels are independent, so the result is the same."""
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
    path = to_path(source)
    if isinstance(path, StorePath):
        return io.BytesIO(path.read_bytes())
    if is_dir(path) or (os.path.exists(path) and not is_file(path)):
        raise BadImage(f"expected an image, got a {'folder' if is_dir(path) else 'special file'}")
    return path.open("rb")


def _open(stream: IO[bytes]) -> ImageFile.ImageFile:
    start = stream.read(16)
    if not start:
        raise BadImage("the file is empty")
    factory = next((make for magic, make in _FACTORIES if start.startswith(magic)), None)
    if factory is None or (start[:4] == b"RIFF" and start[8:12] != b"WEBP"):
        raise BadImage("not an image: expected JPEG, PNG, WebP, BMP, TIFF, GIF or PPM")
    stream.seek(0)
    image = factory(stream, "")
    refuse_large(image)
    return image


def _upright(image: ImageFile.ImageFile) -> Image.Image:
    """Rotate an image according to its EXIF orientation; unreadable EXIF is ignored.

    Pillow rotates TIFFs itself when it loads them.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return image
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:
        orientation = 1
    return image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image


def _eight_bits(image: Image.Image, opened: ImageFile.ImageFile) -> Image.Image:
    """Convert 16-bit grey to 8 bits, and CMYK to RGB."""
    if image.mode == "CMYK":
        # Pillow assumes that every CMYK JPEG comes from Adobe, which inverts the ink values; files without
        # the Adobe marker are not inverted, so undo Pillow's inversion.
        plain = isinstance(opened, JpegImagePlugin.JpegImageFile) and "adobe" not in opened.info
        return (ImageChops.invert(image) if plain else image).convert("RGB")
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if values.dtype.kind == "f" or values.min() < 0 or values.max() > 65535:
        raise BadImage(
            f"pixels of mode {image.mode} have no defined white; save it with 8 or 16 bits per channel"
        )
    grey = Image.fromarray((values >> 8).astype(np.uint8))
    if "transparency" in image.info:
        grey.putalpha(
            Image.fromarray(np.where(values == image.info["transparency"], 0, 255).astype(np.uint8))
        )
    return grey
