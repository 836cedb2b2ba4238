"""95 % intervals of single numbers, for estimates that are not polars expressions."""

from __future__ import annotations

import math
from collections.abc import Callable

from sorites.metrics._intervals import Z

Bounds = tuple[float | None, float | None]


def share(value: float, n: float) -> Bounds:
    """Return Wilson's interval of a share observed in ``n`` independent cases, or None twice where ``n`` is 0."""
    if n <= 0:
        return None, None
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = Z / shrink * math.sqrt(value * (1 - value) / n + (Z / (2 * n)) ** 2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def area(value: float, familiar: float, strange: float, variance: float, size: float = 1.0) -> Bounds:
    """Return Newcombe's interval of an AUROC (Statistics in Medicine 2006, method 5), scaled to ``variance``.

    Each bound is the area that lies Z standard errors from ``value``, where the standard error is the one at that bound: Hanley
    and McNeil's (1982), scaled by the ratio of ``variance`` to theirs at ``value``. So the interval stays inside 0..1 and does
    not collapse where every strange picture scores above every familiar one. Where hardly a pair is in the wrong order little
    is known of that ratio: it is drawn towards ``size``, the pictures per sample, as by one more picture in the wrong order.
    """
    theirs = _hanley_mcneil(value, familiar, strange)
    ratio = variance / theirs if theirs > 0 and variance > 0 else size
    seen = min(value, 1 - value) * min(familiar, strange) / max(ratio, 1.0)
    scale = (seen * ratio + size) / (seen + 1)

    def beyond(candidate: float) -> float:
        return (candidate - value) ** 2 - Z**2 * scale * _hanley_mcneil(candidate, familiar, strange)

    return _edge(beyond, value, 0.0), _edge(beyond, value, 1.0)


def square_and_add(value: float, *parts: Bounds) -> Bounds:
    """Return the interval of a number with several causes of error that are independent, from the interval that each alone gives.

    The distances of the ends from ``value`` are added as squares (Newcombe 1998; Zou and Donner, Statistics in Medicine 2008).
    """
    if any(low is None or high is None for low, high in parts):
        return None, None
    down = math.sqrt(sum(max(value - low, 0.0) ** 2 for low, _ in parts if low is not None))
    up = math.sqrt(sum(max(high - value, 0.0) ** 2 for _, high in parts if high is not None))
    return max(value - down, 0.0), min(value + up, 1.0)


def _hanley_mcneil(value: float, familiar: float, strange: float) -> float:
    """Return Hanley and McNeil's variance of an AUROC of ``value`` with these numbers of familiar and strange pictures."""
    more = (familiar + strange) / 2 - 1
    pairs = 1 + more * ((1 - value) / (2 - value) + value / (1 + value))
    return value * (1 - value) * pairs / (familiar * strange)


def _edge(beyond: Callable[[float], float], inside: float, end: float) -> float:
    """Find by bisection where ``beyond`` turns positive between ``inside`` and ``end``."""
    low, high = inside, end
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) > 0 else (middle, high)
    return high if inside != end else end
