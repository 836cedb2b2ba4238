"""Find which settings are uncommon for which category, from a table or from the counts of an annotated set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sorites.errors import SoritesError

NONE = "none"
"""The word for an attribute that cannot be seen; it is neither common nor uncommon."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "time": ("day", "night", NONE),
    "weather": ("cloudy", "foggy", "partly cloudy", "raining", "snowing", "sunny", NONE),
    "location": ("forest", "grass", "indoors", "rocks", "sand", "street", "snow", "water", NONE),
}
"""The words that each kind of attribute may have."""

CategorySetting = tuple[str, str, str]
"""The surroundings of a category: category, kind of attribute, word."""


def read_uncommon(text: str, name: str) -> frozenset[CategorySetting]:
    """Read a table of uncommon settings: one line per category, one column per kind of attribute, commas between words."""
    head, *lines = [line.split("\t") for line in text.splitlines() if line.strip()] or [[""]]
    if head[0] != "category" or not set(head[1:]) <= set(WORDS):
        raise SoritesError(
            f"{name}: wanted the columns category, {', '.join(WORDS)} with tabs between them; got {', '.join(head)}"
        )
    found: set[CategorySetting] = set()
    for row, line in enumerate(lines, start=2):
        for kind, cell in zip(head[1:], line[1:], strict=False):
            for word in filter(None, (part.strip().lower() for part in cell.split(","))):
                if word not in WORDS[kind]:
                    raise SoritesError(f"{name}, line {row}: there is no {kind} {word!r}. It is one of {', '.join(WORDS[kind])}")
                found.add((line[0].strip().lower(), kind, word))
    return frozenset(found)


def inferred(rows: Iterable[tuple[str, Mapping[str, Sequence[str]]]], below: float) -> frozenset[CategorySetting]:
    """Return the settings seen in less than the share ``below`` of a category's pictures.

    A picture counts once for each of its words. Only words that some category has are judged: a word that nobody annotated
    says nothing.
    """
    if not 0 < below < 1:
        raise SoritesError(f"uncommon by counts: below is a share between 0 and 1, got {below}")
    pictures: Counter[str] = Counter()
    seen: Counter[CategorySetting] = Counter()
    for category, words in rows:
        pictures[category] += 1
        seen.update((category, kind, word) for kind in WORDS for word in words[kind] if word != NONE)
    annotated = {(kind, word) for _, kind, word in seen}
    return frozenset(
        (category, kind, word)
        for category in pictures
        for kind, word in annotated
        if seen[category, kind, word] < below * pictures[category]
    )


def is_common(uncommon: frozenset[CategorySetting], category: str, kind: str, word: str) -> bool:
    """Return whether a setting is not among the uncommon ones."""
    return (category, kind, word) not in uncommon
