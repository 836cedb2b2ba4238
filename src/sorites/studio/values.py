"""Read a camera's spelling of ISO, shutter and aperture, and decide when two values are near enough to be one setting."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sorites.errors import SoritesError

NEAR_STOPS = 0.17
"""The most stops by which a value may differ from the one asked for: half a third of a stop, the step of a camera's dials."""
KEYS = {"iso": "ISO", "shutter": "shutter", "aperture": "aperture"}
_SECONDS = re.compile(r'(\d+)"(\d?)')


def seconds(text: str) -> float | None:
    """Return a shutter time in s from the way a camera writes it: 1/125, 0"4, 30", 0.4, 0.4s; None for anything else."""
    text = text.strip().removesuffix("s").strip()
    found = _SECONDS.fullmatch(text)
    if found:
        return float(f"{found[1]}.{found[2] or 0}")
    above, slash, below = text.partition("/")
    try:
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) and value > 0 else None


def number(text: str) -> float | None:
    """Return an ISO or an f-number from the way a camera writes it: 400, f5.6, f/5.6; None for anything else (auto)."""
    try:
        value = float(text.strip().lower().removeprefix("f").removeprefix("/"))
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def parsed(key: str, text: str) -> float | None:
    """Return the value of a setting (iso, shutter, aperture) as a camera writes it, or None."""
    return seconds(text) if key == "shutter" else number(text)


def stops_apart(key: str, one: float, other: float) -> float:
    """Return by how many stops of light two values differ."""
    return abs(math.log2(one / other)) * (2 if key == "aperture" else 1)


def nearest(key: str, wanted: float, ability: Iterable[str]) -> str | None:
    """Return the spelling of the value that a camera has nearest to the wanted one, or None if none is near enough."""
    known = ((text, parsed(key, text)) for text in ability)
    near = [(stops_apart(key, wanted, value), text) for text, value in known if value is not None]
    best = min(near, default=(math.inf, ""))
    return best[1] if best[0] <= NEAR_STOPS else None


def agree(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> list[str]:
    """Say which settings the camera answered differ from those asked for; automatic exposure asks for none."""
    if asked["mode"] == "auto":
        return []
    wrong = []
    for key, name in KEYS.items():
        value = answered.get(key)
        if value is None or stops_apart(key, float(asked[key]), float(value)) > NEAR_STOPS:
            wrong.append(f"{name} asked {spelled(key, asked[key])}, got {'nothing' if value is None else spelled(key, value)}")
    return wrong


def spelled(key: str, value: float) -> str:
    """Return a value for readers."""
    if key == "shutter":
        return f"1/{round(1 / value)} s" if value <= 0.3 else f"{value:.2g} s"
    return f"f/{value:.3g}" if key == "aperture" else f"{value:g}"


def in_words(params: Mapping[str, Any]) -> str:
    """Return a setting for readers."""
    if params["mode"] == "auto":
        return f"automatic {params.get('shot', '')}".strip()
    return (
        f"ISO {spelled('iso', params['iso'])}, {spelled('shutter', params['shutter'])}, {spelled('aperture', params['aperture'])}"
    )


def checked(key: str, text: str, where: str) -> float:
    """Return a value typed by a user, or say what was wanted."""
    value = parsed(key, text)
    if value is None:
        example = {"iso": "250", "shutter": "1/60", "aperture": "f5.0"}[key]
        raise SoritesError(f"{where}: wanted {KEYS[key]} such as {example}, got {text!r}")
    return value
