"""95 % intervals of single numbers that polars has no expression for."""

from __future__ import annotations

import math
from collections.abc import Callable

from sorites.metrics._intervals import Z

Bounds = tuple[float | None, float | None]


def share(value: float, n: float) -> Bounds:
    """Wilson's interval of a share seen in ``n`` independent cases; none where ``n`` is 0."""
    if n <= 0:
        return None, None
    shrink = 1 + Z**2 / n
    middle = (value + Z**2 / (2 * n)) / shrink
    half = Z / shrink * math.sqrt(value * (1 - value) / n + (Z / (2 * n)) ** 2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def area(value: float, familiar: float, strange: float, variance: float) -> Bounds:
    """Newcombe's interval of an AUROC (Statistics in Medicine 2006, method 5), widened where the ``variance`` found is larger.

    The bounds are those areas that lie Z standard errors from ``value``, the error being that of the bound: Hanley and McNeil's
    (1982) in shape, times ``variance`` over theirs at ``value`` where that is above 1. So the interval stays inside 0..1 and does
    not collapse where every strange picture scores above every familiar one.
    """
    theirs = _hanley_mcneil(value, familiar, strange)
    scale = max(variance / theirs, 1.0) if theirs > 0 and variance > 0 else 1.0

    def beyond(candidate: float) -> float:
        return (candidate - value) ** 2 - Z**2 * scale * _hanley_mcneil(candidate, familiar, strange)

    return _edge(beyond, value, 0.0), _edge(beyond, value, 1.0)


def _hanley_mcneil(value: float, familiar: float, strange: float) -> float:
    more = (familiar + strange) / 2 - 1
    pairs = 1 + more * ((1 - value) / (2 - value) + value / (1 + value))
    return value * (1 - value) * pairs / (familiar * strange)


def _edge(beyond: Callable[[float], float], inside: float, end: float) -> float:
    """Where ``beyond`` turns positive on the way from ``inside`` to ``end``, by halving."""
    low, high = inside, end
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) > 0 else (middle, high)
    return high if inside != end else end
