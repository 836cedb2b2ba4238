"""Paths of a run's files, which of them exist, and how they are read.

File names are made from a slice and a model, and never parsed.
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

# Subfolder of a run for encoder features of its images.
ENCODED = "encoded"


def slug(name: str) -> str:
    """Return a name as part of a file name: readable, plain, and unique."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[-40:]
    return plain if plain == name else f"{plain}-{digest(name, size=4).hex()}"


def stem(unit: Unit, model: str) -> str:
    """Return the file stem of a slice and model."""
    return f"{replace(unit, shift=slug(unit.shift)).key}--{slug(model)}"


def shard(folder: Path, unit: Unit, model: str) -> Path:
    """Return the path of the rows of a slice and model."""
    return folder / "predictions" / f"{stem(unit, model)}.parquet"


def score_shard(folder: Path, unit: Unit, model: str, scorer: str) -> Path:
    """Return the path of the rows of a scorer that was added to a finished run."""
    return folder / "predictions" / f"{stem(unit, model)}--{slug(scorer)}.parquet"


def features(folder: Path, unit: Unit, model: str) -> Path:
    """Return the path of the stored outputs of a slice and model."""
    return folder / "features" / f"{stem(unit, model)}.safetensors"


def all_features(folder: Path, model: str) -> list[Path]:
    """Return the stored outputs of all slices of a model.

    A slug has no double hyphen, so the last part of a name is the model.
    """
    return sorted((folder / "features").glob(f"*--{slug(model)}.safetensors"))


def encoded(folder: Path, unit: Unit, encoder: str) -> Path:
    """Return the path of the encoder features of a slice."""
    return folder / ENCODED / f"{stem(unit, encoder)}.safetensors"


def training(folder: Path, unit: Unit, model: str) -> Path:
    """Return the path of a model's outputs for a slice of the training images."""
    return folder / "fits" / f"{stem(unit, model)}.safetensors"


def head(folder: Path, model: str) -> Path:
    """Return the path of a model's last linear layer."""
    return folder / "heads" / f"{slug(model)}.safetensors"


def read_shard(path: Path) -> pl.DataFrame:
    """Read all rows of a shard.

    Raises:
        Damaged: It cannot be read.
    """
    return read_file(path, SCHEMA, SCHEMA.names(), repair(path.parent.parent))


def read_facts(path: Path) -> pl.DataFrame:
    """Read facts of a run.

    Raises:
        Damaged: The file cannot be read.
    """
    return read_file(path, SCHEMA, ("image_id",), repair(path.parent.parent))


def read_record(path: Path) -> dict[str, Any]:
    """Read how facts of a run were computed.

    Raises:
        Damaged: The file cannot be read.
    """
    try:
        content = read_json(path)
    except SoritesError as error:
        raise Damaged(path, error, repair(path.parent.parent)) from error
    if not isinstance(content, dict):
        raise Damaged(path, "it has an unknown format", repair(path.parent.parent))
    return content


class Present:
    """File names in subfolders of a run, listed once; checking each file takes minutes on a network disk."""

    def __init__(self, folder: Path, rooms: Iterable[str] = ("predictions",)) -> None:
        self._names = {room: _names(folder / room) for room in rooms}
        if "predictions" in self._names:
            merged = read_compacted(folder)
            self._names["predictions"] |= {
                f"{stem}.parquet" for stems in merged.values() for stem, _ in stems
            }

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
    """Return the incomplete slices, each with the models whose shard or stored features are missing."""
    present = Present(folder, ("predictions", "features"))

    def done(unit: Unit, name: str) -> bool:
        features_stored = not keep_features or features(folder, unit, name) in present
        return features_stored and shard(folder, unit, name) in present

    names = tuple(models)
    models_left = {unit: tuple(name for name in names if not done(unit, name)) for unit in units}
    return {unit: names_left for unit, names_left in models_left.items() if names_left}
