"""Tables whose cells are shaded: blue on the good side of a middle, orange on the other, hatched where there is too little."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sorites.reports.parts.markup import DASH, EMPTY, Html, count, tag

NONE = tag("td", cls="none")
"""A cell that holds no picture."""


def shaded(text: str, good: float, said: str, small: object = None) -> Html:
    """``good`` runs from -1 to 1, with 0 for what a blind score reaches; ``said`` is told on hovering."""
    strength = round(65 * min(1.0, abs(good)))
    below = EMPTY if small is None else tag("small", small)
    return tag("td", text, below, cls="up" if good >= 0 else "down", style=f"--s:{strength}%", title=said)


def thin(n: int) -> Html:
    """A cell of too few pictures to be fair."""
    return tag("td", DASH, tag("small", count(n)), cls="thin", title=f"{n} pictures are too few")


def heat(
    corner: str, columns: Sequence[object], rows: Iterable[tuple[object, Sequence[Html]]], caption: str, named: bool = False
) -> Html:
    """A row is its head and its cells; ``named`` where the heads are names and not levels. Scrolls inside itself."""
    top = tag("tr", tag("th", corner, scope="col"), *(tag("th", column, scope="col") for column in columns))
    body = [tag("tr", tag("th", head, scope="row"), *cells) for head, cells in rows]
    table = tag(
        "table", tag("caption", caption), tag("thead", top), tag("tbody", *body), cls="heat named" if named else "heat level"
    )
    return tag("div", table, cls="scroll", tabindex="0")


def same(numbers: Iterable[int]) -> str:
    """How many, where rows share a column: one number, or the least and the most."""
    held = sorted(set(numbers))
    return count(held[0]) if len(held) == 1 else f"{count(held[0])} to {count(held[-1])}"
