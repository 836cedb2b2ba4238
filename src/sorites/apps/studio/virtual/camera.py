"""Virtual CCAPI camera, written from public transcripts.

It tests our client but is no evidence for how a real body behaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from sorites.apps.serving import LOOPBACK, Server, Turn, application, json_body, reply
from sorites.apps.studio.cameras import number, seconds
from sorites.apps.studio.virtual.scene import LENS, MODEL, Photographer
from sorites.io.readers import parse_integer
from sorites.optics.camera import Exposure

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

KINDS = ("busy", "drop", "drop_after", "duplicate", "late", "truncate", "wrong_exif", "full", "flat", "stuck")


class Faults:
    """Faults that a test injects into a virtual device: each happens a number of times, then the device
    works again.
    """

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._lock = threading.Lock()
        self.happened: list[str] = []

    def add(self, kind: str, times: int = 1) -> None:
        """Schedule a fault a number of times."""
        if kind not in KINDS:
            raise ValueError(kind)
        with self._lock:
            self._left[kind] = self._left.get(kind, 0) + times

    def take(self, kind: str) -> bool:
        """Return whether the fault happens now, and count it."""
        with self._lock:
            left = self._left.get(kind, 0)
            if left:
                self._left[kind] = left - 1
                self.happened.append(kind)
            return left > 0

    def left(self, kind: str) -> int:
        """Return how often a fault is still scheduled."""
        return self._left.get(kind, 0)


STORAGE = "/ccapi/ver130/contents/sd"
FOLDER = f"{STORAGE}/100CANON"
# Names per page of a listing.
PAGE_SIZE = 100
SHOT_BYTES = 8_000_000


class Card:
    """A memory card for ``shots`` photographs; file numbers are never reused."""

    def __init__(self, shots: int) -> None:
        self.room, self._taken, self._files = shots, 0, dict[str, bytes]()
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """True if no more shots fit."""
        return len(self._files) >= self.room

    def add(self, data: bytes, ending: str = "JPG") -> str:
        """Store a photograph and return its path."""
        with self._lock:
            self._taken += 1
            path = f"{FOLDER}/IMG_{self._taken:04d}.{ending}"
            self._files[path] = data
        return path

    def about(self) -> dict[str, Any]:
        """Return the camera's description of the card."""
        left = (self.room - len(self._files)) * SHOT_BYTES
        size = {"maxsize": self.room * SHOT_BYTES, "spacesize": left, "contentsnumber": len(self._files)}
        return {"name": "sd", "path": STORAGE, "accesscapability": "readwrite", **size}

    def answer(self, request: Request, faults: Faults) -> Response:
        """Answer a request below ``contents``, in any version."""
        path = "/ccapi/ver130/" + request.url.path.split("/", 3)[3]
        if path in self._files:
            return self._file(path, request.method, faults)
        if request.method != "GET":
            return _not_found()
        if path == "/ccapi/ver130/contents":
            return reply({"path": [STORAGE]})
        if path == STORAGE:
            counted = {"contentsnumber": 1, "pagenumber": 1}
            return reply(counted if "kind" in request.query_params else {"path": [FOLDER]})
        return self._page(request) if path == FOLDER else _not_found()

    def _file(self, path: str, method: str, faults: Faults) -> Response:
        if method == "DELETE":
            with self._lock:
                self._files.pop(path, None)
            return reply({})
        data = self._files[path]
        return _broken(data, len(data) // 2) if faults.take("truncate") else reply(data, kind="image/jpeg")

    def _page(self, request: Request) -> Response:
        names = sorted(self._files)
        if request.query_params.get("kind") == "number":
            return reply({"contentsnumber": len(names), "pagenumber": -(-len(names) // PAGE_SIZE)})
        first = ((parse_integer(request.query_params.get("page", "")) or 1) - 1) * PAGE_SIZE
        return reply({"path": names[first : first + PAGE_SIZE]})


def _not_found() -> Response:
    return reply({"message": "Not found"}, 404)


def _busy() -> Response:
    return reply({"message": "Device busy"}, 503)


def _broken(data: bytes = b"", sent: int | None = None) -> Response:
    """Return an answer that breaks off after ``sent`` bytes, or before the head if that is None."""
    from starlette.responses import Response

    class Broken(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if sent is not None:
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": data[:sent], "more_body": True})
            scope["state"]["drop"]()

    return Broken(data, media_type="image/jpeg")


ISOS, TIMES, APERTURES = (
    tuple(values.split())
    for values in (
        "100 125 160 200 250 320 400 500 640 800 1000 1250 1600 2000 2500 3200 4000 5000 6400 8000 10000"
        " 12800 16000 20000 25600 32000 40000",
        '30" 15" 8" 4" 2" 1" 0"8 0"6 0"5 0"4 0"3 1/4 1/5 1/6 1/8 1/10 1/13 1/15 1/20 1/25 1/30 1/40 1/50 1/60'
        " 1/80 1/100 1/125 1/160 1/200 1/250 1/320 1/400 1/500 1/640 1/800 1/1000 1/1250 1/1600 1/2000 1/2500"
        " 1/3200 1/4000",
        "f5.0 f5.6 f6.3 f7.1 f8.0 f9.0 f10 f11 f13 f14 f16 f18 f20 f22",
    )
)
QUALITY = {"raw": ["none", "raw", "craw"], "jpeg": ["none", "large_fine", "large_normal", "small2"]}
_SETTINGS = "shooting/settings"
# Seconds that a request for events is kept open (about 10 and 30 s on a real body).
SHORT_S, LONG_S = 0.4, 30.0


class VirtualCamera:
    """A running camera at ``url``.

    Args:
        photographer: Takes the photographs.
        port: Port; any free one by default.
        login: User and password for digest authentication.
        tls: TLS context for HTTPS.
        dial: Position of a mode dial that cannot be changed remotely.
        shots_per_card: Capacity of the card.
    """

    def __init__(
        self,
        photographer: Photographer,
        port: int = 0,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        dial: str | None = None,
        shots_per_card: int = 100_000,
    ) -> None:
        self.photographer, self.faults, self.card = photographer, Faults(), Card(shots_per_card)
        self.values: dict[str, Any] = {
            "iso": "100",
            "tv": "1/60",
            "av": "f5.0",
            "shootingmode": dial or "m",
            "exposure": "+0.0",
        }
        self.values |= {
            "drive": "single",
            "metering": "evaluative",
            "wb": "auto",
            "picturestyle": "auto",
            "stillimagequality": {"raw": "none", "jpeg": "large_fine"},
        }
        self.battery, self.pressed = "full", 0
        self.taken: dict[str, Any] = {}
        self._dial_only, self._login = dial is not None, login
        self._nonce = secrets.token_hex(16)
        self._turn, self._stopped = Turn(), False
        self._events: dict[str, Any] = {}
        self._again: list[str] = []
        self._shooting = False
        endpoints = [(method, "/{path:path}", self._answer) for method in ("GET", "POST", "PUT", "DELETE")]
        self._server = Server(application(endpoints), LOOPBACK, port, tls)
        self.url, self.port = self._server.url, self._server.port

    def stop(self) -> None:
        """Switch the camera off."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()
        self._server.stop()

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if self._login is not None and not self._allowed(request):
            challenge = f'Digest realm="camera", nonce="{self._nonce}", algorithm=MD5, qop="auth"'
            return reply({}, 401, headers={"WWW-Authenticate": challenge})
        if path == "/ccapi":
            return reply(self._capabilities())
        if path != "/upnp/CameraDevDesc.xml" and self.faults.take("drop"):
            return _broken()
        _, root, version, feature = [*path.split("/", 3), "", "", ""][:4]
        return await self._feature(version, feature, request) if root == "ccapi" else _not_found()

    def _has(self, feature: str, method: str) -> bool:
        return not (self._dial_only and feature == f"{_SETTINGS}/shootingmode" and method == "PUT")

    def _capabilities(self) -> dict[str, list[dict[str, Any]]]:
        """Return the features of the body; the first version lists full URLs, later ones paths."""
        listed: dict[str, list[dict[str, Any]]] = {}
        for (version, feature), verbs in FEATURES.items():
            path = f"/ccapi/{version}/{feature}"
            key, address = ("url", self.url + path) if version == "ver100" else ("path", path)
            allowed = {
                verb: verb in verbs and self._has(feature, verb.upper())
                for verb in ("get", "post", "put", "delete")
            }
            listed.setdefault(version, []).append({key: address, **allowed})
        return listed

    async def _feature(self, version: str, feature: str, request: Request) -> Response:
        method = request.method
        if feature.startswith("contents"):
            return self.card.answer(request, self.faults)
        if method.lower() not in FEATURES.get((version, feature), ()) or not self._has(feature, method):
            return _not_found()
        if method in ("PUT", "POST") and self.faults.take("busy"):
            return _busy()
        facts: dict[str, Callable[[], Any]] = {
            _SETTINGS: lambda: {key: self._setting(key) for key in self.values},
            "deviceinformation": lambda: {
                "manufacturer": "Sorites",
                "productname": MODEL,
                "serialnumber": "0",
            },
            "devicestatus/battery": lambda: {
                "name": "virtual",
                "kind": "battery",
                "level": "none" if self.faults.take("flat") else self.battery,
                "quality": "good",
            },
            "devicestatus/lens": lambda: {"mount": True, "name": LENS},
            "devicestatus/storage": lambda: {"storagelist": [self.card.about()]},
            "shooting/liveview": dict,
            "functions/autopoweroff": dict,
        }
        actions: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "shooting/control/shutterbutton": self._shoot,
            "shooting/control/shutterbutton/manual": self._press,
            "shooting/liveview/flip": self._preview,
            "event/polling": self._poll,
        }
        if feature in facts:
            return reply(facts[feature]())
        return await actions.get(feature, self._answer_setting)(request)

    async def _preview(self, request: Request) -> Response:
        return reply(await asyncio.to_thread(self.photographer.live), kind="image/jpeg")

    async def _answer_setting(self, request: Request) -> Response:
        key = request.url.path.rpartition("/")[2]
        if request.method != "PUT":
            return reply(self._setting(key))
        if self._shooting:
            return _busy()
        ability, value = self._setting(key)["ability"], (await json_body(request)).get("value")
        if isinstance(ability, list) and value not in ability:
            return reply({"message": "Invalid parameter"}, 400)
        self.values[key] = value
        return reply({"value": value})

    def _setting(self, key: str) -> dict[str, Any]:
        manual = self.values["shootingmode"] == "m"
        free = {"tv": TIMES, "av": APERTURES} if manual else {}
        fixed = {
            "iso": ("auto", *ISOS),
            "shootingmode": ("m", "p"),
            "drive": ("single",),
            "metering": ("evaluative", "spot"),
            "wb": ("auto", "daylight", "tungsten"),
            "picturestyle": ("auto", "standard", "neutral"),
        }
        if key in ("tv", "av") and not manual:
            return {"value": "", "ability": []}
        ability: Any = QUALITY if key == "stillimagequality" else list({**fixed, **free}.get(key, ()))
        return {"value": self.values[key], "ability": ability}

    async def _press(self, request: Request) -> Response:
        action = (await json_body(request)).get("action")
        self.pressed = int(action != "release")
        return await self._shoot(request) if action == "full_press" else reply({})

    async def _shoot(self, request: Request) -> Response:
        if self.faults.take("full") or self.card.full:
            return reply({"message": "Can not write to card"}, 503)
        with self._turn:
            if self._shooting:
                return reply({"message": "During shooting or recording"}, 503)
            self._shooting = True
        threading.Thread(target=self._expose, args=(self._exposure(),), daemon=True).start()
        return _broken() if self.faults.take("drop_after") else reply({})

    def _exposure(self) -> Exposure | None:
        iso, tv, av = number(str(self.values["iso"])), seconds(self.values["tv"]), number(self.values["av"])
        automatic = self.values["shootingmode"] != "m" or None in (iso, tv, av)
        return None if automatic else Exposure(float(iso or 0), float(tv or 0), float(av or 0))

    def _expose(self, exposure: Exposure | None) -> None:
        negative = self.values["stillimagequality"]["raw"] != "none"
        data = self.photographer.photograph(exposure, self.faults.take("wrong_exif"), negative)
        path = self.card.add(data, "DNG" if negative else "JPG")
        self.taken[path] = self.photographer.last
        # The file exists and the camera is ready, but the event comes late.
        if self.faults.take("late"):
            self._shooting = False
            time.sleep(2 * SHORT_S)
        with self._turn:
            named = [*self._again, path]
            self._again = [path] if self.faults.take("duplicate") else []
            self._events["addedcontents"] = [*self._events.get("addedcontents", ()), *named]
            self._shooting = False
            self._turn.notify_all()

    async def _poll(self, request: Request) -> Response:
        wait = {"immediately": 0.0, "long": LONG_S}.get(request.query_params.get("timeout", ""), SHORT_S)
        await self._turn.until(lambda: bool(self._events) or self._stopped, wait)
        with self._turn:
            events, self._events = self._events, {}
        return reply(events)

    def _allowed(self, request: Request) -> bool:
        """Check a digest login (RFC 7616, MD5)."""
        user, password = self._login or ("", "")
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        fields = {
            key.strip(): value.strip().strip('"')
            for key, value in parse_qsl(rest.replace(", ", "&").replace(",", "&"))
        }
        if scheme != "Digest" or fields.get("username") != user or fields.get("nonce") != self._nonce:
            return False
        secret, request_hash = (
            _md5(f"{user}:camera:{password}"),
            _md5(f"{request.method}:{fields.get('uri', '')}"),
        )
        expected = _md5(
            ":".join(
                [secret, self._nonce, fields.get("nc", ""), fields.get("cnonce", ""), "auth", request_hash]
            )
        )
        return secrets.compare_digest(expected, fields.get("response", ""))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


_FREE_SETTINGS = ("iso", "tv", "av", "exposure")
_READ, _READ_SET = ("get",), ("get", "put")
# Verbs of the body's features by (version, feature); a feature may exist in one version only.
FEATURES: dict[tuple[str, str], tuple[str, ...]] = {
    ("ver100", "deviceinformation"): _READ,
    ("ver100", "devicestatus/battery"): _READ,
    ("ver100", "devicestatus/lens"): _READ,
    ("ver110", "devicestatus/storage"): _READ,
    ("ver100", _SETTINGS): _READ,
    **{
        ("ver100", f"{_SETTINGS}/{key}"): _READ_SET
        for key in (
            "iso",
            "tv",
            "av",
            "exposure",
            "drive",
            "metering",
            "wb",
            "picturestyle",
            "stillimagequality",
        )
    },
    ("ver110", f"{_SETTINGS}/shootingmode"): _READ_SET,
    ("ver100", "shooting/control/shutterbutton"): ("post",),
    ("ver100", "shooting/control/shutterbutton/manual"): ("post",),
    ("ver100", "shooting/liveview"): ("post",),
    ("ver100", "shooting/liveview/flip"): _READ,
    ("ver110", "event/polling"): ("get", "delete"),
    ("ver100", "contents"): ("get", "delete"),
    ("ver130", "contents"): ("get", "delete"),
    ("ver100", "functions/autopoweroff"): _READ_SET,
}
