"""Sections of the page, and the decorator that registers them.

Another package adds a section without changing the page:

    @add_section(order=45)
    def heat_maps(view: View) -> Section | None:
        ...                       # return None to leave the section out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sorites.core.registry import Registry
from sorites.reports.components.charts import small_multiples
from sorites.reports.components.markup import EMPTY, Html
from sorites.reports.view import View


@dataclass(frozen=True)
class Section:
    """One section: heading (``title``), name in the navigation (``short``), introduction (``lead``)."""

    title: str
    body: Html
    short: str
    lead: str | Html = EMPTY


def multiples(view: View, cards: Sequence[Html], title: str, short: str, lead: str) -> Section | None:
    """Return a section of small charts under one legend, or None without charts."""
    return Section(title, small_multiples(view, cards), short, lead) if cards else None


Maker = Callable[[View], Section | None]

SECTIONS: Registry[tuple[int, Maker]] = Registry("section", "sorites.reports.sections")


def add_section(order: int) -> Callable[[Maker], Maker]:
    """Register a function as a section.

    Args:
        order: Position on the page; built-in sections use 10 to 90. Ties are sorted by name.
    """

    def register(maker: Maker) -> Maker:
        SECTIONS.add(maker.__name__, (order, maker))
        return maker

    return register


def sections(view: View) -> dict[str, Section]:
    """Return the sections that apply to this view, by name and in order."""
    ordered = sorted((SECTIONS.get(name)[0], name) for name in SECTIONS.names())
    drawn = {name: SECTIONS.get(name)[1](view) for _, name in ordered}
    return {name: section for name, section in drawn.items() if section is not None}
