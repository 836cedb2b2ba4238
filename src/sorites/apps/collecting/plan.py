"""Plan the searches: objects × prepositions × attributes, with synonyms, from a TOML file or built
in by name.

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

# The most characters of a query.
LONGEST = 200

# The most queries of a plan.
MOST = 10_000

_KEYS = ("about", "objects", "attributes", "queries")


@dataclass(frozen=True)
class Query:
    """Words to search for, with the object and the attribute they were made of (empty where a user
    typed the words).
    """

    text: str
    object: str = ""
    attribute: str = ""


def typed(texts: Sequence[str]) -> list[Query]:
    """Return the queries that a user typed."""
    return _distinct([Query(_checked(text, "a query")) for text in texts])


def read_plan(name: str) -> list[Query]:
    """Return the queries of a plan: one that is built in, or a TOML file."""
    if name in built_in():
        text = files("sorites.apps.collecting").joinpath(f"plans/{name}.toml").read_text(encoding="utf-8")
        return queries(toml_table(text), name)
    path = path_of(name)
    if not is_file(path):
        raise UnknownName(
            "plan", name, built_in(), f"Built in are {', '.join(built_in())}; or name a .toml file."
        )
    return queries(toml_file(path, "a plan with [objects] and [attributes]"), str(path))


def built_in() -> list[str]:
    """Return the names of the plans that are built in."""
    found = files("sorites.apps.collecting").joinpath("plans").iterdir()
    return sorted(Path(file.name).stem for file in found if file.name.endswith(".toml"))


def queries(plan: Mapping[str, Any], where: str) -> list[Query]:
    """Return the queries of a plan, in its order, each text once."""
    wrong = [key for key in plan if key not in _KEYS]
    if wrong:
        raise UnknownName(
            "key of a plan", str(wrong[0]), _KEYS, f"{where} has it; a plan has {', '.join(_KEYS)}."
        )
    objects, attributes = _table(plan, "objects", where), _table(plan, "attributes", where)
    found = [
        Query(_checked(f"{synonym} {phrase}", where), str(name), str(attribute))
        for name, synonyms in objects.items()
        for attribute, phrases in attributes.items()
        for synonym in _words(synonyms, f"{where}: objects.{name}")
        for phrase in _phrases(phrases, f"{where}: attributes.{attribute}")
    ]
    found += [_own(entry, where) for entry in _list(plan.get("queries", []), f"{where}: queries")]
    if not found:
        raise SoritesError(f"{where}: expected [objects] and [attributes], or [[queries]], got neither")
    if len(found) > MOST:
        raise SoritesError(f"{where}: {len(found):,} queries are more than the {MOST:,} allowed")
    return _distinct(found)


def _table(plan: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = plan.get(key, {})
    if not isinstance(found, dict):
        raise SoritesError(f"{where}: expected [{key}] as a table, got {type(found).__name__}")
    return found


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


def _own(entry: Any, where: str) -> Query:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("text"), str)
        or set(entry) - {"text", "object", "attribute"}
    ):
        raise SoritesError(
            f"{where}: expected a query with text, and object and attribute if you like, got {entry!r}"
        )
    return Query(
        _checked(entry["text"], where), str(entry.get("object", "")), str(entry.get("attribute", ""))
    )


def _checked(text: str, where: str) -> str:
    words = " ".join(text.split())
    if not words or len(words) > LONGEST or not words.isprintable():
        raise SoritesError(
            f"{where}: expected words of 1 to {LONGEST} characters to search for, got {text[:80]!r}"
        )
    return words


def _distinct(found: Sequence[Query]) -> list[Query]:
    by_words: dict[str, Query] = {}
    for query in found:
        by_words.setdefault(query.text, query)
    return list(by_words.values())
