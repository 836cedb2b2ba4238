"""Number formats of the page, for tests that search for them."""

from __future__ import annotations

from collections.abc import Mapping


def share(row: Mapping[str, float]) -> str:
    """Format a share with its interval, as ``scorers.estimate`` does."""
    return (
        f"{100 * row['value']:.1f}\u202f%<small>{100 * row['low']:.1f} to"
        f" {100 * row['high']:.1f}\u202f%</small>"
    )
