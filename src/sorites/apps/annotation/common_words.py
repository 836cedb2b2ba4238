"""Decide whether a word is common for a class: by the run's own record, by FOCUS's tables, or by
how often it is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import polars as pl

from sorites.core.labels import imagenet
from sorites.core.table import read
from sorites.io.paths import path_of
from sorites.io.readers import text
from sorites.sources.papers.focus import NONE, WORDS, CategorySetting, accepted, inferred, read_uncommon

# The share of a class's images below which a word is uncommon by counts, as for the source focus.
BELOW = 0.11

Told = Mapping[str, Sequence[tuple[str, float]]]


@dataclass(frozen=True)
class Commonness:
    """The words known to be common or uncommon for each class; a pair that nobody judged is None."""

    name: str
    judged: Mapping[CategorySetting, bool]
    categories: Mapping[str, str]
    """Class names to the categories that the judgements are of, where these differ."""

    def __call__(self, class_: str | None, kind: str, word: str) -> bool | None:
        """Return whether a word is common for a class, None where that is not known or the word is "none"."""
        if class_ is None or word == NONE:
            return None
        return self.judged.get((self.categories.get(class_, class_).lower(), kind, word))

    @classmethod
    def chosen(cls, name: str | None, run: Path, told: Iterable[tuple[str | None, Told]]) -> Commonness:
        """Return what ``name`` says: ``run``, ``evaluation`` or ``notebook`` (FOCUS's two tables),
        ``counts``, or a file.

        By default it is what the run's own attributes say, and where it has none the table of
        FOCUS's evaluation.
        """
        own = _of_run(run) if name in (None, "run") else {}
        if own or name == "run":
            return cls("run", own, {})
        if name == "counts":
            rows = [(class_.lower(), _words(some)) for class_, some in told if class_ is not None]
            rare = inferred(rows, BELOW)
            return cls("counts", _all_judged({class_ for class_, _ in rows}, rare), {})
        return cls._table(name or "evaluation")

    @classmethod
    def _table(cls, name: str) -> Commonness:
        own = name not in ("evaluation", "notebook")
        beside = files("sorites.sources").joinpath("focus_uncommon.tsv")
        content = (
            text(path_of(name), "a table of uncommon words") if own else beside.read_text(encoding="utf-8")
        )
        rare = read_uncommon(content, name)
        if name == "notebook":
            rare |= {("bird", "location", "rocks")}
        listed = {line.split("\t")[0].strip().lower() for line in content.splitlines()[1:] if line.strip()}
        return cls(name, _all_judged(listed, rare), _focus_categories())


def _all_judged(classes: Iterable[str], rare: frozenset[CategorySetting]) -> dict[CategorySetting, bool]:
    """Return for all words of some classes whether they are not among the rare ones."""
    pairs = [(kind, word) for kind, words in WORDS.items() for word in words]
    return {(class_, *pair): (class_, *pair) not in rare for class_ in classes for pair in pairs}


def _words(told: Told) -> dict[str, list[str]]:
    return {kind: [word for word, _ in told.get(kind, ())] for kind in WORDS}


def _focus_categories() -> dict[str, str]:
    """Return ImageNet's class names with FOCUS's category of each."""
    names = imagenet().names
    return {names[label]: category for category, labels in accepted(imagenet()).items() for label in labels}


def _of_run(run: Path) -> dict[CategorySetting, bool]:
    """Return what a run's own attributes say is common for which class."""
    table = read(run).select("image_id", "attrs").unique("image_id").explode("attrs").unnest("attrs")
    named = table.filter(pl.col("key") == "class").select("image_id", class_="value")
    judged = table.filter(pl.col("common").is_not_null()).join(named, on="image_id")
    found = judged.group_by("class_", "key", "value").agg(pl.col("common").any()).collect(engine="streaming")
    return {(class_.lower(), kind, word): common for class_, kind, word, common in found.rows()}
