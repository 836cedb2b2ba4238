"""The folder of a training: whose it is, what it was begun with, and whether it is finished."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from sorites.errors import Damaged, SoritesError
from sorites.files import read_json, write_bytes
from sorites.models._trained_folder import RECORD, UNFINISHED
from sorites.training import checkpoints
from sorites.training.data import TrainingData, data_hash
from sorites.training.recipe import Recipe, recorded

DATA, LABELS = "data.parquet", "labels.txt"
LIBRARIES = ("torch", "numpy", "pillow")
OTHER = "Choose another --out DIR, or type what it was begun with."


@dataclass(frozen=True)
class Begun:
    """The content of ``train.json``."""

    recipe: Recipe
    data_hash: str
    versions: dict[str, str]

    def other_versions(self) -> list[tuple[str, str, str]]:
        """Return the libraries that are others now: name, version then, version now."""
        return [(name, there, version(name)) for name, there in self.versions.items() if version(name) != there]


def is_finished(folder: Path) -> bool:
    """Return whether the folder holds a trained model."""
    return (folder / RECORD).is_file()


def read(folder: Path) -> Begun | None:
    """Return what a training was begun with, or None where none was."""
    path = folder / UNFINISHED
    if not path.exists():
        return None
    try:
        held = read_json(path)
        recipe = recorded({"name": held["name"], "about": held.get("about", ""), **held["recipe"]}, str(path))
        return Begun(recipe, held["data_hash"], held["versions"])
    except (SoritesError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(path, error, "Choose another --out DIR") from error


def claim(folder: Path, recipe: Recipe, data: TrainingData, command: str = "") -> Begun:
    """Describe the training in its folder, or refuse a folder that was begun with another recipe or other pictures."""
    before = read(folder)
    if before is not None:
        refuse_other(before.recipe, recipe, folder)
    listed = data.listed(_known(folder))
    now = Begun(recipe, data_hash(listed), {name: version(name) for name in LIBRARIES})
    if before is not None:
        if before.data_hash != now.data_hash:
            raise SoritesError(f"{folder} was begun with other pictures: {_changed(_known(folder), listed)}. {OTHER}")
        return before
    held = {"name": recipe.name, "about": recipe.about, "recipe": recipe.described(), "data_hash": now.data_hash}
    held |= {"versions": now.versions, "command": command}
    buffer = _parquet(listed)
    write_bytes(buffer, folder / DATA)
    write_bytes(("\n".join(data.labels.ids) + "\n").encode(), folder / LABELS)
    write_bytes((json.dumps(held, indent=2) + "\n").encode(), folder / UNFINISHED)
    return now


def _parquet(frame: pl.DataFrame) -> bytes:
    import io

    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def _known(folder: Path) -> pl.DataFrame | None:
    try:
        return pl.read_parquet(folder / DATA, glob=False) if (folder / DATA).exists() else None
    except (pl.exceptions.PolarsError, OSError):
        return None


def _changed(before: pl.DataFrame | None, now: pl.DataFrame) -> str:
    """Say in a few words what is different about the pictures."""
    if before is None or before.height != now.height:
        return f"{'?' if before is None else before.height} pictures then, {now.height} now"
    for then, here in zip(before.iter_rows(named=True), now.iter_rows(named=True), strict=True):
        if (then["part"], then["id"]) != (here["part"], here["id"]):
            return f"{then['id']} then, {here['id']} now"
        if then["label"] != here["label"]:
            return f"{then['id']} had the label {then['label']} then and has {here['label']} now"
        if then["content"] != here["content"]:
            return f"{then['id']} is a different picture now"
    return "their order changed"


def refuse_other(then: Recipe, now: Recipe, folder: Path) -> None:
    """Refuse a folder whose training was begun with another recipe, and name the first key that differs."""
    theirs, ours = (dict(_flat(recipe.described())) for recipe in (then, now))
    for key in dict.fromkeys([*ours, *theirs]):
        if theirs.get(key) != ours.get(key):
            begun = is_finished(folder) or (folder / checkpoints.FILE).exists()
            what = OTHER if begun else f"Nothing is trained in it yet: delete it. {OTHER}"
            raise SoritesError(
                f"{folder} was begun with another recipe: {key} is {theirs.get(key)!r} there and {ours.get(key)!r} now. {what}"
            )


def _flat(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value with its dotted key; lists are taken apart by number."""
    items = data.items() if isinstance(data, Mapping) else enumerate(data) if isinstance(data, list | tuple) else ()
    if not items and not isinstance(data, Mapping | list | tuple):
        yield path, data
    for key, value in items:
        yield from _flat(value, f"{path}.{key}" if path else str(key))
