"""Resume a run folder: detect changed images, redo them and failed images, and refuse incompatible runs.

Shards are never overwritten: they are moved to ``replaced/``, and a slice without shards is evaluated like
any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sorites.core import CLEAN, Sample
from sorites.core.errors import Damaged, SoritesError
from sorites.core.messages import option
from sorites.core.packed import PackedSamples
from sorites.core.shard_index import PARQUET, PREDICTIONS, RunShards, forget_index
from sorites.core.table import FACTS_FOLDER, parquet, parse, repair, scan
from sorites.evaluation.images import reason
from sorites.evaluation.plan import Plan, Unit, with_changed
from sorites.evaluation.samples import framed_image
from sorites.evaluation.storage import explanations, shards
from sorites.evaluation.storage.contents import COLUMNS, changed, contents, guard_sample
from sorites.evaluation.storage.merge import expand
from sorites.io import digests
from sorites.io.files import local_copies, write_bytes
from sorites.io.listed import (
    ANOTHER,
    RUN,
    delete_listed,
    is_listed,
    listed_files,
    read_listed,
    write_listed,
)

# Subfolder of a run for replaced files.
REPLACED = "replaced"
# File with the failed images by shard that were already retried.
RETRIED = "retried.json"
# Facts whose levels depend on all images together.
JOINT_FACTS = ("distance", "degrees")
# Facts from the source's list, which do not depend on pixels; written with every run.
PUBLISHED_LEVELS = "published_levels"

# Number of shards scanned at once.
SHARDS_PER_SCAN = 256

# A slice and a model.
Shard = tuple[Unit, str]


def redo_changed(folder: Path, plan: Plan, changed: Collection[Sample]) -> list[str]:
    """Move everything made from changed samples to ``replaced/``; return the names of facts and explanations
    that were removed.
    """
    changed_keys = {_key(sample) for sample in changed}
    ids = {sample_id for sample_id, *_ in changed_keys}
    units = [
        unit
        for unit in plan.units()
        if any(
            _key(sample) in changed_keys
            for sample in plan.groups[unit.shift][unit.start : unit.stop]
            if sample.id in ids
        )
    ]
    affected = _with_probes(plan, {(unit, model) for unit in units for model in plan.models})
    present = shards.Predictions(folder, plan.models)
    redone = {stem for unit, model in affected for stem in present.stems(unit, model)}
    _write_retried(folder, {k: ids for k, ids in _read_retried(folder).items() if k not in redone})
    images = _images(plan, ids)
    removed = [*_without_facts(folder, images), *_without_explanations(folder, images)]
    _move_shards(folder, present, affected)
    _forget_encoded(folder, units)
    return removed


def _key(sample: Sample) -> tuple[str, str, str]:
    """Return the unique key of a sample."""
    return sample.id, sample.shift, sample.setting.canonical


def redo_errors(folder: Path, plan: Plan) -> None:
    """Move shards with errors that were not retried yet to ``replaced/``, so that they are retried once.

    An image that still cannot be decoded for the same reason is left as it is.
    """
    present = _without_merged_errors(folder, shards.Predictions(folder, plan.models))
    places: dict[Path, list[Shard]] = {}
    for unit in (*plan.units(), *plan.probes()):
        for model in plan.models:
            if (path := present.find(unit, model)) is not None:
                places.setdefault(path, []).append((unit, model))
    retried, affected = _read_retried(folder), set[Shard]()
    undecodable = _Undecodable(plan)
    for path, rows in _errors(folder, list(places)):
        stem, shift = digests.stem_of(path.name) or "", places[path][0][0].shift
        retryable = {image for image, sample, error in rows if not undecodable.so(sample, shift, error)}
        if retryable - set(retried.get(stem, ())):
            retried[stem] = sorted(retryable)
            affected.update(places[path])
    if affected:
        _move_shards(folder, present, _with_probes(plan, affected))
        # Afterwards, so that a process that is killed in between costs no retry.
        _write_retried(folder, retried)


def kept_features_before(folder: Path) -> bool:
    """Return whether features were moved to ``replaced/``, so that they must be stored again."""
    return bool(shards.tensor_files(folder / REPLACED, shards.FEATURES))


def _without_merged_errors(folder: Path, present: shards.Predictions) -> shards.Predictions:
    """Restore the shards of merged ones that contain errors, so that only some of them are evaluated
    again.
    """
    merged = [folder / PREDICTIONS / name for name in RunShards(folder).merged]
    with_errors = {path.name for path, _ in _errors(folder, merged)} if merged else set()
    contained = RunShards(folder).merged if with_errors else {}
    stems = {stem for name in with_errors for stem, _ in contained[name]}
    return shards.Predictions(folder, present.models) if stems and expand(folder, stems) else present


class _Undecodable:
    """Finds out why images cannot be decoded now; each image is tried once."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._why = plan, dict[tuple[str, str], Exception | None]()

    def so(self, sample_id: str, shift: str, error: str) -> bool:
        """Return whether ``error`` is the reason why the image cannot be decoded now."""
        uses_clean = shift in self.plan.shifts or shift == CLEAN
        current = self._decoding_error(sample_id, CLEAN if uses_clean else shift)
        return current is not None and error in (reason(current, "reading the image"), reason(current, shift))

    def _decoding_error(self, sample_id: str, shift: str) -> Exception | None:
        key = sample_id, shift
        if key not in self._why:
            self._why[key] = None
            for sample in self.plan.groups[shift].called(sample_id):
                try:
                    framed_image(self.plan.suite, sample)
                except Exception as error:  # sources of users may raise anything
                    self._why[key] = error
        return self._why[key]


# An image, its sample, and its error.
ImageError = tuple[str, str, str]


def _errors(folder: Path, paths: Sequence[Path]) -> Iterator[tuple[Path, list[ImageError]]]:
    """Yield the shards that contain errors, with these.

    Raises:
        Damaged: A shard does not match its digest.
    """
    digests.Verifier(folder).require(digests.named_digests(paths), repair(folder))
    for start in range(0, len(paths), SHARDS_PER_SCAN):
        yield from _errors_of(paths[start : start + SHARDS_PER_SCAN])


def _errors_of(paths: Sequence[Path]) -> Iterator[tuple[Path, list[ImageError]]]:
    """Scan shards together."""
    original_path = dict(zip(map(str, local_copies(paths)), paths, strict=True))
    scanned = scan(paths, include_file_paths="path").filter(pl.col("error").is_not_null())
    rows = scanned.select("path", "image_id", "sample_id", "error").unique(maintain_order=True).collect()
    for (path,), part in rows.group_by("path", maintain_order=True):
        yield original_path[str(path)], part.drop("path").rows()


def _with_probes(plan: Plan, affected: Iterable[Shard]) -> list[Shard]:
    """Add the probe slices that depend on the given slices; all probes of its samples depend on a clean
    slice.
    """
    all_shards, dependants = dict.fromkeys(affected), dict[Unit, list[Unit]]()
    for probe in plan.probes():
        for start in (*plan.clean_units(probe), replace(probe, probe=False)):
            dependants.setdefault(start, []).append(probe)
    for unit, model in list(all_shards):
        all_shards |= dict.fromkeys((probe, model) for probe in dependants.get(unit, ()))
    return list(all_shards)


def _move_shards(folder: Path, present: shards.Predictions, affected: Sequence[Shard]) -> None:
    """Move shards, stored features, and rows of scorers that were added later.

    The models that share a shard are all evaluated again.
    """
    stems = {stem for unit, model in affected for stem in present.stems(unit, model)}
    if expand(folder, stems):
        present = shards.Predictions(folder, present.models)
    forget_index(folder)
    units = {unit for unit, _ in affected}
    paths = {present.find(unit, model) for unit, model in affected}
    together = [(u, m) for u in units for m in present.models if present.find(u, m) in paths]
    features, scored = shards.tensor_files(folder, shards.FEATURES), dict[str, list[Path]]()
    for stem, path in digests.shards_in(folder / PREDICTIONS, PARQUET).items():
        scored.setdefault(stem.rpartition("--")[0], []).append(path)
    for unit, model in together:
        stem = shards.stem(unit, model)
        _replace(folder, [*scored.get(stem, ()), features.get(stem)])
    # Last, so that a process that is killed before leaves the slice as it was.
    _replace(folder, paths)


def move_unpaired_features(folder: Path, plan: Plan) -> None:
    """Move features without rows to ``replaced/``; their task was interrupted and is repeated."""
    features = shards.tensor_files(folder, shards.FEATURES)
    for unit, names in shards.missing(folder, plan.units(), plan.models).items() if features else ():
        _replace(folder, [features.get(shards.stem(unit, name)) for name in names])


def _replace(folder: Path, paths: Iterable[Path | None]) -> None:
    for path in paths:
        if path is not None:
            path.replace(_replaced_path(folder, path))


def _forget_encoded(folder: Path, units: Iterable[Unit]) -> None:
    """Delete encoder features of slices, because distances must be measured on the current images."""
    stems = {shards.stem(unit, "") for unit in units}
    for stem, path in shards.tensor_files(folder, shards.ENCODED).items():
        if f"{stem.rpartition('--')[0]}--" in stems:
            path.unlink()


def _without_explanations(folder: Path, images: Collection[str]) -> list[str]:
    """Remove images from the explanations of a run; return their name if any were explained."""
    changes = explanations.read_changes(folder)
    remaining = [change for change in changes if not any(side.image_id in images for side in change.sides)]
    if len(remaining) == len(changes):
        return []
    explanations.write_changes(folder, remaining)
    return [explanations.ROOM]


def _replaced_path(folder: Path, path: Path) -> Path:
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
    """Remove images from the facts of a run, after copying the files to ``replaced/``; return the names of
    changed facts.
    """
    changed_facts = []
    names = [Path(file).stem for file in listed_files(folder / RUN) if file.startswith(f"{FACTS_FOLDER}/")]
    for name in dict.fromkeys(sorted(names)):
        facts = shards.read_facts(folder, name)
        if facts is None or name == PUBLISHED_LEVELS:
            continue
        remaining = facts.filter(~pl.col("image_id").is_in(list(images)))
        if remaining.height == facts.height:
            continue
        changed_facts.append(name)
        together = name in JOINT_FACTS
        files = [shards.facts_file(name), *([shards.metadata_file(name)] if together else [])]
        for file in (file for file in files if is_listed(folder / RUN, file)):
            write_bytes(
                read_listed(folder / RUN, file, repair(folder)), _replaced_path(folder, folder / file)
            )
        if remaining.height and not together:
            write_listed(folder / RUN, shards.facts_file(name), parquet(remaining))
            continue
        for file in files:
            delete_listed(folder / RUN, file)
    return changed_facts


def _read_retried(folder: Path) -> dict[str, list[str]]:
    path = folder / RETRIED
    if not path.exists():
        return {}
    shards_ = digests.read_sealed(path, repair(folder)).get("shards")
    return {str(key): list(value) for key, value in shards_.items()} if isinstance(shards_, dict) else {}


def _write_retried(folder: Path, retried: Mapping[str, list[str]]) -> None:
    if retried or (folder / RETRIED).exists():
        digests.write_sealed({"shards": retried}, folder / RETRIED)


# Changed images.


# File with the content hashes of training and validation images.
TRAINING = "training.parquet"
Say = Callable[[str], None]


def renewed(
    folder: Path,
    plan: Plan,
    samples: PackedSamples,
    listed: pl.DataFrame,
    moved: str,
    say: Say,
    lazy: bool = False,
) -> pl.DataFrame:
    """Return the manifest of a run folder with the current content of its samples.

    Results of changed samples are moved away, so that they are computed again.

    Args:
        folder: The run folder.
        plan: The plan.
        samples: The samples in the order of the manifest.
        listed: The manifest.
        moved: Describes the former path of the images if it was another one; then all images must be known to
            be unchanged.
        say: Called with notices.
        lazy: Read no file whose hash is not known yet.

    Raises:
        SoritesError: The images were moved and are not known to be the same.
    """
    stored = contents_of(listed)
    current = contents(samples, stored, lazy=lazy)
    changed_indices = _changed_rows(stored, current)
    changed_samples = samples.take(changed_indices)
    if moved:
        unhashed = stored["content"].is_null() | current["content"].is_null()
        if lazy:  # files that are not hashed yet have the same size and time, or they have changed
            unhashed &= current["bytes"].is_null()
        unknown = int(unhashed.sum())
        if changed_indices or unknown:
            raise SoritesError(
                f"{folder} contains another run ({moved}): {len(changed_samples) or unknown} of its"
                f" {len(samples)}"
                f" images are not known to be the same at both paths. Choose another {option('out', 'DIR')}."
            )
    if changed_indices:
        facts = redo_changed(folder, plan, changed_samples)
        facts_text = f"; these facts about them must be measured again: {', '.join(facts)}" if facts else ""
        say(
            f"{len(changed_samples)} of {len(samples)} images have changed since {folder} was evaluated and"
            " are"
            f" evaluated again{facts_text}"
        )
    return listed.drop(COLUMNS.names(), strict=False).hstack(current)


def check_training(folder: Path, plan: Plan) -> dict[str, str]:
    """Write the content hashes of training and validation images, if they are new.

    Returns:
        The digest of the file, by name, if it was written.

    Raises:
        SoritesError: Images have changed; every fitted score depends on all of them.
    """
    kinds = (("training", plan.fit), ("validation", plan.validation), ("OOD validation", plan.ood))
    images = [(kind, sample) for kind, samples in kinds for sample in samples]
    if not images:
        return {}
    keys = pl.DataFrame(
        {"kind": [kind for kind, _ in images], "sample_id": [sample.id for _, sample in images]}
    )
    samples = [sample for _, sample in images]
    before = _read_training(folder, keys, samples)
    stored = _contents_if_same(before, keys)
    current = contents(samples, stored)
    changed_indices = [] if stored is None else _changed_rows(stored, current)
    if changed_indices:
        kind, sample = images[changed_indices[0]]
        raise SoritesError(
            f"{len(changed_indices)} images that the scorers of {folder} were fitted on have changed, first"
            f" the {kind} image {sample.id}. Choose another {option('out', 'DIR')}."
        )
    updated = keys.hstack(current)
    if before is not None and updated.equals(before):
        return {}
    return {TRAINING: write_listed(folder / RUN, TRAINING, parquet(updated))}


def _read_training(folder: Path, keys: pl.DataFrame, samples: Sequence[Sample]) -> pl.DataFrame | None:
    """Return the stored hashes; a damaged file is recreated, provided that no image has changed."""
    if not is_listed(folder / RUN, TRAINING):
        return None
    path = folder / TRAINING
    try:
        return parse(read_listed(folder / RUN, TRAINING, ANOTHER), path, COLUMNS, keys.columns, ANOTHER)
    except Damaged:
        recreated = keys.hstack(contents(samples))
        data = parquet(recreated)
        if digests.digest_of(data) not in listed_files(folder / RUN)[TRAINING]:
            raise
        write_listed(folder / RUN, TRAINING, data)
        return recreated


def _contents_if_same(before: pl.DataFrame | None, keys: pl.DataFrame) -> pl.DataFrame | None:
    """Return the stored contents if they are about the same images."""
    same = before is not None and before.select("kind", "sample_id").equals(keys)
    return contents_of(before) if same and before is not None else None


def _changed_rows(stored: pl.DataFrame, current: pl.DataFrame) -> list[int]:
    pairs = zip(stored.iter_rows(named=True), current.iter_rows(named=True), strict=True)
    return [index for index, (before, after) in enumerate(pairs) if changed(before, after)]


def guard(plan: Plan, listed: pl.DataFrame) -> Plan:
    """Return the plan with samples that cannot be decoded if they have changed since the run."""
    find = _finder(listed.select(*_KEY, *COLUMNS.names()))

    def change(sample: Sample) -> Sample:
        row = find(_content_key(_about(plan, sample)))
        return sample if row is None else guard_sample(sample, row)

    return with_changed(plan, change)


# Up to this many rows of a manifest are indexed by a dict, which is fastest; beyond, it would take gigabytes.
MAX_DICT_ROWS = 1_000_000


def _finder(rows_: pl.DataFrame) -> Callable[[tuple[Any, ...]], Mapping[str, Any] | None]:
    """Return a function that finds the row of a key, or None."""
    if rows_.height <= MAX_DICT_ROWS:
        return {_content_key(row): row for row in rows_.iter_rows(named=True)}.get
    by_sample_id = _ByText(rows_["sample_id"])

    def find(key: tuple[Any, ...]) -> Mapping[str, Any] | None:
        rows = (
            rows_.row(index, named=True)
            for index in reversed(by_sample_id.places(key[_KEY.index("sample_id")]))
        )
        return next((row for row in rows if _content_key(row) == key), None)

    return find


class _ByText:
    """Finds the indices of texts in a column by hash; for many texts this takes less memory than a dict."""

    def __init__(self, texts: pl.Series) -> None:
        hashes = texts.hash().to_numpy()
        self._texts, self._order = texts, np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def places(self, text: str) -> list[int]:
        """Return the indices of a text, in order."""
        hash_ = pl.Series([text], dtype=pl.String).hash()[0]
        low, high = (np.searchsorted(self._hashes, np.uint64(hash_), side) for side in ("left", "right"))
        return [index for index in self._order[low:high].tolist() if self._texts[index] == text]


_KEY = ("source", "sample_id", "shift", "severity", "params")


def _content_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _about(plan: Plan, sample: Sample) -> dict[str, Any]:
    params = json.dumps(dict(sample.setting.params), sort_keys=True)
    severity = sample.setting.severity
    return dict(zip(_KEY, (plan.source_of(sample), sample.id, sample.shift, severity, params), strict=True))


def contents_of(listed: pl.DataFrame) -> pl.DataFrame:
    """Return the content columns of a manifest."""
    return listed.select(COLUMNS.names())
