"""Virtual bridge with two lamps that implements both versions of Hue's interface, from public
documentation.
"""

from __future__ import annotations

import secrets
import ssl
import time
import uuid
from typing import Any

from sorites.apps.studio.serving import LOOPBACK, NOT_FOUND, Reply, Request, Server, in_json
from sorites.apps.studio.virtual.camera import Faults

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
        self._server = Server(self._answer, LOOPBACK, port, tls)
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

    def _answer(self, request: Request) -> Reply:
        parts = request.parts
        if request.method == "POST" and parts == ["api"]:
            return self._pair()
        if parts[:1] == ["api"] and len(parts) > 2:
            return self._answer_v1(request, parts)
        if parts[:3] == ["clip", "v2", "resource"] and parts[3:4] == ["light"]:
            return self._answer_v2(request, parts[4:])
        return NOT_FOUND

    def _pair(self) -> Reply:
        if time.monotonic() - self._pressed > BUTTON_S:
            return in_json(
                [{"error": {"type": 101, "address": "", "description": "link button not pressed"}}]
            )
        return in_json([{"success": {"username": self.new_key()}}])

    def _answer_v1(self, request: Request, parts: list[str]) -> Reply:
        if parts[1] not in self._keys:
            return in_json([{"error": {"type": 1, "address": "/", "description": "unauthorized user"}}])
        if request.method == "GET" and parts[2:] == ["lights"]:
            return in_json({str(number): self._lamp_v1(number) for number in range(1, len(self._states) + 1)})
        if request.method == "PUT" and len(parts) == 5 and parts[4] == "state" and parts[3].isdigit():
            number, body = int(parts[3]), request.json()
            if not 1 <= number <= len(self._states):
                return in_json(
                    [{"error": {"type": 3, "address": request.path, "description": "resource not available"}}]
                )
            self._change(number - 1, {key: body[key] for key in ("on", "bri", "ct") if key in body})
            return in_json(
                [{"success": {f"/lights/{number}/state/{key}": value}} for key, value in body.items()]
            )
        return NOT_FOUND

    def _lamp_v1(self, number: int) -> dict[str, Any]:
        return {
            "state": {**self._states[number - 1], "reachable": True},
            "type": "Color temperature light",
            "name": f"lamp {number}",
        }

    def _answer_v2(self, request: Request, rest: list[str]) -> Reply:
        if request.headers.get("hue-application-key") not in self._keys:
            return in_json({"errors": [{"description": "unauthorized"}]}, 403)
        if request.method == "GET" and not rest:
            return in_json(
                {"errors": [], "data": [self._lamp_v2(number) for number in range(len(self._states))]}
            )
        if request.method == "PUT" and len(rest) == 1 and rest[0] in self._ids:
            body, change = request.json(), dict[str, Any]()
            if "on" in body:
                change["on"] = bool(body["on"]["on"])
            if "dimming" in body:
                change["bri"] = max(1, int(float(body["dimming"]["brightness"]) / 100 * STEPS))
            self._change(self._ids.index(rest[0]), change)
            return in_json({"errors": [], "data": [{"rid": rest[0], "rtype": "light"}]})
        return NOT_FOUND

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
