"""Calls to a CCAPI camera: a version per feature from what the body lists, busy answers tried again, no password in any text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sorites.errors import MissingExtra, SoritesError
from sorites.studio.cameras import CameraError, NeedsHand
from sorites.studio.tls import pinned

if TYPE_CHECKING:
    import httpx

TRIES = 8
"""The times a call is tried while the camera is busy or out of reach; the pauses double."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5.0
TIMEOUT_S = 45.0
BUSY = ("busy", "during shooting", "preparation")
FULL = ("can not write to card", "card full", "no card")
MOST_BYTES = 200 << 20
"""The most bytes of one photograph."""


class Calls:
    """A connection to a camera. ``features`` maps what follows the version in a path to the versions and verbs of the body."""

    def __init__(self, url: str, login: tuple[str, str] | None = None, fingerprint: str | None = None) -> None:
        self.url = plain_url(url)
        self._http = _client(self.url, login or login_of(url), fingerprint)
        try:
            self.features = self._listed()
        except BaseException:
            self._http.close()
            raise

    def _listed(self) -> dict[str, dict[str, frozenset[str]]]:
        """Read which features the body has, in which versions: newer versions list a path, the first lists a whole address."""
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
            raise SoritesError(f"{self.url} is no CCAPI camera: GET /ccapi lists no features. Is CCAPI activated on the body?")
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
        """Trigger an action. It is tried again only where the camera said that it was busy: then it has not done it."""
        return self.again("POST", self.path("post", feature), tries=tries, json=dict(body))

    def again(self, method: str, path: str, tries: int = TRIES, **more: Any) -> Any:
        """Call, and call again while the camera is busy, or is out of reach and the call can be repeated without harm."""
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
        """Call once and return the JSON of the answer; what the camera refuses is an error in its own words."""
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
        raise SoritesError("wanted the camera's address, such as ccapi:http://192.168.1.2:8080")
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
            f"the camera at {url} wants another user or password. Set SORITES_CAMERA_USER and SORITES_CAMERA_PASSWORD"
        )
    if any(word in message.lower() for word in FULL):
        return NeedsHand(f'the card is full or locked ("{message}"): change or empty it, or add --card clear')
    if answer.status_code == 503 and (not message or any(word in message.lower() for word in BUSY)):
        return Busy(f'the camera is busy: "{message}"')
    return CameraError(f'the camera refuses {what}: {answer.status_code} "{message}"')
