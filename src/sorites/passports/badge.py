"""The badge of a passport: a small SVG for a README, with the two numbers that say most."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

from sorites.files import write_bytes
from sorites.passports.document import Number, Passport

NAME = "badge.svg"
WIDE = 6.6
"""The width of a letter in px, at 11 px Verdana and its like."""
COLOURS = ((0.75, "#1e6b4b"), (0.5, "#6b6a1e"), (0.25, "#8a5a12"), (0.0, "#a3341b"))
"""The colour of the right half by the share of the clean accuracy that is left under shift."""


def write_badge(passport: Passport, folder: Path) -> None:
    """Write ``badge.svg``."""
    write_bytes(badge(passport).encode(), folder / NAME)


def badge(passport: Passport) -> str:
    """Return the badge: accuracy clean and over all dials of the battery."""
    left = f"sorites {passport.battery.name} {passport.battery.version}"
    right = f"{_percent(passport.clean)} clean · {_percent(passport.shifted)} shifted"
    kept = (passport.shifted.value or 0.0) / passport.clean.value if passport.clean.value else 0.0
    colour = next(colour for least, colour in COLOURS if kept >= least)
    one, two = (round(WIDE * len(text)) + 12 for text in (left, right))
    label = escape(f"{left}: {right}", {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{one + two}" height="20" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
        f'<rect width="{one + two}" height="20" rx="3" fill="#3a3f46"/>'
        f'<path d="M{one} 0h{two - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3H{one}z" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{one / 2:g}" y="14">{escape(left)}</text><text x="{one + two / 2:g}" y="14">{escape(right)}</text></g></svg>\n'
    )


def _percent(number: Number) -> str:
    return "–" if number.value is None else f"{100 * number.value:.0f} %"
