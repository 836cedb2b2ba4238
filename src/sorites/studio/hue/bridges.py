"""The two versions of a Hue bridge's interface: plain HTTP with the key in the path, and HTTPS with the key in a header."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sorites.errors import SoritesError
from sorites.studio.hue.calls import ask
from sorites.studio.lamps import LampError, LampState, Look

if TYPE_CHECKING:
    import httpx

STEPS = 254
LIGHTS = "/clip/v2/resource/light"


class HueV1:
    """A bridge by its first interface. Every answer to a change is a list of successes and errors, also with status 200."""

    def __init__(self, http: httpx.Client, key: str) -> None:
        self._http, self._key = http, key

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by its id; bridges whose list has names alone are asked lamp by lamp."""
        held = _refused(ask(self._http, "GET", f"/api/{self._key}/lights"))
        listed = {str(id_): light for id_, light in held.items()} if isinstance(held, dict) else {}
        return {id_: _state_v1(id_, light if "state" in light else self._one(id_)) for id_, light in listed.items()}

    def _one(self, id_: str) -> Mapping[str, Any]:
        held = _refused(ask(self._http, "GET", f"/api/{self._key}/lights/{id_}"))
        return held if isinstance(held, dict) else {}

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Ask one lamp to be on or off, at once."""
        body: dict[str, Any] = {"on": on, "transitiontime": 0}
        if on:
            body |= {"bri": max(1, round(look.brightness / 100 * STEPS)), "ct": look.mired}
        answer = ask(self._http, "PUT", f"/api/{self._key}/lights/{lamp}/state", json=body)
        errors = (
            [entry["error"] for entry in answer if isinstance(entry, dict) and "error" in entry]
            if isinstance(answer, list)
            else []
        )
        if any(
            "/ct" not in str(error.get("address", "")) for error in errors
        ):  # a lamp that is only white has no colour temperature
            raise LampError(f"the bridge refuses: {str(errors[0].get('description', errors[0]))[:200]}")

    def close(self) -> None:
        """End the connection."""
        self._http.close()


def _state_v1(id_: str, light: Mapping[str, Any]) -> LampState:
    state = light.get("state", {})
    bright = 100 * float(state.get("bri", STEPS)) / STEPS
    return LampState(str(light.get("name", id_)), bool(state.get("on")), bright, bool(state.get("reachable", True)))


def _refused(held: Any) -> Any:
    if isinstance(held, list) and held and "error" in held[0]:
        error = held[0]["error"]
        why = str(error.get("description", error))[:200]
        raise SoritesError(f"the bridge refuses: {why}. Pair first: sorites studio check --lamps ... --pair")
    return held


class HueV2:
    """A bridge by its second interface."""

    def __init__(self, http: httpx.Client, key: str) -> None:
        self._http, self._key = http, {"hue-application-key": key}

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by its id."""
        held = ask(self._http, "GET", LIGHTS, headers=self._key)
        return {str(light["id"]): _state_v2(light) for light in held.get("data", ())}

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Ask one lamp to be on or off, at once."""
        body: dict[str, Any] = {"on": {"on": on}, "dynamics": {"duration": 0}}
        if on:
            body |= {"dimming": {"brightness": look.brightness}, "color_temperature": {"mirek": look.mired}}
        held = ask(self._http, "PUT", f"{LIGHTS}/{lamp}", headers=self._key, json=body)
        if held.get("errors"):
            raise LampError(f"the bridge refuses: {str(held['errors'][0])[:200]}")

    def close(self) -> None:
        """End the connection."""
        self._http.close()


def _state_v2(light: Mapping[str, Any]) -> LampState:
    name = str(light.get("metadata", {}).get("name", light["id"]))
    return LampState(name, bool(light["on"]["on"]), float(light.get("dimming", {}).get("brightness", 100.0)))
