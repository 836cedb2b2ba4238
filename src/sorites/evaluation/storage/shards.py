"""The files of a run: how they are named, found, read and written.

A shard has the rows of a *group* of models for a slice. A task writes one shard with all models of its group,
or one per model if it was made for some of them only; nothing outside this module depends on that choice.
``run.json`` has the groups that a run has used. File names are made from a slice and a group, and never
parsed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core.errors import Damaged, MissingFile
from sorites.core.rng import digest
from sorites.core.shard_index import PARQUET, PREDICTIONS, RunShards
from sorites.core.table import FACTS_FOLDER, SCHEMA, parse, repair, write_shard
from sorites.evaluation.plan import Unit
from sorites.io import digests, listed
from sorites.io.files import locked

# Subfolders of a run: outputs of models, outputs for training images, last layers, and features of encoders.
FEATURES, FITS, HEADS, ENCODED = "features", "fits", "heads", "encoded"
SAFETENSORS = ".safetensors"


@functools.lru_cache(maxsize=4096)
def slug(name: str) -> str:
    """Return a name as part of a file name: readable, plain, and unique."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[-40:]
    return plain if plain == name else f"{plain}-{digest(name, size=4).hex()}"


def stem(unit: Unit, *models: str) -> str:
    """Return the file stem of a slice and a group of models."""
    return f"{unit.key_of(slug(unit.shift))}--{_group_slug(models)}"


@functools.lru_cache(maxsize=4096)
def _group_slug(models: tuple[str, ...]) -> str:
    """Return a group of models as part of a file name."""
    if len(models) == 1:
        return slug(models[0])
    return f"{len(models)}-models-{digest(*sorted(models), size=4).hex()}"


def score_stem(unit: Unit, model: str, scorer: str) -> str:
    """Return the file stem of the rows of a scorer that was added to a finished run."""
    return f"{stem(unit, model)}--{slug(scorer)}"


class Predictions:
    """The shards of a run, listed once; checking each file takes minutes on a network disk.

    Args:
        folder: The run folder.
        models: All models of the run.
    """

    def __init__(self, folder: Path, models: Iterable[str]) -> None:
        self.folder, self.models = folder, tuple(models)
        groups = {self.models, *groups_of(folder)}
        self._groups = {m: sorted(g for g in groups if m in g and len(g) > 1) for m in self.models}
        parts = RunShards(folder)
        self._files = {stem: path for stem, path in parts.listed.items() if stem not in parts.covered}
        self._merged = parts.covered

    def has(self, unit: Unit, model: str) -> bool:
        """Return whether the rows of a slice and model exist."""
        return any(stem in self._files or stem in self._merged for stem in self.stems(unit, model))

    def has_scores(self, unit: Unit, model: str, scorer: str) -> bool:
        """Return whether the rows of a scorer that was added later exist."""
        scores = score_stem(unit, model, scorer)
        return scores in self._files or scores in self._merged

    def stems(self, unit: Unit, model: str) -> tuple[str, ...]:
        """Return the stems of the shards that may have the rows of a slice and model."""
        return (*(stem(unit, *group) for group in self._groups[model]), stem(unit, model))

    def find(self, unit: Unit, model: str) -> Path | None:
        """Return the shard with the rows of a slice and model, perhaps a merged one, or None."""
        stems = self.stems(unit, model)
        single = next((self._files[stem] for stem in stems if stem in self._files), None)
        return single or next((self._merged[stem] for stem in stems if stem in self._merged), None)

    def paths(self, unit: Unit, models: Sequence[str]) -> tuple[Path, ...]:
        """Return the files with the rows of a slice and some models.

        Raises:
            MissingFile: There is none for one of the models.
        """
        found = {name: self.find(unit, name) for name in models}
        for name, path in found.items():
            if path is None:
                what = self.folder / PREDICTIONS / stem(unit, name)
                raise MissingFile(what, f"{what} does not exist: repeat the run")
        return tuple(dict.fromkeys(path for path in found.values() if path is not None))


def read_rows(paths: Iterable[Path], models: Sequence[str]) -> pl.DataFrame:
    """Read the rows of some models from shards.

    Raises:
        Damaged: A shard is damaged.
    """
    return pl.concat([read_shard(path) for path in paths]).filter(pl.col("model").is_in(list(models)))


def groups_of(folder: Path) -> tuple[tuple[str, ...], ...]:
    """Return the groups of models that tasks of a run were made for, besides all models together."""
    groups = listed.read_content(folder / listed.RUN).get("groups")
    return tuple(tuple(map(str, names)) for names in groups) if isinstance(groups, list) else ()


def write_rows(
    folder: Path, run_id: str, unit: Unit, rows: Mapping[str, pl.DataFrame], group: Iterable[str]
) -> tuple[str, ...]:
    """Write the rows of a task: as one shard if it has all models of its group, else as one per model.

    Args:
        folder: The run folder.
        run_id: The run id.
        unit: The slice.
        rows: The rows by model.
        group: The models of its group.

    Returns:
        The names of the files.
    """
    names, written = tuple(group), list[str]()
    groups = [names] if rows.keys() == set(names) else [(name,) for name in rows]
    for group_ in groups:
        frame = pl.concat([rows[name] for name in sorted(group_, key=slug)])
        with_run = frame.with_columns(run_id=pl.lit(run_id)).select(SCHEMA.names())
        written.append(write_shard(with_run, folder, stem(unit, *group_)).name)
    return tuple(written)


def read_shard(path: Path) -> pl.DataFrame:
    """Read all rows of a shard.

    Raises:
        Damaged: It does not match its digest, or is not a shard.
    """
    remedy = repair(path.parent.parent)
    return parse(digests.read_shard(path, remedy), path, SCHEMA, SCHEMA.names(), remedy)


def missing(
    folder: Path, units: Sequence[Unit], models: Iterable[str], keep_features: bool = False
) -> dict[Unit, tuple[str, ...]]:
    """Return the incomplete slices, each with the models whose rows or stored features are missing."""
    names = tuple(models)
    present = Predictions(folder, names)
    features = digests.shards_in(folder / FEATURES, SAFETENSORS) if keep_features else {}

    def done(unit: Unit, name: str) -> bool:
        return (not keep_features or stem(unit, name) in features) and present.has(unit, name)

    models_left = {unit: tuple(name for name in names if not done(unit, name)) for unit in units}
    return {unit: names_left for unit, names_left in models_left.items() if names_left}


def tensor_files(folder: Path, room: str) -> dict[str, Path]:
    """Return the safetensors files in a subfolder of a run, by stem."""
    return digests.shards_in(folder / room, SAFETENSORS)


def all_features(folder: Path, model: str) -> list[Path]:
    """Return the stored outputs of all slices of a model.

    A slug has no double hyphen, so the last part of a stem is the model.
    """
    files = tensor_files(folder, FEATURES)
    return [path for stem, path in files.items() if stem.rpartition("--")[2] == slug(model)]


# Facts and how they were computed; listed in ``run.json``.


def facts_file(name: str) -> str:
    """Return the path of facts, relative to the run folder."""
    return f"{FACTS_FOLDER}/{name}{PARQUET}"


def metadata_file(name: str) -> str:
    """Return the path of how facts were computed, relative to the run folder."""
    return f"{FACTS_FOLDER}/{name}.json"


def read_facts(folder: Path, name: str) -> pl.DataFrame | None:
    """Read facts of a run; None if it has none of this name.

    Raises:
        Damaged: The file does not match its digest.
    """
    file = facts_file(name)
    if not listed.is_listed(folder / listed.RUN, file):
        return None
    data = listed.read_listed(folder / listed.RUN, file, repair(folder))
    return parse(data, folder / file, SCHEMA, ("image_id",), repair(folder))


def read_metadata(folder: Path, name: str) -> dict[str, Any] | None:
    """Read how facts of a run were computed, whoever wrote them; None if it has none of this name.

    Raises:
        Damaged: The file does not match its digest.
    """
    file = metadata_file(name)
    if not listed.is_listed(folder / listed.RUN, file):
        return None
    try:
        content = json.loads(listed.read_listed(folder / listed.RUN, file, repair(folder)))
    except ValueError as error:
        raise Damaged(folder / file, error, repair(folder)) from error
    if not isinstance(content, dict):
        raise Damaged(folder / file, "it has an unknown format", repair(folder))
    return content


def write_metadata(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    """Write how facts of a run were computed."""
    with locked(folder, again=True):
        listed.write_listed(folder / listed.RUN, metadata_file(name), json.dumps(content, indent=1).encode())


def delete_facts(folder: Path, name: str) -> None:
    """Delete facts of a run, if it has them."""
    with locked(folder, again=True):
        listed.delete_listed(folder / listed.RUN, facts_file(name))
