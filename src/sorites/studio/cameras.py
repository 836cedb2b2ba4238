"""Define what the studio asks of a camera, whichever protocol it speaks, and the ways in which one can fail."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from sorites.errors import SoritesError

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
    """It is not known whether the camera took a picture. Nothing that it reports may be trusted until it has settled."""


class NeedsHand(CameraError):
    """Somebody must do something: change the battery or the card, turn the mode dial. The capture waits and says what."""


class Camera(Protocol):
    """A camera that is controlled from here."""

    def about(self) -> About:
        """Return model, lens, battery, card, mode and what can be set now."""

    def prepare(self) -> None:
        """Set all that stays the same during a capture: JPEG, single shots, no sleep."""

    def check(self) -> None:
        """Raise ``NeedsHand`` where somebody must do something before the next picture."""

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set ISO, shutter and aperture, or automatic exposure, and return what the camera answers when it is asked for them."""

    def shoot(self) -> Photo:
        """Take one picture and return it. A file that was there before is never returned."""

    def settle(self) -> None:
        """Wait until the camera is done with whatever it was asked, and forget the pictures that came of it."""

    def forget(self, photo: Photo) -> None:
        """Delete a photograph from the camera's card."""

    def preview(self) -> bytes:
        """Return a live picture, as JPEG."""

    def close(self) -> None:
        """Release the camera."""


_ISO, _SHUTTER, _APERTURE, _WHEN, _EXIF = 0x8827, 0x829A, 0x829D, 0x9003, 0x8769


def exif_of(photo: Photo) -> dict[str, Any]:
    """Return ISO, shutter, aperture and time of a photograph from its EXIF; what is missing there is missing here."""
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
