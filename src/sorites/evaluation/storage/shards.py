"""The places of a run's files, which of them are there, and how they are read.

A name is made from a unit and a model and never parsed back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Damaged, SoritesError
from sorites.core.rng import digest
from sorites.core.table import SCHEMA, read_compacted, read_file, repair
from sorites.evaluation.plan import Unit
from sorites.io.files import read_json
from sorites.io.stores import StorePath

# The folder of a run for features of its images by encoders.
ENCODED = "encoded"


def slug(name: str) -> str:
    """A name as part of a file name: readable, plain, and different for different names."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[-40:]
    return plain if plain == name else f"{plain}-{digest(name, size=4).hex()}"


def stem(unit: Unit, model: str) -> str:
    return f"{replace(unit, shift=slug(unit.shift)).key}--{slug(model)}"


def shard(folder: Path, unit: Unit, model: str) -> Path:
    """The rows of one unit and model."""
    return folder / "predictions" / f"{stem(unit, model)}.parquet"


def score_shard(folder: Path, unit: Unit, model: str, scorer: str) -> Path:
    """The rows of a scorer that was added to a finished run."""
    return folder / "predictions" / f"{stem(unit, model)}--{slug(scorer)}.parquet"


def features(folder: Path, unit: Unit, model: str) -> Path:
    return folder / "features" / f"{stem(unit, model)}.safetensors"


def all_features(folder: Path, model: str) -> list[Path]:
    """List what was kept of all units of a model.

    A slug holds no two hyphens in a row: the last part of a name is the model.
    """
    return sorted((folder / "features").glob(f"*--{slug(model)}.safetensors"))


def encoded(folder: Path, unit: Unit, encoder: str) -> Path:
    """The features of one unit's images by an encoder."""
    return folder / ENCODED / f"{stem(unit, encoder)}.safetensors"


def training(folder: Path, unit: Unit, model: str) -> Path:
    """The outputs of a model for a slice of the training images."""
    return folder / "fits" / f"{stem(unit, model)}.safetensors"


def head(folder: Path, model: str) -> Path:
    return folder / "heads" / f"{slug(model)}.safetensors"


def read_shard(path: Path) -> pl.DataFrame:
    """Read all rows of a shard; one that is damaged is an error that names it."""
    return read_file(path, SCHEMA, SCHEMA.names(), repair(path.parent.parent))


def read_facts(path: Path) -> pl.DataFrame:
    """Read facts of a run; a file that is damaged is an error that names it."""
    return read_file(path, SCHEMA, ("image_id",), repair(path.parent.parent))


def read_record(path: Path) -> dict[str, Any]:
    """Read how facts of a run were made; a file that is damaged is an error that names it."""
    try:
        found = read_json(path)
    except SoritesError as error:
        raise Damaged(path, error, repair(path.parent.parent)) from error
    if not isinstance(found, dict):
        raise Damaged(path, "it is not what Sorites writes", repair(path.parent.parent))
    return found


class Present:
    """The files of a run folder's rooms, listed once: asking for each by name takes minutes on a
    network disk.
    """

    def __init__(self, folder: Path, rooms: Iterable[str] = ("predictions",)) -> None:
        self._names = {room: _names(folder / room) for room in rooms}
        if "predictions" in self._names:
            merged = read_compacted(folder)
            self._names["predictions"] |= {f"{stem}.parquet" for held in merged.values() for stem, _ in held}

    def __contains__(self, path: Path) -> bool:
        return path.name in self._names[path.parent.name]


def _names(folder: Path) -> set[str]:
    try:
        return (
            {path.name for path in folder.iterdir()}
            if isinstance(folder, StorePath)
            else set(os.listdir(folder))
        )
    except FileNotFoundError:
        return set()


def missing(
    folder: Path, units: Sequence[Unit], models: Iterable[str], keep_features: bool = False
) -> dict[Unit, tuple[str, ...]]:
    """The units that are not done, each with the models whose shard, or whose kept features, are
    not there yet.
    """
    present = Present(folder, ("predictions", "features"))

    def done(unit: Unit, name: str) -> bool:
        kept = not keep_features or features(folder, unit, name) in present
        return kept and shard(folder, unit, name) in present

    names = tuple(models)
    found = {unit: tuple(name for name in names if not done(unit, name)) for unit in units}
    return {unit: left for unit, left in found.items() if left}
