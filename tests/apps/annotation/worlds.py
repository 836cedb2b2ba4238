"""Images whose time, weather and ground are simple to see, a model that sees them, and answers
that people gave.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.apps.annotation.test_clicks import Worker

from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.clicks import receive
from sorites.apps.annotation.heads import Annotated
from sorites.apps.annotation.images import Entry
from sorites.apps.annotation.store import open_labelling, task_of
from sorites.apps.annotation.task import load
from sorites.core import ImageU8, Model, Outputs

GROUNDS = {"grass": (40, 150, 50), "sand": (220, 190, 120), "water": (50, 90, 190)}


def drawn(obj: int, time: str, weather: str, grounds: Sequence[str]) -> ImageU8:
    """A disc in a colour of its own over the grounds; night is dark, fog pale."""
    rng = np.random.default_rng(obj)
    image = np.zeros((64, 64, 3))
    for band, rows in zip(grounds, np.array_split(np.arange(64), len(grounds)), strict=True):
        image[rows] = GROUNDS[band]
    y, x = np.mgrid[:64, :64]
    image[np.hypot(y - 32, x - 32) < 14] = rng.uniform(0, 255, 3)
    image += rng.normal(0, 6, image.shape)
    if weather == "foggy":
        image = 0.3 * image + 0.7 * 200
    if time == "night":
        image = image * 0.25
    return np.clip(image, 0, 255).astype(np.uint8)


def world(objects: int = 60) -> list[Annotated]:
    """Two images of each object, in words that follow from a draw."""
    found = []
    for number in range(2 * objects):
        rng = np.random.default_rng([3, number])
        time, weather = str(rng.choice(["day", "night"])), str(rng.choice(["sunny", "foggy"]))
        grounds = tuple(sorted(rng.choice(list(GROUNDS), rng.integers(1, 3), replace=False).tolist()))
        words = {"time": (time,), "weather": (weather,), "location": grounds}
        load = functools.partial(drawn, number // 2, time, weather, grounds)
        found.append(Annotated(f"object {number // 2}", load, words))
    return found


def seeing(version: str = "1") -> Model:
    """A model whose features are the colours of an image and their spread."""

    def forward(images: list[np.ndarray]) -> Outputs:
        seen = [np.concatenate([p[:8].reshape(-1, 3), p[-8:].reshape(-1, 3)]) / 255 for p in images]
        near = [
            [np.linalg.norm(s / s.sum() - np.array(g) / sum(g)) for g in GROUNDS.values() for s in x[::50]]
            for x in seen
        ]
        rows = [
            np.concatenate([x.mean(0), x.std(0), [np.log(x.mean() + 0.01)], n])
            for x, n in zip(seen, near, strict=True)
        ]
        return Outputs(np.zeros((len(rows), 2), np.float32), np.stack(rows).astype(np.float32))

    return Model("seeing", forward, labels=("a", "b"), version=version)


def answered(
    path: Path, task: str, entries: Sequence[Entry], say: Callable[[Any, int], Mapping[str, Any]]
) -> Path:
    """A labelling in which two people answer for every image what ``say`` gives for its row and
    their number.
    """
    begin(path, load(task)[1], entries, "source test")
    add_annotators(path, ["ann", "ben"])
    with open_labelling(path, write=True) as database:
        for who in (1, 2):
            while items := [item for item in Worker(database, who).items() if not item["answered"]]:
                for item in items:
                    row = _image(database, item["id"])
                    click = {
                        "id": f"click-{who}-{item['id']}",
                        "assignment": item["id"],
                        "action": "answer",
                        "seconds": 1,
                    }
                    assert receive(
                        database, task_of(database), who, [{**click, "value": dict(say(row, who))}]
                    )["kept"]
    return path


def _image(database: sqlite3.Connection, assignment: int) -> Any:
    asked = "SELECT p.* FROM images p JOIN assignments a ON a.image = p.id WHERE a.id = ?"
    return database.execute(asked, (assignment,)).fetchone()
