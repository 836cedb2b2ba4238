"""Search plans: objects × attributes with synonyms, from a TOML file or built in.

    [objects]
    ship = ["ship", "boat"]
    [attributes]
    sand = ["on sand", "in a desert"]                                # phrases, or
    snow = { prepositions = ["on", "in"], words = ["snow"] }         # every preposition before every word
    [[queries]]
    object = "ship"
    attribute = "snow"
    text = "ship on ice"

Kattakinda & Feizi, "FOCUS", ICML 2022, section 3.1 and appendix A.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError, UnknownName
from sorites.io.paths import is_file, path_of
from sorites.io.readers import toml_file, toml_table

# Maximum characters of a query.
MAX_QUERY = 200

# Maximum queries of a plan.
MAX_QUERIES = 10_000

_KEYS = ("about", "objects", "attributes", "queries")


@dataclass(frozen=True)
class Query:
    """A search text, and the object and attribute it was expanded from (empty if a user typed the text)."""

    text: str
    object: str = ""
    attribute: str = ""


def queries_from_texts(texts: Sequence[str]) -> list[Query]:
    """Return queries from texts typed by a user."""
    return _distinct([Query(_check_text(text, "a query")) for text in texts])


def read_plan(name: str) -> list[Query]:
    """Return the queries of a built-in plan or a TOML file."""
    if name in built_in():
        text = files("sorites.apps.collecting").joinpath(f"plans/{name}.toml").read_text(encoding="utf-8")
        return queries(toml_table(text), name)
    path = path_of(name)
    if not is_file(path):
        raise UnknownName("plan", name, built_in(), f"Pass {' or '.join(built_in())}, or a .toml file.")
    return queries(toml_file(path, "a plan with [objects] and [attributes]"), str(path))


def built_in() -> list[str]:
    """Return the names of the built-in plans."""
    plans = files("sorites.apps.collecting").joinpath("plans").iterdir()
    return sorted(Path(plan.name).stem for plan in plans if plan.name.endswith(".toml"))


def queries(plan: Mapping[str, Any], where: str) -> list[Query]:
    """Return the queries of a plan in order, each text once."""
    unknown = [key for key in plan if key not in _KEYS]
    if unknown:
        raise UnknownName(
            "key of a plan", str(unknown[0]), _KEYS, f"{where} has it; a plan has {', '.join(_KEYS)}."
        )
    objects, attributes = _table(plan, "objects", where), _table(plan, "attributes", where)
    expanded = [
        Query(_check_text(f"{synonym} {phrase}", where), str(name), str(attribute))
        for name, synonyms in objects.items()
        for attribute, phrases in attributes.items()
        for synonym in _words(synonyms, f"{where}: objects.{name}")
        for phrase in _phrases(phrases, f"{where}: attributes.{attribute}")
    ]
    expanded += [_parse_query(entry, where) for entry in _list(plan.get("queries", []), f"{where}: queries")]
    if not expanded:
        raise SoritesError(f"{where}: expected [objects] and [attributes], or [[queries]], got neither")
    if len(expanded) > MAX_QUERIES:
        raise SoritesError(f"{where}: {len(expanded):,} queries are more than the {MAX_QUERIES:,} allowed")
    return _distinct(expanded)


def _table(plan: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = plan.get(key, {})
    if not isinstance(table, dict):
        raise SoritesError(f"{where}: expected [{key}] as a table, got {type(table).__name__}")
    return table


def _phrases(value: Any, where: str) -> list[str]:
    if not isinstance(value, dict):
        return _words(value, where)
    if set(value) != {"prepositions", "words"}:
        raise SoritesError(
            f"{where}: expected phrases, or prepositions and words, got"
            f" {', '.join(map(str, value)) or 'nothing'}"
        )
    before, words = (
        _words(value["prepositions"], f"{where}.prepositions"),
        _words(value["words"], f"{where}.words"),
    )
    return [f"{preposition} {word}" for preposition in before for word in words]


def _words(value: Any, where: str) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(word, str) and word.strip() for word in listed)
    ):
        raise SoritesError(f'{where}: expected words, such as ["ship", "boat"], got {value!r}')
    return [word.strip() for word in listed]


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise SoritesError(f"{where}: expected a list of tables, got {type(value).__name__}")
    return value


def _parse_query(entry: Any, where: str) -> Query:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("text"), str)
        or set(entry) - {"text", "object", "attribute"}
    ):
        raise SoritesError(
            f"{where}: expected a query with text, and optionally object and attribute, got {entry!r}"
        )
    return Query(
        _check_text(entry["text"], where), str(entry.get("object", "")), str(entry.get("attribute", ""))
    )


def _check_text(text: str, where: str) -> str:
    words = " ".join(text.split())
    if not words or len(words) > MAX_QUERY or not words.isprintable():
        raise SoritesError(
            f"{where}: expected a search text of 1 to {MAX_QUERY} characters, got {text[:80]!r}"
        )
    return words


def _distinct(queries_: Sequence[Query]) -> list[Query]:
    by_text: dict[str, Query] = {}
    for query in queries_:
        by_text.setdefault(query.text, query)
    return list(by_text.values())
