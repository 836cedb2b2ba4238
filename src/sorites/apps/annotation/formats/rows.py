"""Answers between a labelling and a file: one record per image, with the answers of one or more people."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sorites.apps.annotation.answers import chosen_of, judged
from sorites.apps.annotation.task import Task
from sorites.apps.annotation.values import Value
from sorites.core.errors import SoritesError
from sorites.io.paths import leads_inside


@dataclass(frozen=True)
class Answered:
    """The answers of one person, or the chosen answers, for one image."""

    values: dict[str, Value]
    annotator: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Labelled:
    """An image with what was answered for it."""

    image: str
    answers: list[Answered]
    width: int | None = None
    height: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """class, image_id, sample_id, shift and severity, as far as they are known."""

    @property
    def values(self) -> dict[str, Value]:
        return self.answers[0].values

    def size(self) -> tuple[int, int]:
        """Return width and height, which formats with shares of the image need."""
        if self.width is None or self.height is None:
            raise SoritesError(
                f"the size of {self.image} is unknown, as it was never shown here; serve the labelling first"
            )
        return self.width, self.height


def labelled(database: sqlite3.Connection, task: Task, all_answers: bool) -> Iterator[Labelled]:
    """Yield the images of a labelling: with the chosen answers, or with those of everybody."""
    if all_answers:
        for one in judged(database):
            given = [Answered(dict(g.values), g.annotator, g.seconds) for g in one.given]
            yield Labelled(
                one.facts["image"], given, one.facts["width"], one.facts["height"], dict(one.facts)
            )
        return
    for one, values in chosen_of(database, task):
        yield Labelled(
            one.facts["image"], [Answered(values)], one.facts["width"], one.facts["height"], dict(one.facts)
        )


def image_name(text: object, where: object) -> str:
    """Return the name of an image that a file gives: a path that stays in its folder."""
    name = text.lstrip("/") if isinstance(text, str) else ""
    if not leads_inside(name) or len(name) > 1000:
        raise SoritesError(f"{where}: wanted the path of an image below a folder, got {str(text)[:80]!r}")
    return name
