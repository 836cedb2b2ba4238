"""A run on disk: metadata (``run.json``), samples (``manifest.parquet``), and the check that a folder belongs
to a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN, Sample, split_spec
from sorites.core.errors import SoritesError
from sorites.core.labels import BUILT_IN
from sorites.core.messages import command, option
from sorites.core.packed import SAMPLES_PER_BLOCK, PackedSamples, concatenate
from sorites.core.table import SCHEMA, read_file, write
from sorites.evaluation.plan import SAMPLES_PER_UNIT, Plan
from sorites.evaluation.resume import ANOTHER, TRAINING, Say, check_training, renewed
from sorites.evaluation.storage.contents import COLUMNS, contents
from sorites.evaluation.storage.record import ASIDE, Info, checked_info, describe, places_of
from sorites.io.files import is_temporary, locked, read_json, write_bytes
from sorites.io.stores import to_path
from sorites.suites.suite import Suite

# Original paths: the run id depends on the specs of the first run and stays the same when images move.


# Key of ``run.json`` with the original specs of sources that have moved.
KEY = "first_places"


def first_places(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specs of a run's sources when it was created."""
    suite = before["suite"]
    specs = {
        "source": suite.get("source"),
        "sources": [entry.get("spec") for entry in suite.get("sources") or ()],
        "fit": (suite.get("fit") or {}).get("source"),
    }
    return {**specs, **(before.get(KEY) or {})}


def at_first_places(suite: Suite, before: Mapping[str, Any]) -> Suite:
    """Return the suite with its sources at the original paths of a run, if the readers are the same."""
    original = first_places(before)
    entries = [
        entry.model_copy(update={"spec": _original_spec(entry.spec, spec)})
        for entry, spec in zip(
            suite.sources, [*original["sources"], *[None] * len(suite.sources)], strict=False
        )
    ]
    changed: dict[str, Any] = {
        "source": _original_spec(suite.source, original["source"]),
        "sources": tuple(entries),
    }
    if suite.fit is not None:
        changed["fit"] = suite.fit.model_copy(
            update={"source": _original_spec(suite.fit.source, original["fit"])}
        )
    return suite.model_copy(update=changed)


def _original_spec(spec: str, then: Any) -> str:
    return then if isinstance(then, str) and split_spec(then)[0] == split_spec(spec)[0] else spec


# Files of a run that was killed before it wrote ``run.json``.
EARLY_FILES = ("run.lock", "manifest.parquet", TRAINING)

# Keys of ``run.json`` that do not affect results.
DESCRIPTIVE_KEYS = (
    "run_id",
    "parameters",
    "inputs",
    "scored",
    "not_repeating",
    "limited",
    "places",
    "classes",
    "ran_on",
    "slice",
)

_COLUMNS = (
    "source", "split", "sample_id", "label", "accept", "attrs", "shift", "severity", "params", "level",
    "image_id",
)  # fmt: skip
_CHOOSE_ANOTHER = f"choose another {option('out', 'DIR')}"

# Columns of the manifest, followed by those of the samples' content; ``image_id`` is null unless the source
# has one.
MANIFEST = pl.Schema([*((name, SCHEMA[name]) for name in _COLUMNS), ("framed", pl.Boolean())])

# Column of a manifest with the dials of a sample that the run uses; present only if there are any.
DIALS = "dials"


def read_info(run: str | Path) -> Info:
    """Read ``run.json`` of a run folder.

    Raises:
        SoritesError: It does not exist or is invalid.
    """
    path = to_path(run) / "run.json"
    if not path.exists():
        raise SoritesError(
            f"{run} is not a run folder: it has no run.json. Create one with {command('run', 'SUITE')}"
        )
    try:
        return checked_info(read_json(path))
    except SoritesError as error:
        raise SoritesError(f"cannot read {path}: {error}. {ANOTHER}") from error


# Metadata file of a built dataset, instead of ``run.json``.
DATASET_INFO = "sorites.json"


def read_dataset_info(folder: Path) -> Info:
    """Read the metadata of a built dataset; an empty run id if it cannot be read."""
    try:
        info = read_json(folder / DATASET_INFO)
    except SoritesError:
        return {"run_id": ""}
    typed = (
        isinstance(info, dict)
        and isinstance(info.get("run_id"), str)
        and isinstance(info.get("versions", {}), dict)
    )
    return info if typed else {"run_id": ""}


def slice_of(info: Mapping[str, Any]) -> int:
    """Return the number of samples per slice of a run; old folders do not store it and have the default."""
    return int(info.get("slice", SAMPLES_PER_UNIT))


def with_stored_slices(folder: Path, plan: Plan) -> Plan:
    """Return the plan with the slice size of the run folder, if it exists."""
    begun = (folder / "run.json").exists()
    return replace(plan, slice=slice_of(read_info(folder))) if begun else plan


def write_info(folder: Path, info: Mapping[str, Any]) -> None:
    write_bytes(json.dumps(info, indent=1).encode(), folder / "run.json")


def read_manifest(run: str | Path) -> pl.DataFrame:
    """Read ``manifest.parquet`` of a run folder."""
    return read_file(to_path(run) / "manifest.parquet", MANIFEST, MANIFEST.names(), ANOTHER)


@contextmanager
def open_run(folder: Path, plan: Plan, info: Info, say: Say = lambda text: None) -> Iterator[Info]:
    """Lock a run folder for a plan and yield the content of its ``run.json``.

    A new folder is created. Results of images that have changed are moved away, and ``say`` is called.

    Raises:
        SoritesError: The folder belongs to another plan or is used by another process.
    """
    with locked(folder):
        yield _claim(folder, plan, info, say)


def _claim(folder: Path, plan: Plan, described: Info, say: Say) -> Info:
    """Create or update ``run.json`` and the manifest, and return the content of ``run.json``."""
    info = _info_of(folder, plan, described)
    manifest = manifest_of(plan)
    if (folder / "run.json").exists():
        info |= _resume(folder, plan, info, described, manifest, say)
    elif any(path.name not in EARLY_FILES and not is_temporary(path) for path in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty and not a run folder; {_CHOOSE_ANOTHER}")
    else:
        write(manifest.hstack(contents(listed_samples(plan))), folder / "manifest.parquet")
        check_training(folder, plan)
    write_info(folder, info)
    return info


def _info_of(folder: Path, plan: Plan, described: Info) -> Info:
    """Return the content of a new ``run.json``."""
    models = plan.models.items()
    not_repeating = [name for name, model in models if not model.repeats]
    limited = {name: list(counts) for name, counts in plan.limited.items()}
    return {
        **described,
        "suite": dict(described["suite"]),
        "parameters": {name: model.parameters for name, model in models},
        **_portable_info(folder, plan),
        "inputs": {name: dict(model.input) for name, model in models},
        **({"not_repeating": not_repeating} if not_repeating else {}),
        **({"slice": plan.slice} if plan.slice != SAMPLES_PER_UNIT else {}),
        **({"limited": limited} if limited else {}),
    }


def _resume(folder: Path, plan: Plan, info: Info, described: Info, manifest: pl.DataFrame, say: Say) -> Info:
    """Check that a folder belongs to this run, update its manifest, and return the keys of ``run.json`` to
    keep.
    """
    before = read_info(folder)
    _refuse_other(folder, before, info, plan)
    listed = read_manifest(folder)
    if not listed.drop(COLUMNS.names()).equals(manifest):
        raise SoritesError(
            f"{folder} was created from other samples than {plan.source} has now; {_CHOOSE_ANOTHER}"
        )
    moved = _moved(before, described)
    check_training(folder, plan)
    current = renewed(folder, plan, listed_samples(plan), listed, moved, say)
    if not current.equals(listed):
        write(current, folder / "manifest.parquet")
    suite = info["suite"]
    return {
        "run_id": before["run_id"],
        "suite": {**suite, **{key: suite[key] or before["suite"].get(key) for key in ASIDE}},
        **({"scored": before["scored"]} if "scored" in before else {}),
        **({KEY: first_places(before)} if moved or KEY in before else {}),
    }


def _portable_info(folder: Path, plan: Plan) -> Info:
    """Return the paths of the suite's files, and the classes if a file names them, so that the folder can be
    read elsewhere.
    """
    from_file = isinstance(plan.suite.labels, str) and plan.suite.labels not in BUILT_IN
    return {
        "places": places_of(plan.suite, folder),
        **({"classes": list(plan.labels.ids)} if from_file else {}),
    }


def same_run(before: Info, info: Info, plan: Plan, wherever: bool = False) -> bool:
    """Return whether a folder belongs to this run.

    With ``wherever``, its images may have moved; the caller must check that they are the same.
    """
    same = bool(before["run_id"] == info["run_id"])
    if same or not wherever:
        return same
    original = replace(plan, suite=at_first_places(plan.suite, before))
    return bool(before["run_id"] == describe(original)["run_id"])


def _moved(before: Info, info: Info) -> str:
    """Describe the first source that has moved, with both paths; empty if none has."""
    keys = ("source", "sources", "fit")
    there, here = ({key: metadata["suite"].get(key) for key in keys} for metadata in (before, info))
    only_places = before["run_id"] != info["run_id"]
    return _difference(there, here, "suite") if only_places and there != here else ""


def _refuse_other(folder: Path, before: Info, info: Info, plan: Plan) -> None:
    differs = None if same_run(before, info, plan, wherever=True) else _describe_difference(before, info)
    stored, requested = before["suite"].get("refine"), info["suite"]["refine"]
    if stored and requested and stored != requested:
        differs = differs or f"refine: {stored} there, {requested} here"
    if differs:
        empty = not any((folder / "predictions").glob("*.parquet"))
        advice = "It has no predictions yet: delete it, or choose" if empty else "Choose"
        raise SoritesError(
            f"{folder} contains another run ({differs}). {advice} another {option('out', 'DIR')}."
        )


def _describe_difference(before: Info, now: Info) -> str:
    """Describe the models whose versions differ, or else the first key that differs."""
    models = now["models"]
    changed = [
        name for name, version in before["models"].items() if name in models and models[name] != version
    ]
    if changed:
        versions = "; ".join(
            f"{name}: version {before['models'][name][:12]} there, {models[name][:12]} here"
            for name in changed
        )
        return f"the models have changed (weights, files or outputs): {versions}"
    return _difference(before, now)


def _difference(there: Any, here: Any, where: str = "") -> str:
    """Describe the first key whose value differs, with both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here} - {*DESCRIPTIVE_KEYS, KEY, *ASIDE}):
            if there.get(key) != here.get(key):
                return _difference(there.get(key), here.get(key), f"{where}.{key}".strip("."))
    return f"{where}: {json.dumps(there)} there, {json.dumps(here)} here"


def listed_samples(plan: Plan) -> PackedSamples:
    """Return the samples of a plan in the order of its manifest: clean ones, then captured shifts."""
    return concatenate(
        [group for name, group in plan.groups.items() if name == CLEAN or name not in plan.shifts]
    )


def manifest_of(plan: Plan) -> pl.DataFrame:
    """Return the manifest of a plan: one row per sample, or per image of a captured shift."""
    samples = listed_samples(plan)
    parts = [
        _manifest_part(plan, samples[start : start + SAMPLES_PER_BLOCK])
        for start in range(0, max(1, len(samples)), SAMPLES_PER_BLOCK)
    ]
    return pl.concat(parts)


def _manifest_part(plan: Plan, samples: PackedSamples) -> pl.DataFrame:
    records = [_manifest_row(plan, sample) for sample in samples]
    columns = {name: [record[name] for record in records] for name in MANIFEST}
    listed = pl.DataFrame(columns, schema=MANIFEST)
    if not plan.own:
        return listed
    dials = [[dial.name for dial in sample.dials if dial.name in plan.own] for sample in samples]
    return listed.with_columns(pl.Series(DIALS, dials, pl.List(pl.String)))


def sampled_by(manifest: pl.DataFrame, shift: str) -> pl.DataFrame:
    """Return the rows of a manifest that a shift is applied to: clean samples, or those that have it as their
    own dial.
    """
    clean = manifest.filter(pl.col("shift") == CLEAN)
    has = pl.col(DIALS).list.contains(shift) if DIALS in manifest.columns else pl.lit(False)
    own = clean.filter(has)
    return own if own.height else clean


def _manifest_row(plan: Plan, sample: Sample) -> dict[str, Any]:
    return {
        "source": plan.source_of(sample),
        "split": sample.split,
        "sample_id": sample.id,
        "label": sample.label,
        "accept": sorted(sample.right),
        "attrs": [vars(attr) for attr in sample.attrs],
        "shift": sample.shift,
        "severity": sample.setting.severity,
        "params": json.dumps(dict(sample.setting.params), sort_keys=True),
        "level": sample.setting.level,
        "image_id": sample.image_id,
        "framed": sample.framed,
    }
