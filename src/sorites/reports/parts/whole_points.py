"""Costs of shifts in whole points, as sentences say them."""

from __future__ import annotations


def whole(share: float) -> str:
    """Return a share as whole points."""
    return f"{round(100 * share)}".replace("-", "−")


def unit(value: str) -> str:
    """Return the word that follows a number of whole points."""
    return "point" if value in ("1", "−1") else "points"


def all_alike(what: str, count: int, least: float, most: float) -> str:
    """Say that all shifts cost the same of something, where the least and the most are the same whole points; else nothing."""
    cost = whole(most)
    return f"All {count} shifts cost about the same {what}, {cost} {unit(cost)}." if cost == whole(least) else ""
