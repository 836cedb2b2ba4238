"""Choosing which of several parts of a section is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sorites.reports.parts.markup import EMPTY, Html, tag


def picked(name: str, what: str, parts: Mapping[str, Html]) -> Html:
    """Parts of which one is shown at a time, and the buttons to choose it; without the page's script all stand open."""
    shown = [
        tag("div", tag("h3", key, cls="away"), part, cls="picks", data_pick=key) if len(parts) > 1 else part
        for key, part in parts.items()
    ]
    return tag("div", picker(name, what, list(parts)), *shown)


def picker(name: str, what: str, keys: Sequence[str]) -> Html:
    """Return the buttons to choose one of several parts; none for one. Hidden until the page's script is there to follow them."""
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
