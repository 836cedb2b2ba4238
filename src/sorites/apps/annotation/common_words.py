"""Decide whether a word is common for a class: by the run's attributes, FOCUS's tables, or frequency."""

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
from sorites.sources.papers.focus import (
    NONE,
    WORDS,
    CategorySetting,
    accepted_labels,
    infer_uncommon,
    read_uncommon,
)

# A word is uncommon by counts below this share of a class's images, as for the source focus.
UNCOMMON_SHARE = 0.11

PredictedWords = Mapping[str, Sequence[tuple[str, float]]]


@dataclass(frozen=True)
class Commonness:
    """Maps (class, kind, word) to common or uncommon; unknown combinations are None."""

    name: str
    is_common: Mapping[CategorySetting, bool]
    categories: Mapping[str, str]
    """Class names to the categories of the table, where these differ."""

    def __call__(self, class_: str | None, kind: str, word: str) -> bool | None:
        """Return whether a word is common for a class; None if that is unknown or the word is "none"."""
        if class_ is None or word == NONE:
            return None
        return self.is_common.get((self.categories.get(class_, class_).lower(), kind, word))

    @classmethod
    def chosen(
        cls, name: str | None, run: Path, told: Iterable[tuple[str | None, PredictedWords]]
    ) -> Commonness:
        """Load a judgement of commonness.

        Args:
            name: ``"run"`` (the run's attributes), ``"evaluation"`` or ``"notebook"`` (FOCUS's two tables),
                ``"counts"``,
            or a file. By default the run's attributes, or FOCUS's evaluation table if it has none.
            run: The run folder.
            told: Class and predicted words of each image, for ``"counts"``.
        """
        from_run = _from_run(run) if name in (None, "run") else {}
        if from_run or name == "run":
            return cls("run", from_run, {})
        if name == "counts":
            rows = [(class_.lower(), _words(words)) for class_, words in told if class_ is not None]
            rare = infer_uncommon(rows, UNCOMMON_SHARE)
            return cls("counts", _classify_all({class_ for class_, _ in rows}, rare), {})
        return cls._table(name or "evaluation")

    @classmethod
    def _table(cls, name: str) -> Commonness:
        is_file = name not in ("evaluation", "notebook")
        builtin = files("sorites.sources").joinpath("focus_uncommon.tsv")
        content = (
            text(path_of(name), "a table of uncommon words")
            if is_file
            else builtin.read_text(encoding="utf-8")
        )
        rare = read_uncommon(content, name)
        if name == "notebook":
            rare |= {("bird", "location", "rocks")}
        listed = {line.split("\t")[0].strip().lower() for line in content.splitlines()[1:] if line.strip()}
        return cls(name, _classify_all(listed, rare), _focus_categories())


def _classify_all(classes: Iterable[str], rare: frozenset[CategorySetting]) -> dict[CategorySetting, bool]:
    pairs = [(kind, word) for kind, words in WORDS.items() for word in words]
    return {(class_, *pair): (class_, *pair) not in rare for class_ in classes for pair in pairs}


def _words(predicted: PredictedWords) -> dict[str, list[str]]:
    return {kind: [word for word, _ in predicted.get(kind, ())] for kind in WORDS}


def _focus_categories() -> dict[str, str]:
    """Map ImageNet class names to FOCUS categories."""
    names = imagenet().names
    return {
        names[label]: category for category, labels in accepted_labels(imagenet()).items() for label in labels
    }


def _from_run(run: Path) -> dict[CategorySetting, bool]:
    """Return the commonness recorded in a run's attributes."""
    table = read(run).select("image_id", "attrs").unique("image_id").explode("attrs").unnest("attrs")
    classes = table.filter(pl.col("key") == "class").select("image_id", class_="value")
    rated = table.filter(pl.col("common").is_not_null()).join(classes, on="image_id")
    grouped = rated.group_by("class_", "key", "value").agg(pl.col("common").any()).collect(engine="streaming")
    return {(class_.lower(), kind, word): common for class_, kind, word, common in grouped.rows()}
