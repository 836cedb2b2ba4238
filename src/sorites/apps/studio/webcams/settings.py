"""What cameras without dials have in common: a fixed aperture, a gain in place of the ISO, photographs as
JPEG.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from PIL import Image as Pillow

from sorites.apps.studio.cameras import CameraError, Params, format_value, number, stops_apart
from sorites.core import ImageU8
from sorites.core.errors import SoritesError, UnknownName

# A value that the camera reads back may differ from the requested one by this many stops.
NEAR_STOPS = 0.17
QUALITY = 98
OPTIONS = {"aperture": "the f-number of the lens", "gain": "the gain at ISO 100"}
_RATIONALS = 1_000_000


@dataclass(frozen=True)
class Optics:
    """The fixed parts of such a camera.

    Attributes:
        place: The device or address.
        aperture: F-number of its lens.
        gain: Gain of the device, in its own units, at ISO 100.
    """

    place: str
    aperture: float
    gain: float

    def check(self, params: Params) -> None:
        """Raise an error if a manual setting needs another aperture."""
        if stops_apart("aperture", float(params["aperture"]), self.aperture) > NEAR_STOPS:
            raise CameraError(
                f"the aperture of this camera is {format_value('aperture', self.aperture)} and cannot be"
                " set to"
                f" {format_value('aperture', float(params['aperture']))}; use a grid with this aperture"
            )


def optics_of(spec: str, default_gain: float) -> Optics:
    """Parse ``KIND:PLACE?aperture=2.0&gain=16``: the f-number of the lens and the gain at ISO 100.

    Raises:
        SoritesError: A value is not a number above 0, or an option is unknown.
    """
    kind, _, rest = spec.partition(":")
    place, mark, query = rest.rpartition("?")
    options = dict(part.partition("=")[::2] for part in query.split("&")) if mark else {}
    if not options.keys() <= OPTIONS.keys():
        if "://" not in rest:
            unknown = min(options.keys() - OPTIONS.keys())
            raise UnknownName(f"{kind} option", unknown, OPTIONS, f"There are {', '.join(OPTIONS)}.")
        mark, options = "", {}  # the query is part of the address
    values = {
        "aperture": _above_zero(kind, "aperture", options.get("aperture", "2")),
        "gain": _above_zero(kind, "gain", options.get("gain", str(default_gain))),
    }
    return Optics(place if mark else rest, **values)


def _above_zero(kind: str, key: str, text: str) -> float:
    value = number(text)
    if value is None:
        raise SoritesError(f"{kind}: {key} must be {OPTIONS[key]}, above 0, got {text!r}")
    return value


def near(key: str, wanted: float, found: float | None) -> bool:
    """Return whether a value that was read back is the requested one."""
    return found is not None and found > 0 and stops_apart(key, wanted, found) <= NEAR_STOPS


def encode(image: ImageU8, values: Mapping[str, Any]) -> bytes:
    """Encode a frame as JPEG with the values that the camera read back in its EXIF."""
    file = io.BytesIO()
    Pillow.fromarray(np.ascontiguousarray(image)).save(
        file, "JPEG", quality=QUALITY, subsampling=0, exif=_exif(values)
    )
    return file.getvalue()


def _exif(values: Mapping[str, Any]) -> Pillow.Exif:
    exif = Pillow.Exif()
    details = exif.get_ifd(0x8769)
    if "iso" in values:
        details[0x8827] = round(values["iso"])
    for tag, key in ((0x829A, "shutter"), (0x829D, "aperture")):
        if key in values:
            details[tag] = float(Fraction(values[key]).limit_denominator(_RATIONALS))
    return exif


def with_values(data: bytes, values: Mapping[str, Any]) -> bytes:
    """Return a JPEG file whose EXIF data are the values that the camera read back; its pixels stay the same.

    The library of a camera module writes an ISO that is its gain in other units, and no aperture.

    Raises:
        CameraError: The file is no JPEG.
    """
    if data[:2] != b"\xff\xd8":
        raise CameraError("the camera delivered no JPEG file")
    content = _exif(values).tobytes()
    kept, at = [data[:2], b"\xff\xe1", (len(content) + 2).to_bytes(2, "big"), content], 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] not in (b"", b"\xda"):
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at : at + 2] != b"\xff\xe1":
            kept.append(data[at:end])
        at = end
    return b"".join([*kept, data[at:]])
