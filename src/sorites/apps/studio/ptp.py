"""PTP cameras on USB, through libgphoto2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sorites.apps.studio.cameras import (
    About,
    CameraError,
    NeedsHand,
    Params,
    Photo,
    Unsettled,
    format_value,
    nearest,
    parse_value,
    whole_jpeg,
)
from sorites.core.errors import MissingExtra

# Names of the settings by manufacturer.
NAMES = {"iso": ("iso",), "shutter": ("shutterspeed", "shutterspeed2"), "aperture": ("aperture", "f-number")}
MODES = ("expprogram", "autoexposuremode")
MANUAL, AUTO = ("m", "manual"), ("p", "program", "auto", "av", "a", "intelligent auto")
BATTERY, LENS = ("batterylevel",), ("lensname", "lens")
EMPTY = ("0%", "low")


class PtpCamera:
    """The first camera that libgphoto2 finds."""

    def __init__(self) -> None:
        self._gp = library()
        self._camera = self._gp.Camera()
        self._known_files: set[str] = set()
        try:
            self._camera.init()
        except self._gp.GPhoto2Error as error:
            raise CameraError(
                f"no camera on USB ({error.string}). Switch it on, connect it, select PTP in its menu, and"
                " close other programs that use it (gvfs, photo managers)"
            ) from error

    def about(self) -> About:
        """Return what the camera reports about itself."""
        model = str(self._camera.get_abilities().model)
        ability = {key: self._choices(key) for key in NAMES}
        mode = self._value(*MODES) or ""
        return About(
            model, "", self._value(*LENS) or "", self._value(*BATTERY) or "", self._card(), mode, ability
        )

    def _card(self) -> str:
        try:
            cards = self._camera.get_storageinfo()
        except self._gp.GPhoto2Error:
            return ""
        return ", ".join(f"{card.freekbytes / 1e6:.1f} GB free" for card in cards)

    def prepare(self) -> None:
        """Check the camera; PTP bodies keep their own file settings."""
        self.check()

    def check(self) -> None:
        """Raise ``NeedsHand`` if the battery is empty."""
        level = (self._value(*BATTERY) or "").lower()
        if level in EMPTY:
            raise NeedsHand(f'the battery is empty ("{level}"): change it, or use a mains adapter')

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set what the body supports, and return what it reads back."""
        self._check_mode(params["mode"])
        if params["mode"] == "auto":
            return {}
        answered: dict[str, Any] = {}
        for key in NAMES:
            text = nearest(key, float(params[key]), self._choices(key))
            if text is None:
                raise CameraError(
                    f"this camera and lens cannot be set to {format_value(key, float(params[key]))} ({key})"
                )
            self._put(self._name(key), text)
            answered[key] = parse_value(key, self._value(self._name(key)) or "")
        return answered

    def _check_mode(self, mode: str) -> None:
        """Check the mode dial if the body reports it."""
        current = (self._value(*MODES) or "").lower()
        modes = MANUAL if mode == "manual" else AUTO
        if current and current not in modes:
            raise NeedsHand(f"turn the mode dial of the camera to {modes[0].upper()}; it is at {current!r}")

    def shoot(self) -> Photo:
        """Take an image and return it."""
        gp = self._gp
        try:
            path = self._camera.capture(gp.GP_CAPTURE_IMAGE)
            name = f"{path.folder}/{path.name}"
            if name in self._known_files:
                raise CameraError(f"the camera reports {name} again")
            self._known_files.add(name)
            file = self._camera.file_get(path.folder, path.name, gp.GP_FILE_TYPE_NORMAL)
            return whole_jpeg(Photo(name, bytes(file.get_data_and_size())))
        except gp.GPhoto2Error as error:
            raise Unsettled(f"the camera did not deliver the shot: {error.string}") from error

    def settle(self) -> None:
        """Mark all files that the camera still reports as known."""
        gp = self._gp
        for _ in range(100):
            try:
                kind, data = self._camera.wait_for_event(200)
            except gp.GPhoto2Error:
                return
            if kind == gp.GP_EVENT_FILE_ADDED:
                self._known_files.add(f"{data.folder}/{data.name}")
            elif kind == gp.GP_EVENT_TIMEOUT:
                return

    def forget(self, photo: Photo) -> None:
        """Delete a stored photograph from the card."""
        folder, _, name = photo.name.rpartition("/")
        try:
            self._camera.file_delete(folder, name)
        except self._gp.GPhoto2Error as error:
            raise CameraError(f"{photo.name} cannot be deleted: {error.string}") from error

    def preview(self) -> bytes:
        """Return a live image."""
        try:
            return bytes(self._camera.capture_preview().get_data_and_size())
        except self._gp.GPhoto2Error as error:
            raise CameraError(f"this camera gives no live image: {error.string}") from error

    def close(self) -> None:
        """Release the camera."""
        self._camera.exit()

    def _name(self, key: str) -> str:
        return next((name for name in NAMES[key] if self._value(name) is not None), NAMES[key][0])

    def _choices(self, key: str) -> tuple[str, ...]:
        try:
            widget = self._camera.get_single_config(self._name(key))
            return tuple(widget.get_choice(i) for i in range(widget.count_choices()))
        except self._gp.GPhoto2Error:
            return ()

    def _value(self, *names: str) -> str | None:
        for name in names:
            try:
                return str(self._camera.get_single_config(name).get_value())
            except self._gp.GPhoto2Error:
                continue
        return None

    def _put(self, name: str, text: str) -> None:
        try:
            widget = self._camera.get_single_config(name)
            if widget.get_value() != text:
                widget.set_value(text)
                self._camera.set_single_config(name, widget)
        except self._gp.GPhoto2Error as error:
            raise CameraError(f"the camera refused {name} {text}: {error.string}") from error


def library() -> Any:
    """Return the gphoto2 package."""
    try:
        import gphoto2
    except ImportError as error:
        raise MissingExtra("a camera on USB", "studio") from error
    return gphoto2


def cameras_on_usb() -> list[str]:
    """Return the camera models that libgphoto2 finds, with their ports."""
    gp = library()
    return [f"{model} at {port}" for model, port in gp.Camera.autodetect()]
