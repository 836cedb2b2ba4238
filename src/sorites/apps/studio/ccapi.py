"""Calls to a CCAPI camera: a version per feature from what the body lists, busy answers tried
again, no password in any text.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sorites.apps.studio.cameras import (
    About,
    CameraError,
    NeedsHand,
    Params,
    Photo,
    Unsettled,
    nearest,
    parsed,
    spelled,
    whole_jpeg,
)
from sorites.apps.studio.tls import pinned
from sorites.core.errors import MissingExtra, SoritesError

if TYPE_CHECKING:
    import httpx

# The times a call is tried while the camera is busy or out of reach; the pauses double.
TRIES = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
TIMEOUT_S = 45.0
BUSY = ("busy", "during shooting", "preparation")
FULL = ("can not write to card", "card full", "no card")
# The most bytes of one photograph.
MOST_BYTES = 200 << 20


class Calls:
    """A connection to a camera.

    ``features`` maps what follows the version in a path to the versions and verbs of the body.
    """

    def __init__(
        self, url: str, login: tuple[str, str] | None = None, fingerprint: str | None = None
    ) -> None:
        self.url = plain_url(url)
        self._http = _client(self.url, login or login_of(url), fingerprint)
        try:
            self.features = self._listed()
        except BaseException:
            self._http.close()
            raise

    def _listed(self) -> dict[str, dict[str, frozenset[str]]]:
        """Read which features the body has, in which versions: newer versions list a path, the
        first lists a whole address.
        """
        held = self.once("GET", "/ccapi")
        found: dict[str, dict[str, frozenset[str]]] = {}
        for version, entries in sorted(held.items()) if isinstance(held, dict) else ():
            for entry in entries if isinstance(entries, list) else ():
                path = urlsplit(str(entry.get("path") or entry.get("url") or "")).path
                feature = path.partition(f"/{version}/")[2]
                verbs = frozenset(verb for verb in ("get", "post", "put", "delete") if entry.get(verb))
                if feature and verbs:
                    found.setdefault(feature, {})[version] = verbs
        if not found:
            raise SoritesError(
                f"{self.url} is no CCAPI camera: GET /ccapi lists no features. Is CCAPI activated on the"
                " body?"
            )
        return found

    def can(self, verb: str, feature: str) -> bool:
        """Return whether the body has a feature with this verb in any version."""
        return any(verb in verbs for verbs in self.features.get(feature, {}).values())

    def path(self, verb: str, feature: str) -> str:
        """Return the path of a feature in the newest version that has it with this verb."""
        versions = [version for version, verbs in self.features.get(feature, {}).items() if verb in verbs]
        if not versions:
            raise CameraError(f"this camera cannot {verb.upper()} {feature}")
        return f"/ccapi/{max(versions)}/{feature}"

    def get(self, feature: str, **query: str) -> Any:
        """Read a feature."""
        return self.again("GET", self.path("get", feature), params=query)

    def put(self, feature: str, value: Any) -> Any:
        """Set a feature to a value."""
        return self.again("PUT", self.path("put", feature), json={"value": value})

    def post(self, feature: str, body: Mapping[str, Any], tries: int = TRIES) -> Any:
        """Trigger an action. It is tried again only where the camera said that it was busy: then it
        has not done it.
        """
        return self.again("POST", self.path("post", feature), tries=tries, json=dict(body))

    def again(self, method: str, path: str, tries: int = TRIES, **more: Any) -> Any:
        """Call, and call again while the camera is busy, or is out of reach and the call can be
        repeated without harm.
        """
        pause = FIRST_PAUSE_S
        for left in reversed(range(tries)):
            try:
                return self.once(method, path, **more)
            except (Busy, OutOfReach) as error:
                if left == 0 or (isinstance(error, OutOfReach) and method == "POST"):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
        raise AssertionError

    def once(self, method: str, path: str, **more: Any) -> Any:
        """Call once and return the JSON of the answer; what the camera refuses is an error in its
        own words.
        """
        import httpx

        try:
            answer = self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise OutOfReach(f"the camera at {self.url} does not answer ({type(error).__name__})") from None
        if answer.is_success:
            return _json(answer)
        raise _refusal(answer, self.url, f"{method} {path}")

    def download(self, path: str) -> bytes:
        """Return a file of the card, read in chunks; one that ends early is an error."""
        import httpx

        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer, self.url, f"GET {path}")
                data = bytearray()
                for chunk in answer.iter_bytes(1 << 16):
                    data += chunk
                    if len(data) > MOST_BYTES:
                        raise CameraError(f"{path} has more than {MOST_BYTES:,} bytes")
        except httpx.HTTPError as error:
            raise OutOfReach(f"{path} could not be fetched whole ({type(error).__name__})") from None
        return bytes(data)

    def close(self) -> None:
        """End the connection."""
        self._http.close()


class Busy(CameraError):
    """The camera is busy; it has not done what it was asked."""


class OutOfReach(CameraError):
    """No answer came; whether the camera did what it was asked is not known."""


def plain_url(url: str) -> str:
    """Return a camera's address without a user and a password in it."""
    split = urlsplit(url if "//" in url else f"http://{url}")
    if split.scheme not in ("http", "https") or not split.hostname:
        raise SoritesError("expected the camera's address, such as ccapi:http://192.168.1.2:8080")
    port = split.port or (443 if split.scheme == "https" else 8080)
    return f"{split.scheme}://{split.hostname}:{port}"


def login_of(url: str) -> tuple[str, str] | None:
    """Return user and password from the environment, or from the address if they stand there."""
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


def _refusal(answer: httpx.Response, url: str, what: str) -> CameraError:
    held = _json(answer)
    message = str(held.get("message", "") if isinstance(held, dict) else "")[:200]
    if answer.status_code == 401:
        return NeedsHand(
            f"the camera at {url} wants another user or password. Set SORITES_CAMERA_USER and"
            " SORITES_CAMERA_PASSWORD"
        )
    if any(word in message.lower() for word in FULL):
        return NeedsHand(f'the card is full or locked ("{message}"): change or empty it, or add --card clear')
    if answer.status_code == 503 and (not message or any(word in message.lower() for word in BUSY)):
        return Busy(f'the camera is busy: "{message}"')
    return CameraError(f'the camera refuses {what}: {answer.status_code} "{message}"')


# A camera that speaks CCAPI: capabilities first, settings read back, a shutter that is always released,
# files by events.


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
SHUTTER, SHUTTER_MANUAL = "shooting/control/shutterbutton", "shooting/control/shutterbutton/manual"
EVENTS, CONTENTS = "event/polling", "contents"
# The longest wait for the file of a shot, after the longest shutter time.
FILE_S = 60.0
FETCHES = 4
IMAGES = (".jpg", ".jpeg")
EMPTY_BATTERY = ("none", "low")


class CcapiCamera:
    """A Canon body reached over HTTP."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._seen: set[str] = set()
        self._now: dict[str, str] = {}
        self._ability: dict[str, tuple[str, ...]] = {}
        self._mode = ""
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
        held = self._calls.get(feature) if self._calls.can("get", feature) else {}
        return held if isinstance(held, dict) else {}

    def prepare(self) -> None:
        """Ask for JPEG files alone, single shots and no sleep, as far as the body has these settings."""
        wanted: dict[str, Any] = {
            "shooting/settings/stillimagequality": {"raw": "none", "jpeg": "large_fine"},
            "shooting/settings/drive": "single",
            "shooting/settings/metering": "evaluative",
            "functions/autopoweroff": "disable",
        }
        for feature, value in wanted.items():
            if self._calls.can("put", feature):
                with contextlib.suppress(CameraError):
                    self._calls.put(feature, value)
        self.check()

    def check(self) -> None:
        """Raise ``NeedsHand`` if the battery is empty."""
        level = str(self._optional("devicestatus/battery").get("level", ""))
        if level in EMPTY_BATTERY:
            raise NeedsHand(f'the battery is empty ("{level}"): change it, or use a mains adapter')

    def set(self, params: Params) -> Mapping[str, Any]:
        """Set the mode, then what differs from what the camera has, and return what it reads back."""
        self._set_mode(params["mode"])
        if params["mode"] == "auto":
            self._put("iso", "auto")
            return {}
        for key in SETTINGS:
            text = nearest(key, float(params[key]), self._can(key))
            if text is None:
                raise CameraError(
                    f"this camera and lens cannot be set to {spelled(key, float(params[key]))} ({key})"
                )
            self._put(key, text)
        return {key: parsed(key, self._now.get(key, "")) for key in SETTINGS}

    def _can(self, key: str) -> tuple[str, ...]:
        """Return the spellings that a setting takes, as the body listed them when it was last in
        this mode.
        """
        if not self._ability.get(key):
            _, self._ability[key] = self._read(key)
        return self._ability[key]

    def _put(self, key: str, text: str) -> None:
        """Put one setting if it is another, and read it back; a body that answers otherwise is
        asked once more.
        """
        for _ in range(2):
            if self._now.get(key) == text:
                return
            self._calls.put(SETTINGS[key], text)
            self._now[key], self._ability[key] = self._read(key)
        if self._now[key] != text:
            raise CameraError(f"the camera was asked for {key} {text} and has {self._now[key]!r}")

    def _read(self, key: str) -> tuple[str, tuple[str, ...]]:
        held = self._calls.get(SETTINGS[key])
        ability = held.get("ability") or ()
        return str(held.get("value", "")), (
            tuple(map(str, ability)) if isinstance(ability, list | tuple) else ()
        )

    def _current_mode(self) -> str:
        for feature in (MODE, DIAL):
            if self._calls.can("get", feature):
                return str(self._calls.get(feature).get("value", ""))
        return ""

    def _set_mode(self, mode: str) -> None:
        """Bring the camera to manual or automatic exposure; where only the dial can, somebody must
        turn it.
        """
        if self._mode == mode:
            return
        wanted = MODES[mode]
        if self._current_mode() not in wanted:
            if self._calls.can("post", IGNORE):
                self._calls.post(IGNORE, {"action": "on"})
            if self._calls.can("put", MODE):
                self._calls.put(MODE, wanted[0])
            if self._current_mode() not in wanted:
                raise NeedsHand(
                    f"turn the mode dial of the camera to {wanted[0].upper()}; it stands at"
                    f" {self._current_mode()!r}"
                )
        self._now, self._ability, self._mode = {}, {}, mode

    def shoot(self) -> Photo:
        """Release the shutter and return the new file. An error after the release is ``Unsettled``."""
        self._drain()
        self._release()
        try:
            name = self._new_file()
            return self._fetched(name)
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
        """Wait for the event that names a new JPEG; if none comes, the card itself is asked."""
        end = time.monotonic() + FILE_S
        while time.monotonic() < end:
            fresh = self._added("short")
            if fresh:
                return fresh[0]
        fresh = [name for name in self._listed() if name not in self._seen]
        if not fresh:
            raise CameraError(f"no file came within {FILE_S:.0f} s of the shot")
        self._seen.update(fresh)
        return fresh[-1]

    def _added(self, wait: str) -> list[str]:
        """Return the JPEG files that the camera reports and that were not reported before."""
        return self._fresh(self._polled(wait))

    def _polled(self, wait: str) -> Mapping[str, Any]:
        """Ask for events: at once, or until one comes or some seconds have passed."""
        version = self._calls.path("get", EVENTS).split("/")[2]
        query = (
            {"timeout": wait}
            if version != "ver100"
            else {"continue": "off" if wait == "immediately" else "on"}
        )
        held = self._calls.again("GET", self._calls.path("get", EVENTS), params=query)
        return held if isinstance(held, dict) else {}

    def _fresh(self, event: Mapping[str, Any]) -> list[str]:
        named = event.get("addedcontents") or ()
        fresh = [str(name) for name in named if str(name) not in self._seen]
        self._seen.update(fresh)
        return [name for name in fresh if name.lower().endswith(IMAGES)]

    def _drain(self) -> None:
        self._added("immediately")

    def _fetched(self, name: str) -> Photo:
        for left in reversed(range(FETCHES)):
            try:
                return whole_jpeg(Photo(name, self._calls.download(name)))
            except NeedsHand:
                raise
            except CameraError:
                if left == 0:
                    raise
                time.sleep(0.1)
        raise AssertionError

    def _listed(self) -> list[str]:
        """Return every file of the cards, by folder and page."""
        found: list[str] = []
        left = list(self._entries(self._calls.path("get", CONTENTS)))
        while left:
            path = left.pop()
            if "." in path.rpartition("/")[2]:
                found.append(path)
            else:
                left += self._paged(path)
        return sorted(found)

    def _paged(self, path: str) -> list[str]:
        held = self._calls.again("GET", path, params={"kind": "number"})
        pages = int(held.get("pagenumber") or 1) if isinstance(held, dict) else 1
        return [name for page in range(1, pages + 1) for name in self._entries(path, page=str(page))]

    def _entries(self, path: str, **query: str) -> list[str]:
        held = self._calls.again("GET", path, params=query)
        named = held.get("path") or held.get("url") or [] if isinstance(held, dict) else []
        return [str(name) for name in named]

    def settle(self) -> None:
        """Wait until no event comes any more, then take every file of the card as seen: none of
        them is a later shot.
        """
        self._now, self._ability, self._mode = {}, {}, ""
        end = time.monotonic() + FILE_S
        while (event := self._polled("short")) and time.monotonic() < end:
            self._fresh(event)
        self._seen.update(self._listed())

    def forget(self, photo: Photo) -> None:
        """Delete a file that is safe here from the card."""
        self._calls.again("DELETE", photo.name)

    def preview(self) -> bytes:
        """Return one frame of the live view, which is started if it is off."""
        if not self._live:
            self._calls.post("shooting/liveview", {"liveviewsize": "medium", "cameradisplay": "keep"})
            self._live = True
        return self._calls.download(self._calls.path("get", "shooting/liveview/flip"))

    _live = False

    def close(self) -> None:
        """End the connection."""
        self._calls.close()
