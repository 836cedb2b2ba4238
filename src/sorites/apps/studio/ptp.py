"""PTP cameras on USB, through libgphoto2."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from sorites.apps.studio.cameras import (
    About,
    CameraError,
    FixedSettings,
    NeedsHand,
    Params,
    Photo,
    Unsettled,
    format_value,
    nearest,
    parse_value,
    whole_photo,
)
from sorites.core.errors import MissingExtra

# Names of the settings by manufacturer.
NAMES = {"iso": ("iso",), "shutter": ("shutterspeed", "shutterspeed2"), "aperture": ("aperture", "f-number")}
MODES = ("expprogram", "autoexposuremode")
MANUAL, AUTO = ("m", "manual"), ("p", "program", "auto", "av", "a", "intelligent auto")
BATTERY, LENS = ("batterylevel",), ("lensname", "lens")
EMPTY = ("0%", "low")
# Automatic ISO: a value of the ISO setting on some bodies, a switch of its own on others.
AUTO_ISO_SWITCHES, ON = ("autoiso", "isoauto"), ("on", "1", "yes")
# Settings that stay the same during a capture, by manufacturer.
FIXED = {
    "quality": ("imageformat", "imagequality", "imgquality"),
    "white balance": ("whitebalance",),
    "picture style": ("picturestyle", "picturecontrol", "activepiccontrol"),
}
DRIVE = ("drivemode", "capturemode")


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

    def prepare(self, fixed: FixedSettings) -> list[str]:
        """Set what stays the same during a capture, and return what the body does not have or refuses."""
        deviations = [
            *self._fix("quality", FIXED["quality"], "jpeg"),
            *self._fix("drive mode", DRIVE, "single"),
            *self._fix("white balance", FIXED["white balance"], fixed.white_balance),
            *self._fix("picture style", FIXED["picture style"], fixed.picture_style),
        ]
        quality = (self._value(*FIXED["quality"]) or "").lower()
        if quality and not _is_jpeg(quality):
            raise NeedsHand(f"the camera stores {quality!r}: select JPEG as image quality in its menu")
        self.check()
        return deviations

    def use_raw(self) -> None:
        """Store RAW files only.

        Raises:
            CameraError: The body has no RAW files, or refuses.
        """
        name = next((name for name in FIXED["quality"] if self._value(name) is not None), None)
        choices = self._widget_choices(name) if name else ()
        choice = next((text for text in choices if _is_raw(text.lower())), None)
        if name is None or choice is None:
            raise CameraError(
                f"this body has no RAW files; its qualities are {', '.join(choices) or 'unknown'}"
            )
        self._put(name, choice)
        if self._value(name) != choice:
            raise CameraError(f"the quality is {self._value(name)!r} after it was set to {choice!r}")

    def _fix(self, what: str, names: tuple[str, ...], wanted: str) -> list[str]:
        """Set the first of the settings that the body has; return a description if it does not follow."""
        name = next((name for name in names if self._value(name) is not None), None)
        if not wanted:
            return []
        if name is None:
            return [f"the {what} cannot be set on this body"]
        if wanted == "jpeg" and _is_jpeg((self._value(name) or "").lower()):
            return []
        choice = _best_choice(wanted, self._widget_choices(name))
        if choice is None:
            return [f"the {what} stays {self._value(name)!r}: this body has no {wanted!r}"]
        try:
            self._put(name, choice)
        except CameraError as error:
            return [f"the {what} stays {self._value(name)!r}: {error}"]
        answered = self._value(name)
        return [] if answered == choice else [f"the {what} is {answered!r} after it was set to {choice!r}"]

    def read_fixed(self) -> Mapping[str, str]:
        """Return white balance, picture style and quality as the body reports them now."""
        values = {what: self._value(*names) for what, names in FIXED.items()}
        return {what: value for what, value in values.items() if value is not None}

    def check(self) -> None:
        """Raise ``NeedsHand`` if the battery is empty."""
        level = (self._value(*BATTERY) or "").lower()
        if level in EMPTY:
            raise NeedsHand(f'the battery is empty ("{level}"): change it, or use a mains adapter')

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set what the body supports, and return what it reads back."""
        self._set_mode(params["mode"])
        if params["mode"] == "auto":
            self._set_auto_iso(True)
            return {}
        self._set_auto_iso(False)
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

    def _set_mode(self, mode: str) -> None:
        """Select manual or automatic exposure; if only the dial can do this, ask the operator."""
        modes = MANUAL if mode == "manual" else AUTO
        name = next((name for name in MODES if self._value(name) is not None), None)
        if name is None or (self._value(name) or "").lower() in modes:
            return
        choice = next((text for text in self._widget_choices(name) if text.lower() in modes), None)
        if choice is not None:
            with contextlib.suppress(CameraError):  # read only: the dial decides
                self._put(name, choice)
        current = (self._value(name) or "").lower()
        if current not in modes:
            raise NeedsHand(f"turn the mode dial of the camera to {modes[0].upper()}; it is at {current!r}")

    def _set_auto_iso(self, automatic: bool) -> None:
        """Let the body choose the ISO, or not; otherwise automatic shots would keep the last manual ISO.

        Raises:
            CameraError: The body has an ISO setting, but no way to make it automatic.
        """
        switch = next((name for name in AUTO_ISO_SWITCHES if self._value(name) is not None), None)
        if switch is not None:
            choices = self._widget_choices(switch)
            wanted = next((text for text in choices if (text.lower() in ON) == automatic), None)
            if wanted is not None:
                self._put(switch, wanted)
                return
        if not automatic or not self._choices("iso"):
            return
        auto = next((text for text in self._choices("iso") if text.lower().startswith("auto")), None)
        if auto is None:
            raise CameraError("this body has no automatic ISO, which automatic exposure needs")
        self._put(self._name("iso"), auto)

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
            return whole_photo(Photo(name, bytes(file.get_data_and_size())))
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
        return self._widget_choices(self._name(key))

    def _widget_choices(self, name: str) -> tuple[str, ...]:
        try:
            widget = self._camera.get_single_config(name)
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


def _is_jpeg(quality: str) -> bool:
    """Return whether a body that reports this quality stores JPEG files."""
    return any(word in quality for word in ("jpeg", "jpg", "fine", "normal", "basic", "large"))


def _is_raw(quality: str) -> bool:
    """Return whether a body stores RAW files alone at this quality, not beside JPEG."""
    return ("raw" in quality or quality.startswith("nef")) and not _is_jpeg(quality) and "+" not in quality


def _best_choice(wanted: str, choices: tuple[str, ...]) -> str | None:
    """Return the body's text for a value: equal to it, or the first that contains it."""
    lower = {text.lower(): text for text in choices}
    return lower.get(wanted) or next((text for low, text in lower.items() if wanted in low), None)


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
