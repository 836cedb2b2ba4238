"""HTML that is safe by construction: text is escaped unless it is already markup."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from sorites.core.messages import in_shell, noun


class Html(str):
    """Text that is already markup; all other text is escaped before it reaches a page."""

    __slots__ = ()


EMPTY = Html("")
VOID = frozenset({"img", "input", "meta", "link"})
# Shown for a missing number.
DASH = "–"
# A narrow no-break space, between a number and its unit.
NBSP = "\u00a0"
THIN = "\u202f"
# Positions in a name after which a line may break.
BREAKS = re.compile(r"(?<=[_/:@])(?=[^_/:@])")


def safe(text: object) -> Html:
    """Return markup unchanged and anything else escaped."""
    return text if isinstance(text, Html) else Html(html.escape(in_shell(str(text)), quote=True))


def join(parts: Iterable[object], between: str = "") -> Html:
    """Join parts into markup; text among them, and the separator, are escaped."""
    return Html(safe(between).join(safe(part) for part in parts))


def tag(name: str, /, *children: object, **attrs: object) -> Html:
    """Return an element, as in ``tag("p", "a < b", cls="note")``.

    None and False omit an attribute, True writes it without a value; ``cls`` is the attribute class.
    """
    opened = "".join(_attribute(key, value) for key, value in attrs.items())
    return Html(f"<{name}{opened}>" if name in VOID else f"<{name}{opened}>{join(children)}</{name}>")


def _attribute(key: str, value: object) -> str:
    name = {"cls": "class"}.get(key, key.rstrip("_").replace("_", "-"))
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{safe(value)}"'


def css_variable(name: str) -> str:
    """Return the CSS value that reads a variable of the page's style sheet."""
    return f"var(--{name})"


def css_property(name: str, value: object) -> str:
    """Return the CSS declaration that sets a variable of the page's style sheet for one element."""
    return f"--{name}:{value}"


def breakable(text: object) -> object:
    """Return a name with optional line breaks after underscores, slashes, colons and at signs."""
    if isinstance(text, Html) or not isinstance(text, str):
        return text
    return join(BREAKS.split(text), Html("<wbr>"))


def percent(value: float | None, digits: int = 1) -> str:
    """Format a fraction as a percentage; a missing value is a dash, never 0."""
    if _missing(value):
        return DASH
    return f"{100 * value:.{digits}f}{THIN}%".replace("-", "−")  # type: ignore[operator]


def points(value: float | None, digits: int = 1) -> str:
    """Format a difference of fractions in percentage points, with its sign unless it rounds to 0."""
    if _missing(value):
        return DASH
    text = f"{100 * value:+.{digits}f}"  # type: ignore[operator]
    return f"{text.replace('-', '−') if float(text) else text[1:]}{THIN}points"


def number(value: float | None, digits: int = 3) -> str:
    """Format a number with this many significant digits, without trailing zeros or a large exponent."""
    if _missing(value):
        return DASH
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text else text.replace("-", "−")


def count(value: int) -> str:
    """Format an integer with thin spaces between thousands."""
    return f"{value:,}".replace(",", THIN)


def several(value: int, one: str, many: str = "") -> str:
    """Format a number with its noun: ``several(3, "model")`` is "3 models"."""
    return f"{count(value)} {noun(value, one, many)}"


def n_of(value: int, one: str = "sample", many: str = "") -> str:
    """Format what a number rests on, without line breaks: "n = 24 samples"."""
    return f"n = {several(value, one, many)}".replace(" ", NBSP)


def between(low: str, high: str) -> str:
    """Format an interval with the percent sign only once: "61.2 to 74.0 %"; two dashes are no interval."""
    if low == high == DASH:
        return "no interval"
    sign = f"{THIN}%"
    return f"{low.removesuffix(sign) if high.endswith(sign) else low} to {high}"


def grid(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    text: int = 1,
    caption: str = "",
    cls: str | None = None,
) -> Html:
    """Return a horizontally scrollable table.

    Args:
        head: The column headings.
        rows: The cells of each row.
        text: Number of leading columns that hold text; the others hold numbers.
        caption: The caption, if not empty.
        cls: The CSS class of the table.
    """
    kinds = ["word" if i < text else "num" for i in range(len(head))]
    top = tag(
        "tr",
        *(tag("th", breakable(cell), scope="col", cls=kind) for cell, kind in zip(head, kinds, strict=True)),
    )
    body = [
        tag("tr", *(_cell(cell, kind, i) for i, (cell, kind) in enumerate(zip(row, kinds, strict=True))))
        for row in rows
    ]
    titled = tag("caption", caption) if caption else EMPTY
    return tag(
        "div",
        tag("table", titled, tag("thead", top), tag("tbody", *body), cls=cls),
        cls="scroll",
        tabindex="0",
    )


def folded(summary: str, table: Html, rows: int, most: int = 4) -> Html:
    """Return a table in a card, folded behind its summary if it has more than ``most`` rows."""
    if rows <= most:
        return tag("article", table, cls="card")
    return tag("details", tag("summary", summary, " ", tag("small", several(rows, "row"))), table, cls="fold")


def _cell(cell: object, kind: str, column: int) -> Html:
    return tag("th", breakable(cell), scope="row", cls=kind) if column == 0 else tag("td", cell, cls=kind)


def _missing(value: float | None) -> bool:
    return value is None or math.isnan(value)


# --- Choosing which part of a section is shown


def picked(name: str, what: str, parts: Mapping[str, Html]) -> Html:
    """Return parts of which one is shown at a time, with buttons; without JavaScript all are shown."""
    panels = [
        tag("div", tag("h3", key, cls="away"), part, cls="picks", data_pick=key) if len(parts) > 1 else part
        for key, part in parts.items()
    ]
    return tag("div", picker(name, what, list(parts)), *panels)


def picker(name: str, what: str, keys: Sequence[str]) -> Html:
    """Return the buttons that choose one of several parts, hidden until JavaScript runs."""
    if len(keys) < 2:
        return EMPTY
    options = [
        part
        for i, key in enumerate(keys)
        for part in (
            tag("input", type="radio", name=name, id=f"{name}-{i}", value=key, checked=i == 0),
            tag("label", key, for_=f"{name}-{i}"),
        )
    ]
    return tag("fieldset", tag("legend", what, cls="away"), *options, cls="picker", hidden=True)
