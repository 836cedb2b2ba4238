"""Tables with shaded cells: blue on the good side of a reference, orange on the other, hatched with too few pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sorites.reports.parts.markup import DASH, EMPTY, Html, count, tag

NONE = tag("td", cls="none")
"""A cell without pictures."""


def shaded(text: str, good: float, hover: str, small: object = None) -> Html:
    """Return a shaded cell; ``good`` runs from -1 to 1, with 0 for a random score, and ``hover`` is shown on hovering."""
    strength = round(65 * min(1.0, abs(good)))
    below = EMPTY if small is None else tag("small", small)
    return tag("td", text, below, cls="up" if good >= 0 else "down", style=f"--s:{strength}%", title=hover)


def thin(n: int) -> Html:
    """Return a hatched cell, for too few pictures to be reliable."""
    return tag("td", DASH, tag("small", count(n)), cls="thin", title=f"{n} pictures are too few")


def heat(
    corner: str, columns: Sequence[object], rows: Iterable[tuple[object, Sequence[Html]]], caption: str, named: bool = False
) -> Html:
    """Return a table that scrolls inside itself; a row is its head and its cells.

    ``named`` is true where the row heads are names and not levels. An empty ``caption`` is left out.
    """
    top = tag("tr", tag("th", corner, scope="col"), *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", tag("th", head, scope="row"), *cells) for head, cells in rows]
    titled = tag("caption", caption) if caption else EMPTY
    table = tag("table", titled, tag("thead", top), tag("tbody", *body), cls="heat named" if named else "heat level")
    return tag("div", table, cls="scroll", tabindex="0")


def same(numbers: Iterable[int]) -> str:
    """Return counts as text: one number where all are equal, else the least and the greatest."""
    distinct = sorted(set(numbers))
    return count(distinct[0]) if len(distinct) == 1 else f"{count(distinct[0])} to {count(distinct[-1])}"
