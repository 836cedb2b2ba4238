"""How the page writes numbers, for tests that look for them."""

from __future__ import annotations

from collections.abc import Mapping


def share(row: Mapping[str, float]) -> str:
    """A share in percent with its interval in small, as ``parts.scorers.estimate`` should write it."""
    return (
        f"{100 * row['value']:.1f}\u202f%<small>{100 * row['low']:.1f} to"
        f" {100 * row['high']:.1f}\u202f%</small>"
    )
