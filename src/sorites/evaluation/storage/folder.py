"""A run on disk: what it is (``run.json``), what it looks at (``manifest.parquet``), and whose it is."""

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
from sorites.core.packed import TOGETHER, PackedSamples, joined
from sorites.core.table import SCHEMA, read_file, write
from sorites.evaluation.plan import SLICE, Plan
from sorites.evaluation.resume import ANOTHER, TRAINING, Say, check_training, renewed
from sorites.evaluation.storage.contents import COLUMNS, contents
from sorites.evaluation.storage.record import ASIDE, Info, checked_info, describe, places_of
from sorites.io.files import is_temporary, locked, read_json, write_bytes
from sorites.io.stores import place
from sorites.suites.suite import Suite

# Keep the first places of a run's images: its id follows from the specs of that time, and stays when
# images move.


# The key of ``run.json`` that keeps the first specs of sources that have moved since.
KEY = "first_places"


def first_places(before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specs of a run's sources as they were when it began."""
    suite = before["suite"]
    now = {
        "source": suite.get("source"),
        "sources": [entry.get("spec") for entry in suite.get("sources") or ()],
        "fit": (suite.get("fit") or {}).get("source"),
    }
    return {**now, **(before.get(KEY) or {})}


def at_first_places(suite: Suite, before: Mapping[str, Any]) -> Suite:
    """Return the suite with its sources where a run had them first, as far as the same readers read them."""
    then = first_places(before)
    entries = [
        entry.model_copy(update={"spec": _former(entry.spec, spec)})
        for entry, spec in zip(suite.sources, [*then["sources"], *[None] * len(suite.sources)], strict=False)
    ]
    changed: dict[str, Any] = {"source": _former(suite.source, then["source"]), "sources": tuple(entries)}
    if suite.fit is not None:
        changed["fit"] = suite.fit.model_copy(update={"source": _former(suite.fit.source, then["fit"])})
    return suite.model_copy(update=changed)


def _former(spec: str, then: Any) -> str:
    return then if isinstance(then, str) and split_spec(then)[0] == split_spec(spec)[0] else spec


# Files that a run leaves behind if it is killed before it writes its ``run.json``.
BEFORE = ("run.lock", "manifest.parquet", TRAINING)

# Keys of ``run.json`` that are no causes of numbers.
TOLD = (
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
    "source", "split", "sample_id", "label", "accept", "attrs", "shift", "severity", "params", "level", "image_id",
)  # fmt: skip
# Columns of the manifest, before those of the samples' content; ``image_id`` only where the source
# brings one.
MANIFEST = pl.Schema([*((name, SCHEMA[name]) for name in _COLUMNS), ("framed", pl.Boolean())])

# The column of a manifest that names the dials of a sample's own which the run turns; only where it
# turns such.
DIALS = "dials"


def read_info(run: str | Path) -> Info:
    """Read ``run.json`` of a run folder."""
    path = place(run) / "run.json"
    if not path.exists():
        raise SoritesError(
            f'{run} is not a run folder: it has no run.json. Make one with "sorites run SUITE".'
        )
    try:
        return checked_info(read_json(path))
    except SoritesError as error:
        raise SoritesError(f"cannot read {path}: {error}. {ANOTHER}") from error


# The file that a built dataset keeps in the place of ``run.json``.
DATASET_INFO = "sorites.json"


def read_dataset_info(folder: Path) -> Info:
    """Read what a built dataset says of itself; nothing where it cannot be read."""
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
    """Return how many samples a unit of a run takes; folders that do not say so have the usual number."""
    return int(info.get("slice", SLICE))


def as_begun(folder: Path, plan: Plan) -> Plan:
    """Return the plan with the units that the folder began with, where it is a run folder already."""
    begun = (folder / "run.json").exists()
    return replace(plan, slice=slice_of(read_info(folder))) if begun else plan


def write_info(folder: Path, info: Mapping[str, Any]) -> None:
    write_bytes(json.dumps(info, indent=1).encode(), folder / "run.json")


def read_manifest(run: str | Path) -> pl.DataFrame:
    """Read ``manifest.parquet`` of a run folder."""
    return read_file(place(run) / "manifest.parquet", MANIFEST, MANIFEST.names(), ANOTHER)


@contextmanager
def opened(folder: Path, plan: Plan, info: Info, say: Say = lambda text: None) -> Iterator[Info]:
    """Hold the run folder for this plan alone and yield what its ``run.json`` says.

    A new folder is made; one that belongs to another plan or another process is refused. Where
    images have changed since, what was made of them is set aside, and ``say`` is told.
    """
    with locked(folder):
        yield _claim(folder, plan, info, say)


def _claim(folder: Path, plan: Plan, described: Info, say: Say) -> Info:
    sizes = {name: model.parameters for name, model in plan.models.items()}
    info = {**described, "suite": dict(described["suite"]), "parameters": sizes, **_at_hand(folder, plan)}
    info |= {"inputs": {name: dict(model.input) for name, model in plan.models.items()}}
    info |= (
        {"not_repeating": names}
        if (names := [n for n, model in plan.models.items() if not model.repeats])
        else {}
    )
    info |= {"slice": plan.slice} if plan.slice != SLICE else {}
    info |= {"limited": {name: list(counts) for name, counts in plan.limited.items()}} if plan.limited else {}
    manifest = manifest_of(plan)
    if (folder / "run.json").exists():
        before = read_info(folder)
        _refuse_other(folder, before, info, plan)
        info["run_id"] = before["run_id"]
        info |= {"scored": before["scored"]} if "scored" in before else {}
        for key in ASIDE:
            info["suite"][key] = info["suite"][key] or before["suite"].get(key)
        listed = read_manifest(folder)
        if not listed.drop(COLUMNS.names()).equals(manifest):
            raise SoritesError(
                f"{folder} was made from other samples than {plan.source} holds now; choose another --out DIR"
            )
        moved = _moved(before, described)
        check_training(folder, plan)
        now = renewed(folder, plan, listed_samples(plan), listed, moved, say)
        if not now.equals(listed):
            write(now, folder / "manifest.parquet")
        info |= {KEY: first_places(before)} if moved or KEY in before else {}
    elif any(path.name not in BEFORE and not is_temporary(path) for path in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty and not a run folder; choose another --out DIR")
    else:
        write(manifest.hstack(contents(listed_samples(plan))), folder / "manifest.parquet")
        check_training(folder, plan)
    write_info(folder, info)
    return info


def _at_hand(folder: Path, plan: Plan) -> Info:
    """Return what makes the folder readable from elsewhere: where the suite's files stand, and
    classes that a file names.
    """
    from_file = isinstance(plan.suite.labels, str) and plan.suite.labels not in BUILT_IN
    return {
        "places": places_of(plan.suite, folder),
        **({"classes": list(plan.labels.ids)} if from_file else {}),
    }


def same_run(before: Info, info: Info, plan: Plan, wherever: bool = False) -> bool:
    """Return whether a folder holds this run.

    With ``wherever`` its images may lie elsewhere than when it began: that they are the same is
    for the caller to see.
    """
    same = bool(before["run_id"] == info["run_id"])
    if same or not wherever:
        return same
    there = replace(plan, suite=at_first_places(plan.suite, before))
    return bool(before["run_id"] == describe(there)["run_id"])


def _moved(before: Info, info: Info) -> str:
    """Name the first source that lies elsewhere than before, with both places; empty where none does."""
    keys = ("source", "sources", "fit")
    there, here = ({key: one["suite"].get(key) for key in keys} for one in (before, info))
    only_places = before["run_id"] != info["run_id"]
    return _difference(there, here, "suite") if only_places and there != here else ""


def _refuse_other(folder: Path, before: Info, info: Info, plan: Plan) -> None:
    differs = None if same_run(before, info, plan, wherever=True) else _why_other(before, info)
    then, now = before["suite"].get("refine"), info["suite"]["refine"]
    if then and now and then != now:
        differs = differs or f"refine: {then} there, {now} here"
    if differs:
        empty = not any((folder / "predictions").glob("*.parquet"))
        what = "It has no predictions yet: delete it, or choose" if empty else "Choose"
        raise SoritesError(f"{folder} holds another run ({differs}). {what} another --out DIR.")


def _why_other(before: Info, now: Info) -> str:
    """Name the models whose versions differ, or else the first key that does."""
    models = now["models"]
    changed = [
        name for name, version in before["models"].items() if name in models and models[name] != version
    ]
    if changed:
        versions = "; ".join(
            f"{name}: version {before['models'][name][:12]} there, {models[name][:12]} here"
            for name in changed
        )
        return f"the models have changed since, by their weights, files or answers: {versions}"
    return _difference(before, now)


def _difference(there: Any, here: Any, where: str = "") -> str:
    """Name the first key whose value is not the same, with both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in sorted({*there, *here} - {*TOLD, KEY, *ASIDE}):
            if there.get(key) != here.get(key):
                return _difference(there.get(key), here.get(key), f"{where}.{key}".strip("."))
    return f"{where}: {json.dumps(there)} there, {json.dumps(here)} here"


def listed_samples(plan: Plan) -> PackedSamples:
    """List the samples of a plan in the order of its manifest: those that are clean, and those that
    came shifted.
    """
    return joined([group for name, group in plan.groups.items() if name == CLEAN or name not in plan.shifts])


def manifest_of(plan: Plan) -> pl.DataFrame:
    """One row per sample, or per image where the source brings it already shifted."""
    samples = listed_samples(plan)
    parts = [
        _manifest_part(plan, samples[start : start + TOGETHER])
        for start in range(0, max(1, len(samples)), TOGETHER)
    ]
    return pl.concat(parts)


def _manifest_part(plan: Plan, samples: PackedSamples) -> pl.DataFrame:
    records = [_manifest_row(plan, sample) for sample in samples]
    columns = {name: [record[name] for record in records] for name in MANIFEST}
    listed = pl.DataFrame(columns, schema=MANIFEST)
    if not plan.own:
        return listed
    held = [[dial.name for dial in sample.dials if dial.name in plan.own] for sample in samples]
    return listed.with_columns(pl.Series(DIALS, held, pl.List(pl.String)))


def sampled_by(manifest: pl.DataFrame, shift: str) -> pl.DataFrame:
    """Return the rows of a manifest that a made shift starts from: the clean ones, or those that
    have it as their own dial.
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
