"""Calls to a Hue bridge, pairing by its link button, and the key that it gives."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

from sorites.errors import MissingExtra, SoritesError
from sorites.files import cache, read_json, write_bytes
from sorites.studio.lamps import LampError
from sorites.studio.tls import pinned

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
                raise SoritesError("the bridge does not know this key; pair again: sorites studio check --lamps ... --pair")
            if answer.status_code in (429, 503) and left:
                time.sleep(PAUSE_S)
                continue
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            if left == 0:
                raise LampError(f"the bridge at {http.base_url.host} does not answer ({type(error).__name__})") from None
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
            raise SoritesError("the link button of the bridge was not pressed; press it, then type the same command within 30 s")
        if say is not None:
            say("press the round button on the bridge")
            say = None
        time.sleep(0.5)


def kept_key(host: str) -> dict[str, str]:
    """Return the key and the fingerprint that were kept for a bridge, from the environment or from the cache."""
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
