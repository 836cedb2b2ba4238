"""Tables of any length: the first rows are shown, the others are found by a search, and all of them stand in a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from urllib.parse import quote

from sorites.reports.parts.markup import EMPTY, Html, count, grid, join, tag

SHOWN = 40
"""So many rows are shown until somebody searches; the style sheet has the same number."""
HELD = 1200
"""So many rows at most stand in the page."""


def long_table(
    head: Sequence[object], rows: Sequence[Sequence[object]], caption: str, text: int = 1, what: str = "rows", most: int = HELD
) -> Html:
    """Return a table of which the first rows are shown; the page's script adds a search to one that is longer."""
    shown = grid(head, rows[:most], text=text, caption=caption, cls="long" if len(rows) > SHOWN else None)
    if len(rows) <= SHOWN:
        return shown
    note = f"The first {SHOWN} of {count(len(rows))} {what} are shown; a search finds "
    note += "any." if len(rows) <= most else f"one of the first {count(most)}, and the CSV file holds all."
    return tag("div", shown, tag("p", note, cls="note"), cls="findable", data_what=f"{count(len(rows))} {what}")


def csv_link(name: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Html:
    """Return a link to all rows as a CSV file, which the page itself holds."""
    if not rows:
        return EMPTY
    held = io.StringIO()
    csv.writer(held, lineterminator="\n").writerows([head, *rows])
    address = f"data:text/csv;charset=utf-8,{quote(held.getvalue())}"
    link = tag("a", "CSV", href=address, download=f"{name}.csv", aria_label=f"{count(len(rows))} rows as CSV: {name}")
    return tag("div", join([link]), cls="tools")
