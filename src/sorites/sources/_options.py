"""The options of a source, written after its path as in a web address: ``focus:PATH?uncommon=counts&below=0.1``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sorites.errors import SoritesError, UnknownName
from sorites.reading.places import exists, path_of

MARKS = 100
"""The most marks in a path that are looked at one by one."""


def split_path(text: str, mark: str) -> tuple[str, str]:
    """Split ``PATH<mark>words`` at its first mark, unless a longer path that has the mark in its name exists."""
    parts = text.split(mark)
    for count in range(len(parts), 1, -1) if len(parts) < MARKS else ():
        if exists(path_of(mark.join(parts[:count]))):
            return mark.join(parts[:count]), mark.join(parts[count:])
    return parts[0], mark.join(parts[1:])


def split_options(source: str, text: str | None, allowed: Mapping[str, Collection[str]]) -> tuple[str, dict[str, str]]:
    """Return the path and the options given; ``allowed`` maps each option to the words it takes, empty if it takes any text."""
    path, query = split_path(text or "", "?")
    if not path:
        raise SoritesError(f"the {source} source needs a path. Type: --source {source}:PATH")
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"{source}: wanted options as PATH?key=value&key=value, got {part!r}")
        if key not in allowed:
            raise UnknownName(f"{source} option", key, allowed, f"It has {', '.join(allowed)}.")
        if allowed[key] and value not in allowed[key]:
            raise SoritesError(f"{source}: {key} is one of {', '.join(allowed[key])}; got {value!r}")
        found[key] = value
    return path, found
