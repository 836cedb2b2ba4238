"""Work of a run folder that has to be done again: units with pictures that changed, and units with errors that may be gone.

Shards are never written over: they are set aside in ``replaced/``, and a unit without its shards is done like any other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from sorites.core import CLEAN, Sample
from sorites.files import at_hand, write_bytes
from sorites.pipeline import explanations, shards
from sorites.pipeline.framing import framed_picture
from sorites.pipeline.pictures import reason
from sorites.pipeline.plan import Plan, Unit
from sorites.table import scan, write

REPLACED = "replaced"
"""The folder of a run for files that others took the place of."""
RETRIED = "retried.json"
"""Shards by name, with the images that were errors in them and were tried again."""
TOGETHER_ONLY = ("distance", "degrees")
"""Facts whose levels follow from all images together."""
LISTED = "published_levels"
"""Facts that a source brings with its list, whatever its pictures show; they are written with every run."""

TOGETHER = 256
"""Shards that are looked into at once."""

Shard = tuple[Unit, str]
"""A unit and a model."""


def redo_changed(folder: Path, plan: Plan, changed: Collection[Sample]) -> list[str]:
    """Set aside what was made of samples that have changed since; return the names of facts and other findings that went too."""
    marked = {_key(sample) for sample in changed}
    ids = {sample_id for sample_id, *_ in marked}
    units = [
        unit
        for unit in plan.units()
        if any(_key(sample) in marked for sample in plan.groups[unit.shift][unit.start : unit.stop] if sample.id in ids)
    ]
    tried = _read_retried(folder)
    for unit, model in (done := _with_probes(plan, {(unit, model) for unit in units for model in plan.models})):
        tried.pop(shards.stem(unit, model), None)
    _write_retried(folder, tried)
    images = _images(plan, ids)
    gone = [*_without_facts(folder, images), *_without_explanations(folder, images)]
    _set_aside(folder, done)
    _forget_encoded(folder, units)
    return gone


def _key(sample: Sample) -> tuple[str, str, str]:
    """Return what tells a sample of a plan from all others."""
    return sample.id, sample.shift, sample.setting.canonical


def redo_errors(folder: Path, plan: Plan) -> None:
    """Set aside the shards with errors that were not tried again yet, so that they are, once.

    A picture that cannot be decoded now for the same reason as then is left as it is.
    """
    places = {
        shards.shard(folder, unit, model): (unit, model) for unit in (*plan.units(), *plan.probes()) for model in plan.models
    }
    tried, found = _read_retried(folder), set[Shard]()
    undecodable = _Undecodable(plan)
    for path, rows in _errors(folder, places):
        unit, model = places[path]
        open_ones = {image for image, sample, error in rows if not undecodable.so(sample, unit.shift, error)}
        if open_ones - set(tried.get(path.stem, ())):
            tried[path.stem] = sorted(open_ones)
            found.add((unit, model))
    if found:
        _write_retried(folder, tried)
        _set_aside(folder, _with_probes(plan, found))


def kept_features_before(folder: Path) -> bool:
    """Return whether features were set aside, so that those of the work done again are kept as well."""
    return any((folder / REPLACED / "features").glob("*.safetensors"))


class _Undecodable:
    """The reasons why pictures cannot be decoded now, each picture tried once."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._why = plan, dict[tuple[str, str], Exception | None]()

    def so(self, sample_id: str, shift: str, error: str) -> bool:
        """Return whether ``error`` is why the picture cannot be decoded."""
        made = shift in self.plan.shifts or shift == CLEAN
        why = self._tried(sample_id, CLEAN if made else shift)
        return why is not None and error in (reason(why, "reading the picture"), reason(why, shift))

    def _tried(self, sample_id: str, shift: str) -> Exception | None:
        key = sample_id, shift
        if key not in self._why:
            self._why[key] = None
            for sample in self.plan.groups[shift].called(sample_id):
                try:
                    framed_picture(self.plan.suite, sample)
                except Exception as error:  # a source of the user's raises whatever it likes
                    self._why[key] = error
        return self._why[key]


Found = tuple[str, str, str]
"""An image, its sample, and its error."""


def _errors(folder: Path, places: Collection[Path]) -> Iterator[tuple[Path, list[Found]]]:
    """Yield the shards that hold errors, with these."""
    present = shards.Present(folder)
    there = [path for path in places if path in present]
    for some in (there[start : start + TOGETHER] for start in range(0, len(there), TOGETHER)):
        yield from _errors_of(some)


def _errors_of(paths: list[Path]) -> Iterator[tuple[Path, list[Found]]]:
    """Look into some shards together; if one of them cannot be read, which others say, into each alone."""
    here = dict(zip(map(str, at_hand(paths)), paths, strict=True))
    try:
        scanned = scan(paths, include_file_paths="path").filter(pl.col("error").is_not_null())
        rows = scanned.select("path", "image_id", "sample_id", "error").unique(maintain_order=True).collect()
    except (OSError, pl.exceptions.PolarsError):
        yield from (found for path in paths if len(paths) > 1 for found in _errors_of([path]))
        return
    for (path,), part in rows.group_by("path", maintain_order=True):
        yield here[str(path)], part.drop("path").rows()


def _with_probes(plan: Plan, found: Iterable[Shard]) -> list[Shard]:
    """Add the probes that start from units: those of a clean unit are all that look at its samples."""
    every, after = dict.fromkeys(found), dict[Unit, list[Unit]]()
    for probe in plan.probes():
        for start in (*plan.clean_units(probe), replace(probe, probe=False)):
            after.setdefault(start, []).append(probe)
    for unit, model in list(every):
        every |= dict.fromkeys((probe, model) for probe in after.get(unit, ()))
    return list(every)


def _set_aside(folder: Path, found: Iterable[Shard]) -> None:
    """Move the shards, the kept features, and the rows of scorers that were added later."""
    scored: dict[str, list[Path]] = {}
    for path in sorted((folder / "predictions").glob("*--*--*.parquet")):
        scored.setdefault(path.stem.rpartition("--")[0], []).append(path)
    for unit, model in found:
        added = scored.get(shards.stem(unit, model), ())
        for path in (*added, shards.features(folder, unit, model), shards.shard(folder, unit, model)):
            if path.exists():
                path.replace(_aside(folder, path))


def _forget_encoded(folder: Path, units: Iterable[Unit]) -> None:
    """Delete the features by referees of some units: distances that are measured again need the pictures as they are now."""
    stems = {shards.stem(unit, "") for unit in units}
    for path in (folder / shards.ENCODED).glob("*.safetensors"):
        if f"{path.stem.rpartition('--')[0]}--" in stems:
            path.unlink()


def _without_explanations(folder: Path, images: Collection[str]) -> list[str]:
    """Take images out of the explanations of a run; return their name where some were explained."""
    changes = explanations.read_changes(folder)
    left = [change for change in changes if not any(side.image_id in images for side in change.sides)]
    if len(left) == len(changes):
        return []
    explanations.write_changes(folder, left)
    return [explanations.ROOM]


def _aside(folder: Path, path: Path) -> Path:
    to = folder / REPLACED / path.relative_to(folder)
    to.parent.mkdir(parents=True, exist_ok=True)
    return to


def _images(plan: Plan, ids: Collection[str]) -> set[str]:
    """Return the ids of all images of some samples."""
    return {
        plan.image_id(sample, shift, setting)
        for shift, group in plan.groups.items()
        for sample in group
        if sample.id in ids
        for setting in (
            [plan.shifts[shift].setting(stop) for stop in plan.stops[shift]] if shift in plan.shifts else [sample.setting]
        )
    }


def _without_facts(folder: Path, images: Collection[str]) -> list[str]:
    """Take images out of the facts of a run, with each file as it was set aside; return the names of those that knew some."""
    found = []
    for path in sorted((folder / "facts").glob("*.parquet")):
        facts = shards.read_facts(path)
        left = facts.filter(~pl.col("image_id").is_in(list(images)))
        if left.height == facts.height or path.stem == LISTED:
            continue
        found.append(path.stem)
        together = path.stem in TOGETHER_ONLY
        for file in (path, *([path.with_suffix(".json")] if together else ())):
            if file.exists():
                write_bytes(file.read_bytes(), _aside(folder, file))
        if left.height and not together:
            write(left, path)
            continue
        path.unlink()
        if together:
            path.with_suffix(".json").unlink(missing_ok=True)
    return found


def _read_retried(folder: Path) -> dict[str, list[str]]:
    try:
        found = json.loads((folder / RETRIED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(key): list(value) for key, value in found.items()} if isinstance(found, dict) else {}


def _write_retried(folder: Path, tried: dict[str, list[str]]) -> None:
    if tried or (folder / RETRIED).exists():
        write_bytes(json.dumps(tried).encode(), folder / RETRIED)
