"""Images that a reader filters by class, flip, model and shift."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sorites.reports.components.markup import EMPTY, Html, count, join, tag


@dataclass(frozen=True)
class Item:
    """One card of a gallery, and the facts that it is filtered by, such as its class."""

    card: Html
    facts: Mapping[str, str]


def gallery(
    items: Sequence[Item], name: str, chosen: Mapping[str, str] | None = None, size: str = "medium"
) -> Html:
    """Return the cards below a menu for each fact that differs; without JavaScript all cards are shown.

    Args:
        items: The cards, in order.
        name: A name that is unique on the page.
        chosen: The values that the menus show first; the others show all.
        size: The size of the cards: small, medium or large.
    """
    facts = list(dict.fromkeys(fact for item in items for fact in item.facts))
    menus = [_menu(items, fact, f"{name}-{fact}", (chosen or {}).get(fact, "")) for fact in facts]
    shown = tag("output", cls="shown", for_=" ".join(f"{name}-{fact}" for fact in facts))
    none = tag("p", "No image matches these filters.", cls="none", hidden=True)
    cards = [tag("div", item.card, data_facts=json.dumps(dict(item.facts)), cls="item") for item in items]
    bar = tag("div", *menus, shown, cls="filters", hidden=True)
    return tag("div", bar, none, tag("div", *cards, cls="items"), cls=f"gallery {size}")


def _menu(items: Sequence[Item], fact: str, id_: str, chosen: str) -> Html:
    """Return the menu of a fact with the number of cards of each value; empty if all cards have the same."""
    counts: dict[str, int] = {}
    for item in items:
        if fact in item.facts:
            counts[item.facts[fact]] = counts.get(item.facts[fact], 0) + 1
    if len(counts) < 2:
        return EMPTY
    values = sorted(counts) if fact == "class" else list(counts)
    options = [
        tag("option", f"{value} ({count(counts[value])})", value=value, selected=value == chosen)
        for value in values
    ]
    every = tag("option", "all", value="")
    select = tag("select", every, join(options), id=id_, data_fact=fact)
    return tag("label", tag("span", fact), select)
