"""Sections of the page, and the decorator that registers them.

Another package adds a section without changing the page:

    @add_section(order=45)
    def heat_maps(view: View) -> Section | None:
        ...                       # return None to leave the section out
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sorites.core.progress import phase
from sorites.core.registry import Registry
from sorites.reports.components.charts import small_multiples
from sorites.reports.components.markup import EMPTY, Html, join, tag
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


def split_by_split(maker: Maker) -> Maker:
    """Draw a section on camera grids once for each split of their images, one below the other.

    Splits have other images and perhaps other settings (ImageNet-ES has 64 in one and 27 in the other), so
    that a number over several of them would be of neither.
    """

    @functools.wraps(maker)
    def make(view: View) -> Section | None:
        if len(view.camera_splits) < 2:
            return maker(view)
        drawn = {name: maker(view.of_split(name)) for name in view.camera_splits}
        made = {name: section for name, section in drawn.items() if section is not None}
        if not made:
            return None
        parts = [
            tag("div", tag("h3", f"Split {name}" if name else "No split"), section.body, cls="stack")
            for name, section in made.items()
        ]
        return replace(next(iter(made.values())), body=join(parts))

    return make


def sections(view: View) -> dict[str, Section]:
    """Return the sections that apply to this view, by name and in order."""
    ordered = sorted((SECTIONS.get(name)[0], name) for name in SECTIONS.names())
    drawn: dict[str, Section | None] = {}
    for _, name in ordered:
        with phase(f"drawing the section {name}"):
            drawn[name] = SECTIONS.get(name)[1](view)
    return {name: section for name, section in drawn.items() if section is not None}
