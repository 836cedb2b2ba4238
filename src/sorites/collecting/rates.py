"""Read from the headers of an answer how long a service asks to wait."""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping

_PERIODS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LIMIT = re.compile(r"\s*(\d{1,9})\s*/\s*(\d{0,6})\s*([smhd])", re.I)
_EPOCH = 1e9
"""Numbers above this are seconds since 1970, those below seconds from now."""


def wait_asked(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait before the next request; None where the service says nothing of it.

    ``Retry-After`` is seconds or a date. ``X-RateLimit-Available-*`` and ``-Remaining`` of 0 mean that the allowance is used up:
    until ``-Reset``, or for the period that ``X-RateLimit-Limit-*`` names (``20/min``). ``Retry-After`` comes
    first.
    """
    low = {name.lower(): value for name, value in headers.items()}
    asked = _after(low["retry-after"]) if "retry-after" in low else None
    if asked is not None:
        return asked
    waits = [_until(low, name) for name, value in low.items() if _is_left(name) and value.strip() == "0"]
    found = [seconds for seconds in waits if seconds is not None]
    return max(found) if found else None


def _is_left(name: str) -> bool:
    return name.startswith(("x-ratelimit-", "ratelimit-")) and ("available" in name or "remaining" in name)


def _until(headers: Mapping[str, str], name: str) -> float | None:
    word = "available" if "available" in name else "remaining"
    reset = headers.get(name.replace(word, "reset"))
    if reset is not None and (seconds := _after(reset)) is not None:
        return seconds
    period = _LIMIT.match(headers.get(name.replace(word, "limit"), ""))
    return float(period[2] or 1) * _PERIODS[period[3].lower()] if period else None


def _after(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp()
        except (TypeError, ValueError):
            return None
    if seconds != seconds or abs(seconds) == float("inf"):
        return None
    return max(0.0, seconds - time.time() if seconds > _EPOCH else seconds)
