"""Read RAW files of cameras (CR2, CR3, NEF, ARW, DNG ...) as sensor values, through LibRaw."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core.errors import BadImage, MissingExtra
from sorites.io.decode import max_pixels

# File extensions that are read as RAW.
RAW_SUFFIXES = (
    *(".dng", ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".sr2", ".raf"),
    *(".orf", ".rw2", ".pef", ".srw", ".raw", ".iiq", ".3fr"),
)

# Linear sRGB to CIE XYZ (IEC 61966-2-1, D65).
XYZ_FROM_SRGB = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


@dataclass(frozen=True)
class RawImage:
    """The values of a Bayer sensor before any development.

    Attributes:
        values: Digital number of each visible pixel, H x W; H and W are even.
        channels: Colour of each pixel of a 2 x 2 block: 0 red, 1 green, 2 blue.
        black: Digital number of no light: red, green, blue.
        white: Digital number at which values saturate.
        balance: White-balance gains of the camera: red, green (1), blue.
        matrix: From balanced colours of the camera to linear sRGB; white stays white.
        iso: ISO speed; None if the file does not have it.
        shutter: Shutter time in s; None if the file does not have it.
        aperture: F-number; None if the file does not have it.
    """

    values: NDArray[np.uint16]
    channels: NDArray[np.int64]
    black: tuple[float, float, float]
    white: float
    balance: tuple[float, float, float]
    matrix: NDArray[np.float64]
    iso: float | None = None
    shutter: float | None = None
    aperture: float | None = None

    def sites(self) -> NDArray[np.uint16]:
        """Return the pixels of each place in the 2 x 2 block as a plane: 4 x H/2 x W/2."""
        return np.stack([self.values[row::2, column::2] for row, column in np.ndindex(2, 2)])


def rawpy() -> Any:
    """Return the library that reads RAW files."""
    try:
        import rawpy
    except ImportError as error:
        raise MissingExtra("reading RAW files", "raw") from error
    return rawpy


def read_raw(source: str | Path | bytes, name: str = "") -> RawImage:
    """Read the sensor values of a RAW file.

    Args:
        source: The file, or its content.
        name: Its name in messages; the path by default.

    Raises:
        BadImage: The file cannot be read, is too large, or its sensor has no Bayer mosaic.
        MissingExtra: rawpy is not installed.
    """
    library = rawpy()
    name = name or (str(source) if not isinstance(source, bytes) else "the RAW file")
    try:
        opened = library.imread(io.BytesIO(source) if isinstance(source, bytes) else str(source))
    except (library.LibRawError, OSError) as error:
        raise BadImage(f"{name}: cannot be read as a RAW file: {_reason(error)}") from error
    with opened:
        sizes = opened.sizes
        if sizes.raw_height * sizes.raw_width > max_pixels():
            raise BadImage(
                f"{name}: {sizes.raw_width} x {sizes.raw_height} px are more than {max_pixels():,} pixels"
            )
        try:
            return _mosaic(opened, name)
        except library.LibRawError as error:
            raise BadImage(f"{name}: cannot be read as a RAW file: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the text of an error; those of LibRaw are bytes."""
    text = error.args[0] if error.args else None
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(error)


def _mosaic(opened: Any, name: str) -> RawImage:
    values, pattern = opened.raw_image_visible, opened.raw_pattern
    if values is None or values.ndim != 2 or pattern is None or np.shape(pattern) != (2, 2):
        raise BadImage(f"{name}: expected the values of a Bayer sensor (2 x 2 colours); the file has others")
    letters = opened.color_desc.decode("ascii")
    colours = np.array(
        [["RGB".find(letters[index]) for index in row] for row in opened.raw_colors_visible[:2, :2]]
    )
    if (colours < 0).any() or set(colours.ravel()) != {0, 1, 2}:
        raise BadImage(f"{name}: expected red, green and blue filters, got {letters}")
    height, width = (side // 2 * 2 for side in values.shape)
    black, white = _levels(opened, letters)
    other = opened.other
    return RawImage(
        np.array(values[:height, :width]),
        colours,
        black,
        white,
        _balance(opened),
        _matrix(np.array(opened.rgb_xyz_matrix, np.float64)[:3]),
        _positive(other.iso_speed),
        _positive(other.shutter_speed),
        _positive(other.aperture),
    )


def _levels(opened: Any, letters: str) -> tuple[tuple[float, float, float], float]:
    blacks = opened.black_level_per_channel
    black = [
        float(np.mean([value for letter, value in zip(letters, blacks, strict=False) if letter == c]))
        for c in "RGB"
    ]
    whites = opened.camera_white_level_per_channel
    white = float(min(whites)) if whites and min(whites) > 0 else float(opened.white_level)
    return (black[0], black[1], black[2]), white


def _balance(opened: Any) -> tuple[float, float, float]:
    """Return the gains as shot, else those for daylight, else 1, relative to green."""
    for gains in (opened.camera_whitebalance, opened.daylight_whitebalance):
        red, green, blue = (float(gain) for gain in gains[:3])
        if min(red, green, blue) > 0:
            return red / green, 1.0, blue / green
    return 1.0, 1.0, 1.0


def _matrix(camera_from_xyz: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix to linear sRGB from that of the file, CIE XYZ to camera; without one, the
    identity.
    """
    camera_from_srgb = camera_from_xyz @ XYZ_FROM_SRGB
    if abs(np.linalg.det(camera_from_srgb)) < 1e-6:
        return np.eye(3)
    return np.linalg.inv(camera_from_srgb / camera_from_srgb.sum(1, keepdims=True))


def _positive(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) and value > 0 else None
