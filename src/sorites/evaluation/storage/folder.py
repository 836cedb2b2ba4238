"""A run on disk: metadata (``run.json``), samples (``manifest.parquet``), and the check that a folder belongs
to a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN, Attr, Sample
from sorites.core.errors import Damaged, IncompatibleRun, SoritesError
from sorites.core.labels import BUILT_IN
from sorites.core.messages import option
from sorites.core.packed import SAMPLES_PER_BLOCK, PackedSamples, concatenate
from sorites.core.shard_index import PARQUET, PREDICTIONS
from sorites.core.table import SCHEMA, parquet, parse
from sorites.evaluation.plan import Plan
from sorites.evaluation.resume import TRAINING, Say, check_training, renewed
from sorites.evaluation.storage.contents import COLUMNS, contents
from sorites.evaluation.storage.record import places_of, read_record, write_record
from sorites.evaluation.storage.schema import (
    ASIDE,
    SAMPLES_PER_UNIT,
    RunRecord,
    difference,
    first_difference,
    same_run,
)
from sorites.io import digests
from sorites.io.files import is_temporary, locked
from sorites.io.listed import ANOTHER, RUN, listed_files, read_listed, write_listed
from sorites.io.stores import to_path

# The list of the samples.
MANIFEST_FILE = "manifest.parquet"
# Up to this many images are hashed before a run starts, which takes about a second. Of more, only size and
# time are noted, and tasks hash the images that they decode.
MAX_HASHED_FIRST = 4096
# Files of a run that was killed before it wrote ``run.json``.
EARLY_FILES = ("run.lock", MANIFEST_FILE, TRAINING)

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


def with_stored_slices(folder: Path, plan: Plan) -> Plan:
    """Return the plan with the slice size of the run folder, if it exists."""
    begun = (folder / RUN).exists()
    return replace(plan, slice=read_record(folder).slice) if begun else plan


def read_manifest(run: str | Path) -> pl.DataFrame:
    """Read ``manifest.parquet`` of a run folder.

    Raises:
        Damaged: It does not match its digest.
    """
    folder, remedy = to_path(run), f"Repeat the run, which recreates it from unchanged images. {ANOTHER}"
    data = read_listed(folder / RUN, MANIFEST_FILE, remedy)
    return parse(data, folder / MANIFEST_FILE, MANIFEST, MANIFEST.names(), remedy)


@contextmanager
def open_run(
    folder: Path, plan: Plan, record: RunRecord, say: Say = lambda text: None
) -> Iterator[RunRecord]:
    """Lock a run folder for a plan and yield its record.

    A new folder is created. Results of images that have changed are moved away, and ``say`` is called.

    Args:
        folder: The run folder.
        plan: The plan.
        record: What ``describe`` returns for the plan.
        say: Called with notices.

    Raises:
        SoritesError: The folder belongs to another plan or is used by another process.
    """
    with locked(folder):
        yield _claim(folder, plan, record, say)


def _claim(folder: Path, plan: Plan, described: RunRecord, say: Say) -> RunRecord:
    """Create or update ``run.json`` and the manifest, and return the record."""
    record = _with_descriptions(folder, plan, described)
    manifest = manifest_of(plan)
    if (folder / RUN).exists():
        record = _resume(folder, plan, record, manifest, say)
    elif any(path.name not in EARLY_FILES and not is_temporary(path) for path in folder.iterdir()):
        raise SoritesError(f"{folder} is not empty and not a run folder; {_CHOOSE_ANOTHER}")
    else:
        samples = parquet(manifest.hstack(contents(listed_samples(plan), lazy=is_large(plan))))
        files = {
            MANIFEST_FILE: write_listed(folder / RUN, MANIFEST_FILE, samples),
            **check_training(folder, plan),
        }
        record = record.having(files={name: (digest,) for name, digest in files.items()})
    write_record(folder, record)
    return record


def _with_descriptions(folder: Path, plan: Plan, described: RunRecord) -> RunRecord:
    """Return the record with the fields that do not affect results.

    They include the paths of the suite's files, and the classes if a file names them, so that the folder can
    be read elsewhere.
    """
    models = plan.models.items()
    record = described.having(
        parameters={name: model.parameters for name, model in models},
        places=places_of(plan.suite, folder),
        answers={name: len(columns.labels) for name, columns in plan.columns.items()},
        inputs={name: dict(model.input) for name, model in models},
    )
    from_file = isinstance(plan.suite.labels, str) and plan.suite.labels not in BUILT_IN
    optional: dict[str, Any] = {
        "classes": tuple(plan.labels.ids) if from_file else (),
        "not_repeating": tuple(name for name, model in models if not model.repeats),
        "slice": plan.slice if plan.slice != SAMPLES_PER_UNIT else None,
        "limited": {name: tuple(counts) for name, counts in plan.limited.items()},
    }
    return record.having(**{key: value for key, value in optional.items() if value})


def _resume(folder: Path, plan: Plan, record: RunRecord, manifest: pl.DataFrame, say: Say) -> RunRecord:
    """Check that a folder belongs to this run, update its manifest, and return the updated record."""
    before = read_record(folder)
    _refuse_other(folder, before, record)
    listed = _read_or_recreate(folder, plan, manifest)
    if not listed.drop(COLUMNS.names()).equals(manifest):
        raise IncompatibleRun(
            folder, f"{folder} was created from other samples than {plan.source} has now; {_CHOOSE_ANOTHER}"
        )
    moved = _moved(before, record)
    check_training(folder, plan)
    current = renewed(folder, plan, listed_samples(plan), listed, moved, say, lazy=is_large(plan))
    if not current.equals(listed):
        write_listed(folder / RUN, MANIFEST_FILE, parquet(current))
    suite = record.suite
    earlier = {key: getattr(suite, key) or getattr(before.suite, key) for key in ASIDE}
    kept: dict[str, Any] = {"scored": before.scored} if before.scored else {}
    if groups := tuple(dict.fromkeys((*before.groups, *record.groups))):
        kept["groups"] = groups
    first = {"first_places": before.first()} if moved or before.first_places else {}
    elsewhere = tuple(place for place in before.ran_on if place not in record.ran_on)
    kept |= {"ran_on": (*elsewhere, *record.ran_on)}
    return record.having(run_id=before.run_id, suite=suite.model_copy(update=earlier), **kept, **first)


def _read_or_recreate(folder: Path, plan: Plan, manifest: pl.DataFrame) -> pl.DataFrame:
    """Read the manifest of a run; if it is damaged, recreate it, provided that no image has changed."""
    try:
        return read_manifest(folder)
    except Damaged:
        # A run that was interrupted has no hashes yet.
        for lazy in (True, False) if is_large(plan) else (False,):
            recreated = manifest.hstack(contents(listed_samples(plan), lazy=lazy))
            data = parquet(recreated)
            if digests.digest_of(data) in listed_files(folder / RUN).get(MANIFEST_FILE, ()):
                write_listed(folder / RUN, MANIFEST_FILE, data)
                return recreated
        raise


def _moved(before: RunRecord, now: RunRecord) -> str:
    """Describe the first source that has moved, with both paths; empty if none has."""
    there, here = (
        record.suite.model_dump(mode="json", include={"source", "sources", "fit"}) for record in (before, now)
    )
    same = before.run_id == now.run_id or there == here
    return "" if same else first_difference(there, here, "suite")


def _refuse_other(folder: Path, before: RunRecord, now: RunRecord) -> None:
    differs = "" if same_run(before, now) else difference(before, now)
    stored, requested = before.suite.refine, now.suite.refine
    if stored and requested and stored != requested:
        differs = differs or f"refine: {stored} there, {requested} here"
    if differs:
        empty = not digests.shards_in(folder / PREDICTIONS, PARQUET)
        advice = "It has no predictions yet: delete it, or choose" if empty else "Choose"
        message = f"{folder} contains another run ({differs}). {advice} another {option('out', 'DIR')}."
        raise IncompatibleRun(folder, message, differs=differs)


def is_large(plan: Plan) -> bool:
    """Return whether the images of a plan are hashed by its tasks instead of before the run."""
    counts = (len(g) for name, g in plan.groups.items() if name == CLEAN or name not in plan.shifts)
    return sum(counts) > MAX_HASHED_FIRST


def record_hashes(folder: Path, found: Mapping[int, tuple[int | None, int | None, str | None]]) -> None:
    """Add hashes to the manifest; the caller holds the lock.

    A hash is added only if size and time are those of the start of the run. An image that has changed since
    is then evaluated again by the next run.

    Args:
        folder: The run folder.
        found: Size, time and hash by position in the manifest.
    """
    listed = read_manifest(folder)
    known, times = listed["content"].to_list(), listed.select("bytes", "modified").rows()
    for place, (size, modified, content) in found.items():
        if known[place] is None and times[place] == (size, modified):
            known[place] = content
    updated = listed.with_columns(pl.Series("content", known, pl.String))
    if not updated.equals(listed):
        write_listed(folder / RUN, MANIFEST_FILE, parquet(updated))


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
    columns: dict[str, Any] = {name: [record[name] for record in records] for name in MANIFEST}
    columns["attrs"] = _attrs_column([sample.attrs for sample in samples])
    listed = pl.DataFrame(columns, schema=MANIFEST)
    if not plan.own:
        return listed
    dials = [[dial.name for dial in sample.dials if dial.name in plan.own] for sample in samples]
    return listed.with_columns(pl.Series(DIALS, dials, pl.List(pl.String)))


def _attrs_column(attrs: Sequence[tuple[Attr, ...]]) -> pl.Series:
    """Return lists of attributes as a column; from Python lists, polars would make a series of each."""
    lists: pl.DataType = MANIFEST["attrs"]
    flat = [(row, attr.key, attr.value, attr.common) for row, own in enumerate(attrs) for attr in own]
    schema = {"row": pl.Int64, "key": pl.String, "value": pl.String, "common": pl.Boolean}
    grouped = (
        pl.DataFrame(flat, schema, orient="row")
        .group_by("row", maintain_order=True)
        .agg(attrs=pl.struct("key", "value", "common"))
    )
    rows = pl.DataFrame({"row": pl.int_range(len(attrs), dtype=pl.Int64, eager=True)})
    joined = rows.join(grouped, on="row", how="left", maintain_order="left")
    return joined.select(pl.col("attrs").cast(lists).fill_null(pl.lit([], lists)))["attrs"]


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
        "attrs": None,  # see _attrs_column
        "shift": sample.shift,
        "severity": sample.setting.severity,
        "params": json.dumps(dict(sample.setting.params), sort_keys=True),
        "level": sample.setting.level,
        "image_id": sample.image_id,
        "framed": sample.framed,
    }
