"""Virtual bridge with two lamps that implements both versions of Hue's interface, from public
documentation.
"""

from __future__ import annotations

import secrets
import ssl
import time
import uuid
from typing import TYPE_CHECKING, Any

from sorites.apps.serving import LOOPBACK, Server, application, error_reply, json_body, reply
from sorites.apps.studio.virtual.camera import Faults
from sorites.io.readers import parse_integer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

# Seconds that pairing stays open after the button was pressed.
BUTTON_S = 30.0
# Brightness levels of version 1.
STEPS = 254


class VirtualBridge:
    """A running bridge at ``url``."""

    def __init__(self, lamps: int = 2, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.faults = Faults()
        self._keys: set[str] = set()
        self._pressed = -BUTTON_S
        self._states = [{"on": False, "bri": STEPS, "ct": 250} for _ in range(lamps)]
        self._ids = [str(uuid.UUID(int=number + 1)) for number in range(lamps)]
        endpoints = [
            ("POST", "/api", self._pair),
            ("GET", "/api/{key}/lights", self._lights_v1),
            ("PUT", "/api/{key}/lights/{lamp}/state", self._set_v1),
            ("GET", "/clip/v2/resource/light", self._lights_v2),
            ("PUT", "/clip/v2/resource/light/{lamp}", self._set_v2),
        ]
        self._server = Server(application(endpoints), LOOPBACK, port, tls)
        self.url, self.host = self._server.url, f"{LOOPBACK}:{self._server.port}"

    def stop(self) -> None:
        """Switch the bridge off."""
        self._server.stop()

    def press(self) -> None:
        """Press the link button."""
        self._pressed = time.monotonic()

    def new_key(self) -> str:
        """Return a new valid key."""
        key = secrets.token_hex(20)
        self._keys.add(key)
        return key

    def light(self) -> float:
        """Return the mean light of the lamps as a share of their maximum."""
        return float(sum(state["bri"] / STEPS if state["on"] else 0.0 for state in self._states)) / len(
            self._states
        )

    async def _pair(self, request: Request) -> Response:
        if time.monotonic() - self._pressed > BUTTON_S:
            return _error_v1(101, "", "link button not pressed")
        return reply([{"success": {"username": self.new_key()}}])

    async def _lights_v1(self, request: Request) -> Response:
        if request.path_params["key"] not in self._keys:
            return _error_v1(1, "/", "unauthorized user")
        return reply({str(number): self._lamp_v1(number) for number in range(1, len(self._states) + 1)})

    async def _set_v1(self, request: Request) -> Response:
        if request.path_params["key"] not in self._keys:
            return _error_v1(1, "/", "unauthorized user")
        number, body = parse_integer(request.path_params["lamp"]) or 0, await json_body(request)
        if not 1 <= number <= len(self._states):
            return _error_v1(3, request.url.path, "resource not available")
        self._change(number - 1, {key: body[key] for key in ("on", "bri", "ct") if key in body})
        return reply([{"success": {f"/lights/{number}/state/{key}": value}} for key, value in body.items()])

    def _lamp_v1(self, number: int) -> dict[str, Any]:
        return {
            "state": {**self._states[number - 1], "reachable": True},
            "type": "Color temperature light",
            "name": f"lamp {number}",
        }

    async def _lights_v2(self, request: Request) -> Response:
        if request.headers.get("hue-application-key") not in self._keys:
            return reply({"errors": [{"description": "unauthorized"}]}, 403)
        return reply({"errors": [], "data": [self._lamp_v2(number) for number in range(len(self._states))]})

    async def _set_v2(self, request: Request) -> Response:
        lamp, body, change = request.path_params["lamp"], await json_body(request), dict[str, Any]()
        if request.headers.get("hue-application-key") not in self._keys:
            return reply({"errors": [{"description": "unauthorized"}]}, 403)
        if lamp not in self._ids:
            return error_reply(404, "Not found")
        try:
            if "on" in body:
                change["on"] = bool(body["on"]["on"])
            if "dimming" in body:
                change["bri"] = max(1, int(float(body["dimming"]["brightness"]) / 100 * STEPS))
        except (KeyError, TypeError, ValueError, OverflowError):
            return error_reply(400, "expected on and dimming")
        self._change(self._ids.index(lamp), change)
        return reply({"errors": [], "data": [{"rid": lamp, "rtype": "light"}]})

    def _lamp_v2(self, number: int) -> dict[str, Any]:
        state = self._states[number]
        temperature = {
            "mirek": state["ct"],
            "mirek_valid": True,
            "mirek_schema": {"mirek_minimum": 153, "mirek_maximum": 500},
        }
        return {
            "id": self._ids[number],
            "type": "light",
            "metadata": {"name": f"lamp {number + 1}"},
            "on": {"on": state["on"]},
            "dimming": {"brightness": round(state["bri"] / STEPS * 100, 2)},
            "color_temperature": temperature,
        }

    def _change(self, number: int, change: dict[str, Any]) -> None:
        if not self.faults.take("stuck"):
            self._states[number] = {**self._states[number], **change}


def _error_v1(kind: int, address: str, description: str) -> Response:
    return reply([{"error": {"type": kind, "address": address, "description": description}}])
