"""Which settings are uncommon for which category: as a table says, or as the counts of an annotated set say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from sorites.errors import SoritesError

NONE = "none"
"""The word for an attribute that cannot be told; it is neither common nor uncommon."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "time": ("day", "night", NONE),
    "weather": ("cloudy", "foggy", "partly cloudy", "raining", "snowing", "sunny", NONE),
    "location": ("forest", "grass", "indoors", "rocks", "sand", "street", "snow", "water", NONE),
}
"""The words of each kind of attribute."""

Setting = tuple[str, str, str]
"""Category, kind of attribute, word."""


def read_uncommon(text: str, name: str) -> frozenset[Setting]:
    """A table in words: a line a category, a column a kind, commas between words."""
    head, *lines = [line.split("\t") for line in text.splitlines() if line.strip()]
    if head[0] != "category" or not set(head[1:]) <= set(WORDS):
        raise SoritesError(
            f"{name}: wanted the columns category, {', '.join(WORDS)} with tabs between them; got {', '.join(head)}"
        )
    found: set[Setting] = set()
    for row, line in enumerate(lines, start=2):
        for kind, cell in zip(head[1:], line[1:], strict=False):
            for word in filter(None, (part.strip().lower() for part in cell.split(","))):
                if word not in WORDS[kind]:
                    raise SoritesError(f"{name}, line {row}: no {kind} {word!r}. It is one of {', '.join(WORDS[kind])}")
                found.add((line[0].strip().lower(), kind, word))
    return frozenset(found)


def inferred(rows: Iterable[tuple[str, Mapping[str, Sequence[str]]]], below: float) -> frozenset[Setting]:
    """Settings seen in less than the share ``below`` of a category's pictures, a picture counted once for each of its words.

    Only words that some category has are judged: one that nobody annotated says nothing.
    """
    if not 0 < below < 1:
        raise SoritesError(f"uncommon by counts: below is a share between 0 and 1, got {below}")
    pictures: Counter[str] = Counter()
    seen: Counter[Setting] = Counter()
    for category, words in rows:
        pictures[category] += 1
        seen.update((category, kind, word) for kind in WORDS for word in words[kind] if word != NONE)
    told = {(kind, word) for _, kind, word in seen}
    return frozenset(
        (category, kind, word)
        for category in pictures
        for kind, word in told
        if seen[category, kind, word] < below * pictures[category]
    )


def is_common(rare: frozenset[Setting], category: str, kind: str, word: str) -> bool:
    return (category, kind, word) not in rare
