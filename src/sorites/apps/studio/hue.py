"""Hue bridges: requests in both versions of the interface, pairing by the link button, and stored keys."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sorites.apps.studio.lamps import LampError, LampState, Look
from sorites.apps.studio.tls import pinned
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import command
from sorites.io.files import cache, read_json, write_bytes

if TYPE_CHECKING:
    import httpx

APP = "sorites#studio"
_PAIR = command("studio check", lamps="hue:IP", pair=True)
# Error type of the bridge if the link button was not pressed.
NOT_PRESSED = 101
TRIES, PAUSE_S = 4, 0.2


def client(host: str, secure: bool, fingerprint: str | None = None) -> tuple[httpx.Client, str | None]:
    """Return a connection to a bridge, and the fingerprint of its certificate if it has one."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("the studio", "studio") from error
    if not secure:
        return httpx.Client(base_url=f"http://{host}", timeout=10.0, trust_env=False), None
    name, _, port = host.partition(":")
    context, certificate = pinned(name, int(port or 443), fingerprint)
    return httpx.Client(
        base_url=f"https://{host}", verify=context, timeout=10.0, trust_env=False
    ), certificate


def ask(http: httpx.Client, method: str, path: str, **more: Any) -> Any:
    """Call a bridge, with retries, and return the JSON of its answer."""
    import httpx

    for remaining in reversed(range(TRIES)):
        try:
            answer = http.request(method, path, **more)
            if answer.status_code == 403:
                raise SoritesError(f"the bridge does not accept this key; pair again: {_PAIR}")
            if answer.status_code in (429, 503) and remaining:
                time.sleep(PAUSE_S)
                continue
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            if remaining == 0:
                raise LampError(
                    f"the bridge at {http.base_url.host} does not answer ({type(error).__name__})"
                ) from None
            time.sleep(PAUSE_S)
    raise AssertionError


def pair(http: httpx.Client, wait: float = 30.0, say: Any = None) -> str:
    """Ask the bridge for a key until its link button is pressed, and return the key.

    Args:
        http: Connection to the bridge.
        wait: Seconds to wait for the button.
        say: Receives a message for the operator.
    """
    end = time.monotonic() + wait
    while True:
        answer = ask(http, "POST", "/api", json={"devicetype": APP})
        entry = answer[0] if isinstance(answer, list) and answer else {}
        if "success" in entry:
            return str(entry["success"]["username"])
        if entry.get("error", {}).get("type") != NOT_PRESSED:
            raise SoritesError(f"the bridge refused to pair: {str(entry)[:200]}")
        if time.monotonic() > end:
            raise SoritesError(
                "the link button of the bridge was not pressed; press it, then repeat the command within 30 s"
            )
        if say is not None:
            say("press the round button on the bridge")
            say = None
        time.sleep(0.5)


def load_key(host: str) -> dict[str, str]:
    """Return the stored key and fingerprint of a bridge, from the environment or the cache."""
    if "SORITES_HUE_KEY" in os.environ:
        return {"key": os.environ["SORITES_HUE_KEY"]}
    try:
        stored = read_json(cache("studio", "bridges.json"))
    except SoritesError:
        return {}
    entry = stored.get(host, {}) if isinstance(stored, dict) else {}
    return {str(k): str(v) for k, v in entry.items()} if isinstance(entry, dict) else {}


def store_key(host: str, key: str, fingerprint: str | None) -> None:
    """Store the key of a bridge in the cache, in a file that only the owner can read."""
    file = cache("studio", "bridges.json")
    try:
        stored = read_json(file)
    except SoritesError:
        stored = {}
    entry = {"key": key, **({"fingerprint": fingerprint} if fingerprint else {})}
    write_bytes(json.dumps({**(stored if isinstance(stored, dict) else {}), host: entry}).encode(), file)
    file.chmod(0o600)


# Version 1 of the interface is plain HTTP with the key in the path, version 2 is HTTPS with the key in a
# header.

# Brightness levels of version 1.
STEPS = 254
LIGHTS = "/clip/v2/resource/light"


class HueV1:
    """Version 1 of the interface.

    Every answer to a change is a list of successes and errors, also with status 200.
    """

    def __init__(self, http: httpx.Client, key: str) -> None:
        self._http, self._key = http, key

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by id; bridges that list only names are asked lamp by lamp."""
        answer = _check(ask(self._http, "GET", f"/api/{self._key}/lights"))
        listed = {str(id_): light for id_, light in answer.items()} if isinstance(answer, dict) else {}
        return {
            id_: _state_v1(id_, light if "state" in light else self._lamp(id_))
            for id_, light in listed.items()
        }

    def _lamp(self, id_: str) -> Mapping[str, Any]:
        answer = _check(ask(self._http, "GET", f"/api/{self._key}/lights/{id_}"))
        return answer if isinstance(answer, dict) else {}

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Switch one lamp on or off, without a transition."""
        body: dict[str, Any] = {"on": on, "transitiontime": 0}
        if on:
            body |= {"bri": max(1, round(look.brightness / 100 * STEPS)), "ct": look.mired}
        answer = ask(self._http, "PUT", f"/api/{self._key}/lights/{lamp}/state", json=body)
        errors = (
            [entry["error"] for entry in answer if isinstance(entry, dict) and "error" in entry]
            if isinstance(answer, list)
            else []
        )
        # White-only lamps have no colour temperature; ignore errors about it.
        if any("/ct" not in str(error.get("address", "")) for error in errors):
            raise LampError(f"the bridge refused: {str(errors[0].get('description', errors[0]))[:200]}")

    def close(self) -> None:
        """End the connection."""
        self._http.close()


def _state_v1(id_: str, light: Mapping[str, Any]) -> LampState:
    state = light.get("state", {})
    bright = 100 * float(state.get("bri", STEPS)) / STEPS
    return LampState(
        str(light.get("name", id_)), bool(state.get("on")), bright, bool(state.get("reachable", True))
    )


def _check(answer: Any) -> Any:
    """Return the answer of the bridge, or raise its error."""
    if isinstance(answer, list) and answer and "error" in answer[0]:
        error = answer[0]["error"]
        why = str(error.get("description", error))[:200]
        raise SoritesError(f"the bridge refused: {why}. Pair first: {_PAIR}")
    return answer


class HueV2:
    """Version 2 of the interface."""

    def __init__(self, http: httpx.Client, key: str) -> None:
        self._http, self._key = http, {"hue-application-key": key}

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by id."""
        answer = ask(self._http, "GET", LIGHTS, headers=self._key)
        return {str(light["id"]): _state_v2(light) for light in answer.get("data", ())}

    def put(self, lamp: str, on: bool, look: Look) -> None:
        """Switch one lamp on or off, without a transition."""
        body: dict[str, Any] = {"on": {"on": on}, "dynamics": {"duration": 0}}
        if on:
            body |= {"dimming": {"brightness": look.brightness}, "color_temperature": {"mirek": look.mired}}
        answer = ask(self._http, "PUT", f"{LIGHTS}/{lamp}", headers=self._key, json=body)
        if answer.get("errors"):
            raise LampError(f"the bridge refused: {str(answer['errors'][0])[:200]}")

    def close(self) -> None:
        """End the connection."""
        self._http.close()


def _state_v2(light: Mapping[str, Any]) -> LampState:
    name = str(light.get("metadata", {}).get("name", light["id"]))
    return LampState(name, bool(light["on"]["on"]), float(light.get("dimming", {}).get("brightness", 100.0)))
