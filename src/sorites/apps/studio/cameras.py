"""The camera interface of the studio, its errors, and parsing of camera settings."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sorites.core.errors import SoritesError
from sorites.io.raw_files import RAW_SUFFIXES

# Tolerance of a setting in stops: half a third of a stop, the step of a camera's dials.
NEAR_STOPS = 0.17
KEYS = {"iso": "ISO", "shutter": "shutter", "aperture": "aperture"}
_SECONDS = re.compile(r'(\d+)"(\d?)')


def seconds(text: str) -> float | None:
    """Parse a shutter time in s as cameras write it (1/125, 0"4, 30", 0.4, 0.4s); None for anything else."""
    text = text.strip().removesuffix("s").strip()
    match = _SECONDS.fullmatch(text)
    if match:
        return float(f"{match[1]}.{match[2] or 0}")
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) and value > 0 else None


def number(text: str) -> float | None:
    """Parse an ISO or f-number as cameras write it (400, f5.6, f/5.6); None for anything else, such as
    auto.
    """
    try:
        value = float(text.strip().lower().removeprefix("f").removeprefix("/"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def parse_value(key: str, text: str) -> float | None:
    """Parse a setting (iso, shutter or aperture) as cameras write it, or return None."""
    return seconds(text) if key == "shutter" else number(text)


def stops_apart(key: str, first: float, second: float) -> float:
    """Return the difference of two values in stops of light."""
    return abs(math.log2(first / second)) * (2 if key == "aperture" else 1)


def nearest(key: str, target: float, ability: Iterable[str]) -> str | None:
    """Return the camera's text of the value nearest to ``target``, or None if none is close enough."""
    values = ((text, parse_value(key, text)) for text in ability)
    near = [(stops_apart(key, target, value), text) for text, value in values if value is not None]
    best = min(near, default=(math.inf, ""))
    return best[1] if best[0] <= NEAR_STOPS else None


def differences(requested: Mapping[str, Any], reported: Mapping[str, Any]) -> list[str]:
    """Return descriptions of settings that differ from the requested ones; automatic exposure requests
    none.
    """
    if requested["mode"] == "auto":
        return []
    wrong = []
    for key, name in KEYS.items():
        value = reported.get(key)
        if value is None or stops_apart(key, float(requested[key]), float(value)) > NEAR_STOPS:
            wrong.append(
                f"{name}: expected {format_value(key, requested[key])}, got"
                f" {'nothing' if value is None else format_value(key, value)}"
            )
    return wrong


def format_value(key: str, value: float) -> str:
    """Format a value of a setting."""
    if key == "shutter":
        return f"1/{round(1 / value)} s" if value <= 0.3 else f"{value:.2g} s"
    return f"f/{value:.3g}" if key == "aperture" else f"{value:g}"


def format_setting(params: Mapping[str, Any]) -> str:
    """Format a setting."""
    if params["mode"] == "auto":
        return f"automatic {params.get('shot', '')}".strip()
    return (
        f"ISO {format_value('iso', params['iso'])}, {format_value('shutter', params['shutter'])},"
        f" {format_value('aperture', params['aperture'])}"
    )


def check_value(key: str, text: str, where: str) -> float:
    """Parse a value typed by a user, or raise an error that says what was expected."""
    value = parse_value(key, text)
    if value is None:
        example = {"iso": "250", "shutter": "1/60", "aperture": "f5.0"}[key]
        raise SoritesError(f"{where}: expected {KEYS[key]} such as {example}, got {text!r}")
    return value


Params = Mapping[str, Any]


@dataclass(frozen=True)
class About:
    """Facts that a camera reports about itself; values that it does not report are empty."""

    model: str
    serial: str = ""
    lens: str = ""
    battery: str = ""
    card: str = ""
    mode: str = ""
    ability: Mapping[str, tuple[str, ...]] = ()  # type: ignore[assignment]


@dataclass(frozen=True)
class Photo:
    """A photograph as the camera stored it, and its name there."""

    name: str
    data: bytes


@dataclass(frozen=True)
class FixedSettings:
    """Settings that stay the same during a capture; an empty name leaves the camera's own.

    Attributes:
        white_balance: Fixed, because automatic white balance would depend on the image.
        picture_style: Rendering of the camera's JPEG files.
    """

    white_balance: str = "daylight"
    picture_style: str = "standard"


class CameraError(SoritesError):
    """The camera did not do what was requested; the request may be repeated."""


class Unsettled(CameraError):
    """It is unknown whether the camera took an image; ``settle`` must be called before its reports can be
    trusted.
    """


class NeedsHand(CameraError):
    """The operator must act, for example change the battery or turn the mode dial; the capture waits."""


class Camera(Protocol):
    """Contract of a remote-controlled camera."""

    def about(self) -> About:
        """Return model, lens, battery, card, mode and the supported values."""

    def prepare(self, fixed: FixedSettings) -> list[str]:
        """Set everything that stays the same during a capture: JPEG, single shots, no sleep, white balance,
        picture style. Return descriptions of the settings that the body does not have or refuses.

        Raises:
            NeedsHand: The camera stores no JPEG files and this cannot be changed remotely.
        """

    def use_raw(self) -> None:
        """Store RAW files instead of JPEG from now on; ``shoot`` then returns them.

        Raises:
            CameraError: The camera has no RAW files.
        """

    def read_fixed(self) -> Mapping[str, str]:
        """Return white balance, picture style and quality as the camera reports them now, as far as it
        does.
        """

    def check(self) -> None:
        """Raise ``NeedsHand`` if the operator must act before the next image."""

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set ISO, shutter and aperture, or automatic exposure, and return the values that the camera
        reads back.
        """

    def shoot(self) -> Photo:
        """Take one image and return it; a file that existed before is never returned."""

    def settle(self) -> None:
        """Wait until the camera is idle, and ignore the images that it took meanwhile."""

    def forget(self, photo: Photo) -> None:
        """Delete a photograph from the camera's card."""

    def preview(self) -> bytes:
        """Return a live image as JPEG."""

    def close(self) -> None:
        """Release the camera."""


def own_aperture(camera: Camera, wanted: float) -> float:
    """Return the aperture of a camera that is nearest to the wanted one; some have one only."""
    texts = dict(camera.about().ability).get("aperture", ())
    apertures = [value for text in texts if (value := parse_value("aperture", text)) is not None]
    return min(apertures, key=lambda one: stops_apart("aperture", one, wanted), default=wanted)


_ISO, _SHUTTER, _APERTURE, _WHEN, _EXIF = 0x8827, 0x829A, 0x829D, 0x9003, 0x8769


def exif_of(photo: Photo) -> dict[str, Any]:
    """Return ISO, shutter, aperture and time from the EXIF of a photograph, as far as present."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(photo.data), formats=("JPEG",)) as opened:
            exif = opened.getexif().get_ifd(_EXIF)
    except Exception as error:  # Pillow can raise anything for a damaged file
        raise CameraError(f"{photo.name} cannot be read as a JPEG: {error}") from error
    values: dict[str, Any] = {}
    for key, tag in (("iso", _ISO), ("shutter", _SHUTTER), ("aperture", _APERTURE)):
        value: Any = exif.get(tag)
        value = value[0] if isinstance(value, tuple) and value else value
        if value is not None and float(value) > 0:
            values[key] = float(value)
    if exif.get(_WHEN):
        values["taken"] = str(exif[_WHEN])
    return values


def whole_photo(photo: Photo) -> Photo:
    """Return the photograph if its file is complete, or raise an error; RAW files are checked when they are
    read.
    """
    return photo if photo.name.lower().endswith(RAW_SUFFIXES) else whole_jpeg(photo)


def whole_jpeg(photo: Photo) -> Photo:
    """Return the photograph if it is a complete JPEG file, or raise an error."""
    start, end = photo.data[:3], photo.data.rstrip(b"\0")[-2:]
    if start != b"\xff\xd8\xff" or end != b"\xff\xd9":
        raise CameraError(f"{photo.name} arrived incomplete ({len(photo.data):,} bytes)")
    return photo
