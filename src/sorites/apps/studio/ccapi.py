"""Canon cameras over HTTP (CCAPI).

Each feature is called in the newest version that the body lists; calls are repeated while the camera is busy;
passwords never appear in messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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
from sorites.apps.studio.tls import pinned
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import option
from sorites.io.raw_files import RAW_SUFFIXES

if TYPE_CHECKING:
    import httpx

# Attempts per call while the camera is busy or out of reach, with doubling pauses.
TRIES = 8
FIRST_PAUSE_S, MAX_PAUSE_S = 0.05, 5.0
TIMEOUT_S = 45.0
BUSY = ("busy", "during shooting", "preparation")
FULL = ("can not write to card", "card full", "no card")
# Maximum size of a photograph.
MAX_BYTES = 200 << 20


class Calls:
    """A connection to a camera.

    Attributes:
        features: Versions and verbs by feature, the path after the version.
    """

    def __init__(
        self, url: str, login: tuple[str, str] | None = None, fingerprint: str | None = None
    ) -> None:
        self.url = plain_url(url)
        self._http = _client(self.url, login or login_of(url), fingerprint)
        try:
            self.features = self._list_features()
        except BaseException:
            self._http.close()
            raise

    def _list_features(self) -> dict[str, dict[str, frozenset[str]]]:
        """Read the features and their versions; newer versions list paths, the first lists full URLs."""
        listing = self.once("GET", "/ccapi")
        features: dict[str, dict[str, frozenset[str]]] = {}
        for version, entries in sorted(listing.items()) if isinstance(listing, dict) else ():
            for entry in entries if isinstance(entries, list) else ():
                path = urlsplit(str(entry.get("path") or entry.get("url") or "")).path
                feature = path.partition(f"/{version}/")[2]
                verbs = frozenset(verb for verb in ("get", "post", "put", "delete") if entry.get(verb))
                if feature and verbs:
                    features.setdefault(feature, {})[version] = verbs
        if not features:
            raise SoritesError(
                f"{self.url} is not a CCAPI camera: GET /ccapi lists no features. Check that CCAPI is"
                " activated on the body"
            )
        return features

    def can(self, verb: str, feature: str) -> bool:
        """Return whether the body supports a verb of a feature in any version."""
        return any(verb in verbs for verbs in self.features.get(feature, {}).values())

    def path(self, verb: str, feature: str) -> str:
        """Return the path of a feature in the newest version that supports the verb."""
        versions = [version for version, verbs in self.features.get(feature, {}).items() if verb in verbs]
        if not versions:
            raise CameraError(f"this camera does not support {verb.upper()} {feature}")
        return f"/ccapi/{max(versions)}/{feature}"

    def get(self, feature: str, **query: str) -> Any:
        return self.again("GET", self.path("get", feature), params=query)

    def put(self, feature: str, value: Any) -> Any:
        return self.again("PUT", self.path("put", feature), json={"value": value})

    def post(self, feature: str, body: Mapping[str, Any], tries: int = TRIES) -> Any:
        """Trigger an action. It is repeated only if the camera answered that it was busy and so did
        nothing.
        """
        return self.again("POST", self.path("post", feature), tries=tries, json=dict(body))

    def again(self, method: str, path: str, tries: int = TRIES, **more: Any) -> Any:
        """Call, and repeat while the camera is busy, or out of reach and the call is safe to repeat."""
        pause = FIRST_PAUSE_S
        for remaining in reversed(range(tries)):
            try:
                return self.once(method, path, **more)
            except (Busy, OutOfReach) as error:
                if remaining == 0 or (isinstance(error, OutOfReach) and method == "POST"):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        raise AssertionError

    def once(self, method: str, path: str, **more: Any) -> Any:
        """Call once and return the JSON of the answer; refusals raise an error with the camera's message."""
        import httpx

        try:
            answer = self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise OutOfReach(
                f"no answer from the camera at {self.url} ({type(error).__name__}). Check that it is on and"
                " connected to the network"
            ) from None
        if answer.is_success:
            return _json(answer)
        raise _refusal(answer, self.url, f"{method} {path}")

    def download(self, path: str) -> bytes:
        """Return a file of the card, read in chunks; an incomplete file is an error."""
        import httpx

        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer, self.url, f"GET {path}")
                data = bytearray()
                for chunk in answer.iter_bytes(1 << 16):
                    data += chunk
                    if len(data) > MAX_BYTES:
                        raise CameraError(f"{path} has more than {MAX_BYTES:,} bytes")
        except httpx.HTTPError as error:
            raise OutOfReach(f"{path} could not be downloaded ({type(error).__name__})") from None
        return bytes(data)

    def close(self) -> None:
        """End the connection."""
        self._http.close()


class Busy(CameraError):
    """The camera is busy and did not execute the call."""


class OutOfReach(CameraError):
    """No answer arrived; it is unknown whether the camera executed the call."""


def plain_url(url: str) -> str:
    """Return a camera's address without user and password."""
    try:
        split = urlsplit(url if "//" in url else f"http://{url}")
        port = split.port or (443 if split.scheme == "https" else 8080)
    except ValueError:  # the port is not one, or brackets are open
        split, port = urlsplit(""), 0
    if split.scheme not in ("http", "https") or not split.hostname:
        raise SoritesError("expected the camera's address, such as ccapi:http://192.168.1.2:8080")
    return f"{split.scheme}://{split.hostname}:{port}"


def login_of(url: str) -> tuple[str, str] | None:
    """Return user and password from the environment, or from the address."""
    import os

    split = urlsplit(url if "//" in url else f"http://{url}")
    user = os.environ.get("SORITES_CAMERA_USER", split.username or "")
    password = os.environ.get("SORITES_CAMERA_PASSWORD", split.password or "")
    return (user, password) if user or password else None


def _client(url: str, login: tuple[str, str] | None, fingerprint: str | None) -> httpx.Client:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("the studio", "studio") from error
    split = urlsplit(url)
    verify: Any = True
    if split.scheme == "https":
        verify, _ = pinned(str(split.hostname), int(split.port or 443), fingerprint)
    auth = None if login is None else httpx.DigestAuth(*login)
    return httpx.Client(base_url=url, auth=auth, verify=verify, timeout=TIMEOUT_S, trust_env=False)


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json() if answer.content else {}
    except ValueError:
        return {}


def _refusal(answer: httpx.Response, url: str, call: str) -> CameraError:
    """Return the error for an answer without success."""
    content = _json(answer)
    message = str(content.get("message", "") if isinstance(content, dict) else "")[:200]
    if answer.status_code == 401:
        return NeedsHand(
            f"the camera at {url} requires another user or password. Set SORITES_CAMERA_USER and"
            " SORITES_CAMERA_PASSWORD"
        )
    if any(word in message.lower() for word in FULL):
        return NeedsHand(
            f'the card is full or locked ("{message}"): change or empty it, or use {option("card", "clear")}'
        )
    if answer.status_code == 503 and (not message or any(word in message.lower() for word in BUSY)):
        return Busy(f'the camera is busy: "{message}"')
    return CameraError(f'the camera refused {call}: {answer.status_code} "{message}"')


SETTINGS = {
    "iso": "shooting/settings/iso",
    "shutter": "shooting/settings/tv",
    "aperture": "shooting/settings/av",
}
MODE, DIAL, IGNORE = (
    "shooting/settings/shootingmode",
    "shooting/settings/shootingmodedial",
    "shooting/control/ignoreshootingmodedialmode",
)
MODES = {"manual": ("m",), "auto": ("p", "auto")}
# Settings that stay the same during a capture and are read back with every shot.
FIXED = {
    "quality": "shooting/settings/stillimagequality",
    "white balance": "shooting/settings/wb",
    "picture style": "shooting/settings/picturestyle",
}
SHUTTER, SHUTTER_MANUAL = "shooting/control/shutterbutton", "shooting/control/shutterbutton/manual"
EVENTS, CONTENTS = "event/polling", "contents"
# Longest wait for the file of a shot.
FILE_S = 60.0
# Attempts to download a file.
DOWNLOADS = 4
SUFFIXES = (".jpg", ".jpeg")
EMPTY_BATTERY = ("none", "low")


def _place(path: str) -> str:
    """Return where on the cards a file is, without the version of the interface."""
    return path.partition(f"/{CONTENTS}/")[2] or path


class CcapiCamera:
    """A Canon body over HTTP: settings are read back, the shutter is always released, files are announced
    by events.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._known_files: set[str] = set()
        self._now: dict[str, str] = {}
        self._ability: dict[str, tuple[str, ...]] = {}
        self._mode = ""
        self._endings: tuple[str, ...] = SUFFIXES
        self.settle()

    def about(self) -> About:
        """Return what the camera reports about itself."""
        device, lens = self._optional("deviceinformation"), self._optional("devicestatus/lens")
        cards = self._optional("devicestatus/storage").get("storagelist") or []
        card = ", ".join(
            f"{c.get('name', '?')} {int(c.get('spacesize') or 0) / 1e9:.1f} GB free"
            for c in cards
            if isinstance(c, dict)
        )
        ability = {key: self._read(key)[1] for key in SETTINGS}
        battery = str(self._optional("devicestatus/battery").get("level", ""))
        return About(
            str(device.get("productname", "CCAPI camera")),
            str(device.get("serialnumber", "")),
            str(lens.get("name", "")),
            battery,
            card,
            self._current_mode(),
            ability,
        )

    def _optional(self, feature: str) -> Mapping[str, Any]:
        content = self._calls.get(feature) if self._calls.can("get", feature) else {}
        return content if isinstance(content, dict) else {}

    def prepare(self, fixed: FixedSettings) -> list[str]:
        """Set what stays the same during a capture, and return what the body does not have or refuses."""
        deviations = [
            *self._set_quality(),
            *self._fix("shooting/settings/drive", "single"),
            *self._fix("shooting/settings/metering", "evaluative"),
            *self._fix("functions/autopoweroff", "disable"),
            *self._fix(FIXED["white balance"], fixed.white_balance),
            *self._fix(FIXED["picture style"], fixed.picture_style),
        ]
        self.check()
        return deviations

    def _set_quality(self) -> list[str]:
        """Select JPEG files; a body that would store none needs the operator."""
        self._endings = SUFFIXES
        deviations = self._fix(FIXED["quality"], {"raw": "none", "jpeg": "large_fine"})
        quality = self._optional(FIXED["quality"]).get("value")
        if isinstance(quality, dict) and quality.get("jpeg") == "none":
            raise NeedsHand("the camera stores no JPEG files: select JPEG as image quality in its menu")
        return deviations

    def use_raw(self) -> None:
        """Store RAW files only.

        Raises:
            CameraError: The body has no RAW files, or refuses.
        """
        deviations = self._fix(FIXED["quality"], {"raw": "raw", "jpeg": "none"})
        if deviations:
            raise CameraError(f"RAW files cannot be selected: {'; '.join(deviations)}")
        self._endings = RAW_SUFFIXES

    def _fix(self, feature: str, value: Any) -> list[str]:
        """Set a feature and read it back; return a description if the body does not follow."""
        name = feature.rpartition("/")[2]
        if not value:
            return []
        if not self._calls.can("put", feature):
            return [f"{name} cannot be set to {value} on this body"]
        try:
            self._calls.put(feature, value)
        except (Busy, OutOfReach, NeedsHand):
            raise
        except CameraError as error:
            return [f"{name} was not set to {value}: {error}"]
        answered = self._optional(feature).get("value", value)
        return [] if answered == value else [f"{name} is {answered!r} after it was set to {value}"]

    def read_fixed(self) -> Mapping[str, str]:
        """Return white balance, picture style and quality as the body reports them now."""
        values = {name: self._optional(feature).get("value") for name, feature in FIXED.items()}
        return {
            name: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
            for name, value in values.items()
            if value is not None
        }

    def check(self) -> None:
        """Raise ``NeedsHand`` if the battery is empty."""
        level = str(self._optional("devicestatus/battery").get("level", ""))
        if level in EMPTY_BATTERY:
            raise NeedsHand(f'the battery is empty ("{level}"): change it, or use a mains adapter')

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set the mode and the settings that differ, and return what the camera reads back."""
        self._set_mode(params["mode"])
        if params["mode"] == "auto":
            self._put("iso", "auto")
            return {}
        for key in SETTINGS:
            text = nearest(key, float(params[key]), self._supported(key))
            if text is None:
                raise CameraError(
                    f"this camera and lens cannot be set to {format_value(key, float(params[key]))} ({key})"
                )
            self._put(key, text)
        return {key: parse_value(key, self._now.get(key, "")) for key in SETTINGS}

    def _supported(self, key: str) -> tuple[str, ...]:
        """Return the supported values of a setting in the current mode, cached."""
        if not self._ability.get(key):
            _, self._ability[key] = self._read(key)
        return self._ability[key]

    def _put(self, key: str, text: str) -> None:
        """Change one setting and read it back; retry once if the body reports another value."""
        for _ in range(2):
            if self._now.get(key) == text:
                return
            self._calls.put(SETTINGS[key], text)
            self._now[key], self._ability[key] = self._read(key)
        if self._now[key] != text:
            raise CameraError(f"the camera reports {key} {self._now[key]!r} after it was set to {text}")

    def _read(self, key: str) -> tuple[str, tuple[str, ...]]:
        content = self._calls.get(SETTINGS[key])
        ability = content.get("ability") or ()
        return str(content.get("value", "")), (
            tuple(map(str, ability)) if isinstance(ability, list | tuple) else ()
        )

    def _current_mode(self) -> str:
        for feature in (MODE, DIAL):
            if self._calls.can("get", feature):
                return str(self._calls.get(feature).get("value", ""))
        return ""

    def _set_mode(self, mode: str) -> None:
        """Select manual or automatic exposure; if only the dial can do this, ask the operator.

        The mode is read before each automatic photograph, whose EXIF data do not show that the dial was
        turned.
        """
        modes = MODES[mode]
        if self._mode == mode and (mode == "manual" or self._current_mode() in modes):
            return
        if self._current_mode() not in modes:
            if self._calls.can("post", IGNORE):
                self._calls.post(IGNORE, {"action": "on"})
            if self._calls.can("put", MODE):
                self._calls.put(MODE, modes[0])
            if self._current_mode() not in modes:
                raise NeedsHand(
                    f"turn the mode dial of the camera to {modes[0].upper()}; it is at"
                    f" {self._current_mode()!r}"
                )
        self._now, self._ability, self._mode = {}, {}, mode

    def shoot(self) -> Photo:
        """Release the shutter and return the new file.

        Raises:
            Unsettled: Something failed after the release.
        """
        self._fresh(self._poll("immediately"))  # events of earlier shots
        self._release()
        try:
            name = self._new_file()
            return self._download(name)
        except NeedsHand:
            raise
        except CameraError as error:
            raise Unsettled(str(error)) from error

    def _release(self) -> None:
        try:
            if self._calls.can("post", SHUTTER):
                self._calls.post(SHUTTER, {"af": False})
                return
            try:
                self._calls.post(SHUTTER_MANUAL, {"action": "full_press", "af": False})
            finally:
                self._calls.post(SHUTTER_MANUAL, {"action": "release", "af": False})
        except OutOfReach as error:
            raise Unsettled(str(error)) from error

    def _new_file(self) -> str:
        """Wait for the event that names a new JPEG; if none arrives, search the card."""
        end = time.monotonic() + FILE_S
        while time.monotonic() < end:
            if fresh := self._fresh(self._poll("short")):
                return fresh[0]
        fresh = self._unknown(self._list_files())
        if not fresh:
            raise CameraError(f"no file arrived within {FILE_S:.0f} s of the shot")
        return fresh[-1]

    def _unknown(self, paths: Iterable[str]) -> list[str]:
        """Return the files that were not known before, and remember them.

        Events and lists may name a file in different versions of the interface.
        """
        fresh = {_place(path): path for path in paths if _place(path) not in self._known_files}
        self._known_files.update(fresh)
        return list(fresh.values())

    def _poll(self, wait: str) -> Mapping[str, Any]:
        """Ask for events: at once, or until one comes or some seconds have passed."""
        version = self._calls.path("get", EVENTS).split("/")[2]
        query = (
            {"timeout": wait}
            if version != "ver100"
            else {"continue": "off" if wait == "immediately" else "on"}
        )
        content = self._calls.again("GET", self._calls.path("get", EVENTS), params=query)
        return content if isinstance(content, dict) else {}

    def _fresh(self, event: Mapping[str, Any]) -> list[str]:
        """Return the JPEG files that an event reports and that were not reported before."""
        fresh = self._unknown(map(str, event.get("addedcontents") or ()))
        return [name for name in fresh if name.lower().endswith(self._endings)]

    def _download(self, name: str) -> Photo:
        for remaining in reversed(range(DOWNLOADS)):
            try:
                return whole_photo(Photo(name, self._calls.download(name)))
            except NeedsHand:
                raise
            except CameraError:
                if remaining == 0:
                    raise
                time.sleep(0.1)
        raise AssertionError

    def _list_files(self) -> list[str]:
        """Return every file on the cards."""
        files: list[str] = []
        pending = list(self._entries(self._calls.path("get", CONTENTS)))
        while pending:
            path = pending.pop()
            if "." in path.rpartition("/")[2]:
                files.append(path)
            else:
                pending += self._list_folder(path)
        return sorted(files)

    def _list_folder(self, path: str) -> list[str]:
        content = self._calls.again("GET", path, params={"kind": "number"})
        pages = int(content.get("pagenumber") or 1) if isinstance(content, dict) else 1
        return [name for page in range(1, pages + 1) for name in self._entries(path, page=str(page))]

    def _entries(self, path: str, **query: str) -> list[str]:
        content = self._calls.again("GET", path, params=query)
        named = content.get("path") or content.get("url") or [] if isinstance(content, dict) else []
        return [str(name) for name in named]

    def settle(self) -> None:
        """Wait until no more events arrive, then mark every file on the card as known."""
        self._now, self._ability, self._mode = {}, {}, ""
        end = time.monotonic() + FILE_S
        while (event := self._poll("short")) and time.monotonic() < end:
            self._fresh(event)
        self._unknown(self._list_files())

    def forget(self, photo: Photo) -> None:
        """Delete a stored photograph from the card."""
        self._calls.again("DELETE", photo.name)

    def preview(self) -> bytes:
        """Return one frame of the live view, starting it if necessary."""
        if not self._live:
            self._calls.post("shooting/liveview", {"liveviewsize": "medium", "cameradisplay": "keep"})
            self._live = True
        return self._calls.download(self._calls.path("get", "shooting/liveview/flip"))

    _live = False

    def close(self) -> None:
        """End the connection."""
        self._calls.close()
