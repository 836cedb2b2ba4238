"""Devices found in the local network: SSDP asks all for cameras that speak CCAPI, and for Hue bridges."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Iterable

GROUP = ("239.255.255.250", 1900)
CANON = "urn:schemas-canon-com:service:ICPO-CameraControlAPIService:1"
ROOT = "ssdp:all"
_LOCATION = re.compile(r"^location:\s*(\S+)", re.I | re.M)
MOST = 200
"""The most answers that are read."""


def _question(target: str, seconds: int) -> bytes:
    lines = (
        "M-SEARCH * HTTP/1.1",
        f"HOST: {GROUP[0]}:{GROUP[1]}",
        'MAN: "ssdp:discover"',
        f"MX: {seconds}",
        f"ST: {target}",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def answers(targets: Iterable[str], seconds: float = 3.0, group: tuple[str, int] = GROUP) -> list[str]:
    """Ask all devices of the network, and return what they answer within the time."""
    found: list[str] = []
    end = time.monotonic() + seconds
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)
        for target in targets:
            asking.sendto(_question(target, max(1, int(seconds))), group)
        while (left := end - time.monotonic()) > 0 and len(found) < MOST:
            asking.settimeout(left)
            found.append(asking.recv(4096).decode("latin-1"))
    return found


def cameras(said: Iterable[str]) -> list[str]:
    """Return the addresses of descriptions of cameras that speak CCAPI."""
    return _places(text for text in said if "cameracontrolapi" in text.lower())


def bridges(said: Iterable[str]) -> list[str]:
    """Return the addresses of Hue bridges."""
    places = _places(text for text in said if "hue-bridgeid" in text.lower() or "ipbridge" in text.lower())
    return sorted({re.sub(r"^\w+://([^/:]+).*$", r"\1", place) for place in places})


def _places(said: Iterable[str]) -> list[str]:
    return sorted({place[1] for text in said if (place := _LOCATION.search(text))})


def access_url(description: str) -> str | None:
    """Return the base address of a camera from its description (XML), read without an XML parser: only one element is needed."""
    found = re.search(r"X_accessURL[^>]*>\s*(https?://[^<\s]+)", description)
    return found[1] if found else None
