"""The classes and shifts that sliders are made for, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sorites.core.errors import SoritesError, UnknownName
from sorites.diffusion.sliders import Concept
from sorites.diffusion.toy.world import SHAPES, STYLES
from sorites.io.readers import lines, whole
from sorites.sources.papers.cns_bench import classes as cns_classes

# The fourteen shifts of CNS-Bench, as they stand in a prompt.
CNS_SHIFTS = (
    "cartoon style", "plush toy style", "pencil sketch style", "painting style", "the design of sculpture", "graffiti style",
    "video game renditions style", "the style of a tattoo", "heavy snow", "heavy rain", "heavy fog", "heavy smog", "heavy dust",
    "heavy sandstorm",
)  # fmt: skip
TOY_SHIFTS = STYLES[1:]
SETS = {"cns": CNS_SHIFTS, "toy": TOY_SHIFTS}


def concepts(which: str, only: Iterable[str] = ()) -> list[Concept]:
    """Return classes: the hundred of ``cns``, the four of ``toy``, or those of a file: one name per
    line, or number, tab, name.

    ``only`` keeps some of them, by name or by number.
    """
    if which == "cns":
        found = [Concept(number, name) for number, name in cns_classes().items()]
    elif which == "toy":
        found = [Concept(number, name) for number, name in enumerate(SHAPES)]
    else:
        found = _from_file(Path(which))
    wanted = list(only)
    known = {concept.name: concept for concept in found} | {str(concept.number): concept for concept in found}
    for name in wanted:
        if name not in known:
            raise UnknownName("class", name, [concept.name for concept in found])
    return [concept for concept in found if not wanted or concept in [known[name] for name in wanted]]


def _from_file(file: Path) -> list[Concept]:
    found: list[Concept] = []
    for place, line in enumerate(
        text for text in lines(file, "cns, toy, or a file of classes, one per line") if text.strip()
    ):
        number, tab, name = line.partition("\t")
        first = whole(number) if tab else place
        concept = Concept(-1 if first is None else first, (name if tab else line).strip())
        if not 0 <= concept.number < 1000 or not plain(concept.name):
            raise SoritesError(
                f"{file}: wanted one class per line, or a number below 1000, a tab and a class; got"
                f" {line[:80]!r}"
            )
        found.append(concept)
    if not found or len({concept.number for concept in found}) < len(found):
        raise SoritesError(f"{file}: wanted one or more classes with different numbers, got {len(found)}")
    return found


def are_published(found: Iterable[Concept]) -> bool:
    """Return whether classes are some of the hundred of CNS-Bench, with their numbers."""
    return {(one.number, one.name) for one in found} <= set(cns_classes().items())


def plain(name: str) -> bool:
    """Return whether words can name a folder."""
    return bool(re.fullmatch(r"[\w][\w ,.'()-]{0,99}", name))


def shift_folder(words: str) -> str:
    """Return the name of a shift's folder: ``heavy_snow`` for the words "heavy snow"."""
    folder = words.strip().lower().replace(" ", "_")
    if not plain(words.strip()):
        raise SoritesError(f"wanted a shift in a few plain words, such as heavy snow, got {words[:80]!r}")
    return folder


def shift_words(folder: str) -> str:
    """Return the words of a shift's folder."""
    return folder.replace("_", " ")
