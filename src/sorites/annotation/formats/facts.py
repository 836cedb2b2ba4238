"""Facts of a run: whether an image stays (``valid``) and its attributes, joined to the table when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from sorites import table
from sorites.annotation.formats.rows import Labelled
from sorites.annotation.task import Task
from sorites.annotation.values import Value
from sorites.errors import SoritesError
from sorites.sources._uncommon import NONE, WORDS, CategorySetting, is_common, read_uncommon

NAME = "annotated"
CLASS = "class"


def write(task: Task, rows: list[Labelled], out: Path) -> int:
    """Write ``facts/annotated.parquet`` of a run, and return for how many of its images it says something.

    Pictures of a run are known by their image ids. For those of a source, attributes go to all images of the sample, and
    ``valid`` to its clean image alone.
    """
    images = table.read(out).select("image_id", "sample_id", "shift").unique().collect()
    by_id, by_sample = set(images["image_id"]), images.partition_by("sample_id", as_dict=True)
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        said = {"valid": _valid(task, row.values), "attrs": list(_attributes(task, row.values)) or None}
        if row.facts.get("image_id") in by_id:
            found[row.facts["image_id"]] = said
        elif (row.facts.get("sample_id"),) in by_sample and not row.facts.get("image_id"):
            for image in by_sample[(row.facts["sample_id"],)].iter_rows(named=True):
                found[image["image_id"]] = {**said, "valid": said["valid"] if image["shift"] == "clean" else None}
    kept = {key: said for key, said in found.items() if said["valid"] is not None or said["attrs"]}
    if not kept:
        raise SoritesError(f"none of the {len(rows)} answered pictures is an image or a sample of the run {out}")
    names = ("image_id", "valid", "attrs")
    schema = pl.Schema({name: table.SCHEMA[name] for name in names})
    table.write_facts(out, NAME, pl.DataFrame([{"image_id": key, **said} for key, said in kept.items()], schema=schema))
    return len(kept)


def _valid(task: Task, values: Mapping[str, Value]) -> bool | None:
    """Return whether the image stays by every question that says so, None where none does."""
    said = [values[q.id] in q.valid for q in task.questions if q.valid and q.id in values]
    return all(said) if said else None


def _attributes(task: Task, values: Mapping[str, Value]) -> Iterator[dict[str, Any]]:
    category = next((str(values[q.id]) for q in task.questions if q.attribute == CLASS and q.id in values), None)
    for question in task.questions:
        if question.kind in ("single", "several", "scale") and not question.valid and question.id in values:
            value, key = values[question.id], question.attribute or question.id
            for word in value if isinstance(value, list) else [value]:
                yield {"key": key, "value": str(word), "common": _common(category, key, str(word))}


def _common(category: str | None, key: str, word: str) -> bool | None:
    """Return whether a setting is common for a category by FOCUS's table; None where that says nothing."""
    uncommon = _uncommon()
    if key not in WORDS or word == NONE or category not in {one for one, _, _ in uncommon}:
        return None
    return is_common(uncommon, str(category), key, word)


@cache
def _uncommon() -> frozenset[CategorySetting]:
    name = "focus_uncommon.tsv"
    return read_uncommon(files("sorites.sources").joinpath(name).read_text(encoding="utf-8"), name)
