"""Calls to a Hue bridge, pairing by its link button, and the key that it gives."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sorites.apps.studio.lamps import LampError, LampState, Look
from sorites.apps.studio.tls import pinned
from sorites.core.errors import MissingExtra, SoritesError
from sorites.io.files import cache, read_json, write_bytes

if TYPE_CHECKING:
    import httpx

APP = "sorites#studio"
NOT_PRESSED = 101
TRIES, PAUSE_S = 4, 0.2


def client(host: str, secure: bool, fingerprint: str | None = None) -> tuple[httpx.Client, str | None]:
    """Return a connection to a bridge, and the fingerprint of its certificate where it has one."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("the studio", "studio") from error
    if not secure:
        return httpx.Client(base_url=f"http://{host}", timeout=10.0, trust_env=False), None
    name, _, port = host.partition(":")
    context, found = pinned(name, int(port or 443), fingerprint)
    return httpx.Client(base_url=f"https://{host}", verify=context, timeout=10.0, trust_env=False), found


def ask(http: httpx.Client, method: str, path: str, **more: Any) -> Any:
    """Call a bridge, again where it does not answer, and return the JSON of its answer."""
    import httpx

    for left in reversed(range(TRIES)):
        try:
            answer = http.request(method, path, **more)
            if answer.status_code == 403:
                raise SoritesError(
                    "the bridge does not know this key; pair again: sorites studio check --lamps ... --pair"
                )
            if answer.status_code in (429, 503) and left:
                time.sleep(PAUSE_S)
                continue
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            if left == 0:
                raise LampError(
                    f"the bridge at {http.base_url.host} does not answer ({type(error).__name__})"
                ) from None
            time.sleep(PAUSE_S)
    raise AssertionError


def pair(http: httpx.Client, wait: float = 30.0, say: Any = None) -> str:
    """Ask the bridge for a key until its link button is pressed, and return it."""
    end = time.monotonic() + wait
    while True:
        held = ask(http, "POST", "/api", json={"devicetype": APP})
        entry = held[0] if isinstance(held, list) and held else {}
        if "success" in entry:
            return str(entry["success"]["username"])
        if entry.get("error", {}).get("type") != NOT_PRESSED:
            raise SoritesError(f"the bridge refuses to pair: {str(entry)[:200]}")
        if time.monotonic() > end:
            raise SoritesError(
                "the link button of the bridge was not pressed; press it, then type the same command within"
                " 30 s"
            )
        if say is not None:
            say("press the round button on the bridge")
            say = None
        time.sleep(0.5)


def kept_key(host: str) -> dict[str, str]:
    """Return the key and the fingerprint that were kept for a bridge, from the environment or from
    the cache.
    """
    if "SORITES_HUE_KEY" in os.environ:
        return {"key": os.environ["SORITES_HUE_KEY"]}
    try:
        held = read_json(cache("studio", "bridges.json"))
    except SoritesError:
        return {}
    kept = held.get(host, {}) if isinstance(held, dict) else {}
    return {str(k): str(v) for k, v in kept.items()} if isinstance(kept, dict) else {}


def keep_key(host: str, key: str, fingerprint: str | None) -> None:
    """Keep the key of a bridge in the cache, in a file that nobody else can read."""
    file = cache("studio", "bridges.json")
    try:
        held = read_json(file)
    except SoritesError:
        held = {}
    kept = {"key": key, **({"fingerprint": fingerprint} if fingerprint else {})}
    write_bytes(json.dumps({**(held if isinstance(held, dict) else {}), host: kept}).encode(), file)
    file.chmod(0o600)


# The two versions of a Hue bridge's interface: plain HTTP with the key in the path, and HTTPS with the
# key in a header.


STEPS = 254
LIGHTS = "/clip/v2/resource/light"


class HueV1:
    """A bridge by its first interface.

    Every answer to a change is a list of successes and errors, also with status 200.
    """

    def __init__(self, http: httpx.Client, key: str) -> None:
        self._http, self._key = http, key

    def states(self) -> Mapping[str, LampState]:
        """Return every lamp by its id; bridges whose list has names alone are asked lamp by lamp."""
        held = _refused(ask(self._http, "GET", f"/api/{self._key}/lights"))
        listed = {str(id_): light for id_, light in held.items()} if isinstance(held, dict) else {}
        return {
            id_: _state_v1(id_, light if "state" in light else self._one(id_))
            for id_, light in listed.items()
        }

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
    return LampState(
        str(light.get("name", id_)), bool(state.get("on")), bright, bool(state.get("reachable", True))
    )


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
