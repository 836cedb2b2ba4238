"""RAW files of the virtual camera: sensor values as an uncompressed DNG with a Bayer mosaic.

Adobe, "Digital Negative Specification", 1.4; TIFF 6.0.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sorites.optics.camera import Body, Exposure
from sorites.optics.sensor import COLOUR

# TIFF types: bytes per value and format of ``struct``.
_BYTE, _ASCII, _SHORT, _LONG, _RATIONAL, _SIGNED = 1, 2, 3, 4, 5, 10
_FORMATS = {_BYTE: "B", _ASCII: "B", _SHORT: "H", _LONG: "I", _RATIONAL: "II", _SIGNED: "ii"}
_EXIF = 0x8769
_STRIP_OFFSETS = 273
# From CIE XYZ to the colours of the virtual sensor: linear sRGB.
_MATRIX = (3.2406, -1.5372, -0.4986, -0.9689, 1.8758, 0.0415, 0.0557, -0.2040, 1.0570)
_D65 = 21


@dataclass(frozen=True)
class _Entry:
    tag: int
    kind: int
    values: Sequence[float]

    def data(self) -> bytes:
        if self.kind in (_RATIONAL, _SIGNED):
            pairs = [Fraction(value).limit_denominator(1_000_000) for value in self.values]
            numbers = [number for pair in pairs for number in (pair.numerator, pair.denominator)]
            return struct.pack("<" + _FORMATS[self.kind] * len(pairs), *numbers)
        return struct.pack(f"<{len(self.values)}{_FORMATS[self.kind]}", *map(int, self.values))


def encode_dng(values: NDArray[np.uint16], body: Body, exposure: Exposure | None = None) -> bytes:
    """Return a DNG file of sensor values.

    Args:
        values: Digital numbers of a mosaic, H x W, red in the upper left corner.
        body: The camera, whose black level, white level and white balance are recorded.
        exposure: ISO, shutter and aperture for the file's EXIF.
    """
    height, width = values.shape
    neutral = [1 / gain for gain in body.balance]
    entries = [
        _Entry(254, _LONG, [0]),  # full resolution
        _Entry(256, _LONG, [width]),
        _Entry(257, _LONG, [height]),
        _Entry(258, _SHORT, [16]),
        _Entry(259, _SHORT, [1]),  # uncompressed
        _Entry(262, _SHORT, [32803]),  # a colour filter array
        _text(271, "Sorites"),
        _text(272, body.name),
        _Entry(_STRIP_OFFSETS, _LONG, [0]),
        _Entry(274, _SHORT, [1]),
        _Entry(277, _SHORT, [1]),
        _Entry(278, _LONG, [height]),
        _Entry(279, _LONG, [values.nbytes]),
        _Entry(284, _SHORT, [1]),
        _Entry(33421, _SHORT, [2, 2]),
        _Entry(33422, _BYTE, COLOUR.ravel().tolist()),
        _Entry(50706, _BYTE, [1, 4, 0, 0]),
        _Entry(50707, _BYTE, [1, 1, 0, 0]),
        _text(50708, f"Sorites {body.name}"),
        _Entry(50714, _LONG, [body.black_dn]),
        _Entry(50717, _LONG, [body.white_dn]),
        _Entry(50721, _SIGNED, _MATRIX),
        _Entry(50728, _RATIONAL, neutral),
        _Entry(50778, _SHORT, [_D65]),
    ]
    return _file(entries, _exif(exposure), np.ascontiguousarray(values, "<u2").tobytes())


def _text(tag: int, text: str) -> _Entry:
    return _Entry(tag, _ASCII, [*text.encode("ascii", "replace"), 0])


def _exif(exposure: Exposure | None) -> list[_Entry]:
    if exposure is None:
        return []
    return [
        _Entry(0x829A, _RATIONAL, [exposure.shutter]),
        _Entry(0x829D, _RATIONAL, [exposure.aperture]),
        _Entry(0x8827, _SHORT, [min(65535, round(exposure.iso))]),
    ]


def _file(entries: list[_Entry], exif: list[_Entry], pixels: bytes) -> bytes:
    start = 8
    if exif:
        entries = sorted([*entries, _Entry(_EXIF, _LONG, [0])], key=lambda entry: entry.tag)
    after_main = start + len(_directory(entries, start))
    after_exif = after_main + (len(_directory(exif, after_main)) if exif else 0)
    places = {_STRIP_OFFSETS: after_exif, _EXIF: after_main}
    placed = [_Entry(e.tag, e.kind, [places[e.tag]]) if e.tag in places else e for e in entries]
    parts = [_directory(placed, start), _directory(exif, after_main) if exif else b"", pixels]
    return struct.pack("<2sHI", b"II", 42, start) + b"".join(parts)


def _directory(entries: Sequence[_Entry], start: int) -> bytes:
    """Return a directory of tags followed by the values that do not fit into it."""
    head, tail = struct.pack("<H", len(entries)), b""
    first = start + 2 + 12 * len(entries) + 4
    for entry in entries:
        data = entry.data()
        count = len(entry.values)
        if len(data) <= 4:
            stored = data.ljust(4, b"\0")
        else:
            stored = struct.pack("<I", first + len(tail))
            tail += data + b"\0" * (len(data) % 2)
        head += struct.pack("<HHI", entry.tag, entry.kind, count) + stored
    return head + struct.pack("<I", 0) + tail
