"""Options of a source, written behind its path as in an address: ``focus:PATH?uncommon=counts&below=0.1``."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sorites.errors import SoritesError, UnknownName


def split_options(source: str, text: str | None, known: Mapping[str, Collection[str]]) -> tuple[str, dict[str, str]]:
    """The path and the options given; ``known`` maps each option to the words it takes, empty where it takes any text."""
    path, _, query = (text or "").partition("?")
    if not path:
        raise SoritesError(f"the {source} source needs a path. Type: --source {source}:PATH")
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        key, equals, value = part.partition("=")
        if not equals:
            raise SoritesError(f"{source}: wanted options as PATH?key=value&key=value, got {part!r}")
        if key not in known:
            raise UnknownName(f"{source} option", key, known, f"It has {', '.join(known)}.")
        if known[key] and value not in known[key]:
            raise SoritesError(f"{source}: {key} is one of {', '.join(known[key])}; got {value!r}")
        found[key] = value
    return path, found
