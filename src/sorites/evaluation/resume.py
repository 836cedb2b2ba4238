"""Work of a run folder that has to be done again: units with images that changed, and units with
errors that may be gone.

Shards are never written over: they are set aside in ``replaced/``, and a unit without its shards is
done like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import CLEAN, Sample
from sorites.core.errors import SoritesError
from sorites.core.packed import PackedSamples
from sorites.core.table import read_file, scan, write
from sorites.evaluation import explanations
from sorites.evaluation.images import reason
from sorites.evaluation.plan import Plan, Unit, with_changed
from sorites.evaluation.samples import framed_image
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.contents import COLUMNS, changed, contents, guarded
from sorites.io.files import at_hand, write_bytes

# The folder of a run for files that others took the place of.
REPLACED = "replaced"
# Shards by name, with the images that were errors in them and were tried again.
RETRIED = "retried.json"
# Facts whose levels follow from all images together.
TOGETHER_ONLY = ("distance", "degrees")
# Facts that a source brings with its list, whatever its images show; they are written with every
# run.
LISTED = "published_levels"

# Shards that are looked into at once.
TOGETHER = 256

# A unit and a model.
Shard = tuple[Unit, str]


def redo_changed(folder: Path, plan: Plan, changed: Collection[Sample]) -> list[str]:
    """Set aside what was made of samples that have changed since; return the names of facts and
    other findings that went too.
    """
    marked = {_key(sample) for sample in changed}
    ids = {sample_id for sample_id, *_ in marked}
    units = [
        unit
        for unit in plan.units()
        if any(
            _key(sample) in marked
            for sample in plan.groups[unit.shift][unit.start : unit.stop]
            if sample.id in ids
        )
    ]
    tried = _read_retried(folder)
    for unit, model in (
        done := _with_probes(plan, {(unit, model) for unit in units for model in plan.models})
    ):
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

    An image that cannot be decoded now for the same reason as then is left as it is.
    """
    places = {
        shards.shard(folder, unit, model): (unit, model)
        for unit in (*plan.units(), *plan.probes())
        for model in plan.models
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
    """The reasons why images cannot be decoded now, each image tried once."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._why = plan, dict[tuple[str, str], Exception | None]()

    def so(self, sample_id: str, shift: str, error: str) -> bool:
        """Return whether ``error`` is why the image cannot be decoded."""
        made = shift in self.plan.shifts or shift == CLEAN
        why = self._tried(sample_id, CLEAN if made else shift)
        return why is not None and error in (reason(why, "reading the image"), reason(why, shift))

    def _tried(self, sample_id: str, shift: str) -> Exception | None:
        key = sample_id, shift
        if key not in self._why:
            self._why[key] = None
            for sample in self.plan.groups[shift].called(sample_id):
                try:
                    framed_image(self.plan.suite, sample)
                except Exception as error:  # a source of the user's raises whatever it likes
                    self._why[key] = error
        return self._why[key]


# An image, its sample, and its error.
Found = tuple[str, str, str]


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
    """Delete the features by encoders of some units: distances that are measured again need the
    images as they are now.
    """
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
            [plan.shifts[shift].setting(value) for value in plan.settings[shift]]
            if shift in plan.shifts
            else [sample.setting]
        )
    }


def _without_facts(folder: Path, images: Collection[str]) -> list[str]:
    """Take images out of the facts of a run, with each file as it was set aside; return the names
    of those that knew some.
    """
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


# A run folder met again: which of its images are others by now, what is done again for that, and what
# is refused.


# The training and validation images of scorers by their content, beside the manifest.
TRAINING = "training.parquet"
Say = Callable[[str], None]

# The advice where a file is damaged that cannot be made again from the rest of its run folder.
ANOTHER = "Put it back from a copy, or choose another --out DIR."


def renewed(
    folder: Path, plan: Plan, samples: PackedSamples, listed: pl.DataFrame, moved: str, say: Say
) -> pl.DataFrame:
    """Return the manifest of a run folder with the content of its samples as it is now.

    What was made of samples that have changed is set aside, to be done again. ``moved`` says where
    the images lay before, if that was elsewhere: they are then taken only if all are known to be
    the same.
    """
    then = contents_of(listed)
    now = contents(samples, then)
    pairs = zip(then.iter_rows(named=True), now.iter_rows(named=True), strict=True)
    places = [place for place, (before, after) in enumerate(pairs) if changed(before, after)]
    others = samples.take(places)
    if moved:
        unknown = int((then["content"].is_null() | now["content"].is_null()).sum())
        if places or unknown:
            raise SoritesError(
                f"{folder} holds another run ({moved}): {len(others) or unknown} of its {len(samples)}"
                " images are not known to be the same in both places. Choose another --out DIR."
            )
    if places:
        facts = redo_changed(folder, plan, others)
        also = (
            f"; facts of theirs are gone until they are measured again: {', '.join(facts)}" if facts else ""
        )
        say(
            f"{len(others)} of {len(samples)} images have changed since {folder} looked at them, and are"
            f" done again{also}"
        )
    return listed.drop(COLUMNS.names(), strict=False).hstack(now)


def check_training(folder: Path, plan: Plan) -> None:
    """Refuse to go on where training or validation images have changed: every fitted score
    follows from all of them.
    """
    kinds = (("training", plan.fit), ("validation", plan.validation), ("OOD validation", plan.ood))
    named = [(kind, sample) for kind, samples in kinds for sample in samples]
    if not named:
        return
    keys = pl.DataFrame(
        {"kind": [kind for kind, _ in named], "sample_id": [sample.id for _, sample in named]}
    )
    path = folder / TRAINING
    before = read_file(path, COLUMNS, ("kind", "sample_id"), ANOTHER) if path.exists() else None
    same = before is not None and before.select("kind", "sample_id").equals(keys)
    then = contents_of(before) if same and before is not None else None
    now = contents([sample for _, sample in named], then)
    rows = () if then is None else zip(then.iter_rows(named=True), now.iter_rows(named=True), strict=True)
    others = [i for i, (was, known) in enumerate(rows) if changed(was, known)]
    if others:
        kind, sample = named[others[0]]
        raise SoritesError(
            f"{len(others)} images that the scorers of {folder} were fitted on have changed since, first"
            f" the {kind} image {sample.id}. Choose another --out DIR."
        )
    kept = keys.hstack(now)
    if before is None or not kept.equals(before):
        write(kept, path)


def guard(plan: Plan, listed: pl.DataFrame) -> Plan:
    """Return the plan with samples that cannot be decoded once they are others than those that the
    run looked at.
    """
    find = _finder(listed.select(*_KEY, *COLUMNS.names()))

    def change(sample: Sample) -> Sample:
        row = find(_content_key(_about(plan, sample)))
        return sample if row is None else guarded(sample, row)

    return with_changed(plan, change)


# Rows of a manifest that are kept as a dict, which answers at once; beyond that it would take
# gigabytes.
FEW = 1_000_000


def _finder(kept: pl.DataFrame) -> Callable[[tuple[Any, ...]], Mapping[str, Any] | None]:
    """Return a function that finds the row of a key, or None."""
    if kept.height <= FEW:
        return {_content_key(row): row for row in kept.iter_rows(named=True)}.get
    known = _ByText(kept["sample_id"])

    def find(key: tuple[Any, ...]) -> Mapping[str, Any] | None:
        rows = (kept.row(place, named=True) for place in reversed(known.places(key[_KEY.index("sample_id")])))
        return next((row for row in rows if _content_key(row) == key), None)

    return find


class _ByText:
    """The places of texts in a column, found by their hashes: for many texts this takes less than a dict."""

    def __init__(self, texts: pl.Series) -> None:
        hashes = texts.hash().to_numpy()
        self._texts, self._order = texts, np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def places(self, text: str) -> list[int]:
        """Return where a text stands, in order."""
        one = pl.Series([text], dtype=pl.String).hash()[0]
        low, high = (np.searchsorted(self._hashes, np.uint64(one), side) for side in ("left", "right"))
        return [place for place in self._order[low:high].tolist() if self._texts[place] == text]


_KEY = ("source", "sample_id", "shift", "severity", "params")


def _content_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _about(plan: Plan, sample: Sample) -> dict[str, Any]:
    params = json.dumps(dict(sample.setting.params), sort_keys=True)
    severity = sample.setting.severity
    return dict(zip(_KEY, (plan.source_of(sample), sample.id, sample.shift, severity, params), strict=True))


def contents_of(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the contents that a manifest holds, row by row."""
    return listed.select(COLUMNS.names())
