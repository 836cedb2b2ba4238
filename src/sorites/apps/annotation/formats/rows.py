"""Records exchanged between labellings and file formats: one per image, with one or more answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sorites.apps.annotation.answers import AnsweredImage, answered_images, chosen_by_image
from sorites.apps.annotation.task import Task
from sorites.apps.annotation.values import Value
from sorites.core.errors import SoritesError
from sorites.io.paths import is_relative_inside


@dataclass(frozen=True)
class Answered:
    """The answers of one annotator, or the chosen answers, for one image."""

    values: dict[str, Value]
    annotator: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class Labelled:
    """An image with its answers."""

    image: str
    answers: list[Answered]
    width: int | None = None
    height: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """class, image_id, sample_id, shift and severity, if known."""

    @property
    def values(self) -> dict[str, Value]:
        return self.answers[0].values

    def size(self) -> tuple[int, int]:
        """Return width and height, which formats with relative coordinates need."""
        if self.width is None or self.height is None:
            raise SoritesError(
                f"the size of {self.image} is unknown because it has not been displayed yet; serve "
                "the labelling first"
            )
        return self.width, self.height


def labelled(database: sqlite3.Connection, task: Task, all_answers: bool) -> Iterator[Labelled]:
    """Yield the images of a labelling with the chosen answers, or with all answers."""
    records: Iterator[tuple[AnsweredImage, list[Answered]]] = (
        (
            (item, [Answered(dict(given.values), given.annotator, given.seconds) for given in item.given])
            for item in answered_images(database)
        )
        if all_answers
        else ((item, [Answered(values)]) for item, values in chosen_by_image(database, task))
    )
    for item, answers in records:
        facts = dict(item.facts)
        yield Labelled(facts["image"], answers, facts["width"], facts["height"], facts)


def image_name(text: object, where: object) -> str:
    """Return a valid image name: a relative path that stays inside its folder."""
    name = text.lstrip("/") if isinstance(text, str) else ""
    if not is_relative_inside(name) or len(name) > 1000:
        raise SoritesError(f"{where}: expected the path of an image below a folder, got {str(text)[:80]!r}")
    return name
