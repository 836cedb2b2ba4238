"""Define what the studio asks of a camera, whichever protocol it speaks, and the ways in which one
can fail.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sorites.core.errors import SoritesError

# Read a camera's spelling of ISO, shutter and aperture, and decide when two values are near enough to be
# one setting.


# The most stops by which a value may differ from the one asked for: half a third of a stop, the
# step of a camera's dials.
NEAR_STOPS = 0.17
KEYS = {"iso": "ISO", "shutter": "shutter", "aperture": "aperture"}
_SECONDS = re.compile(r'(\d+)"(\d?)')


def seconds(text: str) -> float | None:
    """Return a shutter time in s from the way a camera writes it: 1/125, 0"4, 30", 0.4, 0.4s; None
    for anything else.
    """
    text = text.strip().removesuffix("s").strip()
    found = _SECONDS.fullmatch(text)
    if found:
        return float(f"{found[1]}.{found[2] or 0}")
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) and value > 0 else None


def number(text: str) -> float | None:
    """Return an ISO or an f-number from the way a camera writes it: 400, f5.6, f/5.6; None for
    anything else (auto).
    """
    try:
        value = float(text.strip().lower().removeprefix("f").removeprefix("/"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def parsed(key: str, text: str) -> float | None:
    """Return the value of a setting (iso, shutter, aperture) as a camera writes it, or None."""
    return seconds(text) if key == "shutter" else number(text)


def stops_apart(key: str, one: float, other: float) -> float:
    """Return by how many stops of light two values differ."""
    return abs(math.log2(one / other)) * (2 if key == "aperture" else 1)


def nearest(key: str, wanted: float, ability: Iterable[str]) -> str | None:
    """Return the spelling of the value that a camera has nearest to the expected one, or None if none
    is near enough.
    """
    known = ((text, parsed(key, text)) for text in ability)
    near = [(stops_apart(key, wanted, value), text) for text, value in known if value is not None]
    best = min(near, default=(math.inf, ""))
    return best[1] if best[0] <= NEAR_STOPS else None


def agree(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> list[str]:
    """Say which settings the camera answered differ from those asked for; automatic exposure asks
    for none.
    """
    if asked["mode"] == "auto":
        return []
    wrong = []
    for key, name in KEYS.items():
        value = answered.get(key)
        if value is None or stops_apart(key, float(asked[key]), float(value)) > NEAR_STOPS:
            wrong.append(
                f"{name} asked {spelled(key, asked[key])}, got"
                f" {'nothing' if value is None else spelled(key, value)}"
            )
    return wrong


def spelled(key: str, value: float) -> str:
    """Return a value for readers."""
    if key == "shutter":
        return f"1/{round(1 / value)} s" if value <= 0.3 else f"{value:.2g} s"
    return f"f/{value:.3g}" if key == "aperture" else f"{value:g}"


def in_words(params: Mapping[str, Any]) -> str:
    """Return a setting for readers."""
    if params["mode"] == "auto":
        return f"automatic {params.get('shot', '')}".strip()
    return (
        f"ISO {spelled('iso', params['iso'])}, {spelled('shutter', params['shutter'])},"
        f" {spelled('aperture', params['aperture'])}"
    )


def checked(key: str, text: str, where: str) -> float:
    """Return a value typed by a user, or say what was expected."""
    value = parsed(key, text)
    if value is None:
        example = {"iso": "250", "shutter": "1/60", "aperture": "f5.0"}[key]
        raise SoritesError(f"{where}: expected {KEYS[key]} such as {example}, got {text!r}")
    return value


Params = Mapping[str, Any]


@dataclass(frozen=True)
class About:
    """The facts that a camera reports about itself; those that it does not report are empty."""

    model: str
    serial: str = ""
    lens: str = ""
    battery: str = ""
    card: str = ""
    mode: str = ""
    ability: Mapping[str, tuple[str, ...]] = ()  # type: ignore[assignment]


@dataclass(frozen=True)
class Photo:
    """A photograph as the camera stored it, and the name that it has there."""

    name: str
    data: bytes


class CameraError(SoritesError):
    """The camera did not do what it was asked; it may be asked again."""


class Unsettled(CameraError):
    """It is not known whether the camera took an image.

    Nothing that it reports may be trusted until it has settled.
    """


class NeedsHand(CameraError):
    """Somebody must do something: change the battery or the card, turn the mode dial.

    The capture waits and says what.
    """


class Camera(Protocol):
    """A camera that is controlled from here."""

    def about(self) -> About:
        """Return model, lens, battery, card, mode and what can be set now."""

    def prepare(self) -> None:
        """Set all that stays the same during a capture: JPEG, single shots, no sleep."""

    def check(self) -> None:
        """Raise ``NeedsHand`` where somebody must do something before the next image."""

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set ISO, shutter and aperture, or automatic exposure, and return what the camera answers
        when it is asked for them.
        """

    def shoot(self) -> Photo:
        """Take one image and return it. A file that was there before is never returned."""

    def settle(self) -> None:
        """Wait until the camera is done with whatever it was asked, and forget the images that
        came of it.
        """

    def forget(self, photo: Photo) -> None:
        """Delete a photograph from the camera's card."""

    def preview(self) -> bytes:
        """Return a live image, as JPEG."""

    def close(self) -> None:
        """Release the camera."""


_ISO, _SHUTTER, _APERTURE, _WHEN, _EXIF = 0x8827, 0x829A, 0x829D, 0x9003, 0x8769


def exif_of(photo: Photo) -> dict[str, Any]:
    """Return ISO, shutter, aperture and time of a photograph from its EXIF; what is missing there
    is missing here.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(photo.data), formats=("JPEG",)) as opened:
            held = opened.getexif().get_ifd(_EXIF)
    except Exception as error:  # a damaged file makes Pillow raise nearly anything
        raise CameraError(f"{photo.name} cannot be read as a JPEG: {error}") from error
    found: dict[str, Any] = {}
    for key, tag in (("iso", _ISO), ("shutter", _SHUTTER), ("aperture", _APERTURE)):
        value: Any = held.get(tag)
        value = value[0] if isinstance(value, tuple) and value else value
        if value is not None and float(value) > 0:
            found[key] = float(value)
    if held.get(_WHEN):
        found["taken"] = str(held[_WHEN])
    return found


def whole_jpeg(photo: Photo) -> Photo:
    """Return the photograph if it is a whole JPEG file, or raise an error."""
    start, end = photo.data[:3], photo.data.rstrip(b"\0")[-2:]
    if start != b"\xff\xd8\xff" or end != b"\xff\xd9":
        raise CameraError(f"{photo.name} arrived incomplete ({len(photo.data):,} bytes)")
    return photo
