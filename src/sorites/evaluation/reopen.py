"""Reopen a run folder: recreate its plan from ``run.json``, or its samples from the manifest if images are
missing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import Attr, Generated, ImageF32, ImageU8, OwnDial, Sample, Setting, Source, split_spec
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import BUILT_IN, Labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.evaluation import plan as plans
from sorites.evaluation.plan import Plan
from sorites.evaluation.resume import guard
from sorites.evaluation.storage.folder import DIALS, read_manifest
from sorites.evaluation.storage.record import candidates, read_record, respelled
from sorites.evaluation.storage.schema import DialRecord, RunRecord
from sorites.io.listed import RUN
from sorites.io.paths import is_file
from sorites.io.stores import to_path
from sorites.suites.suite import Suite

# Prefix of the names of attacks in the table.
ATTACKS = "apgd_"


def class_names(record: RunRecord) -> Labels | None:
    """Return the label space of a run: stored in ``run.json``, or from the file that it names if it has the
    same classes.

    None if that file has other classes.
    """
    spec = record.suite.labels
    if not isinstance(spec, str) or spec in BUILT_IN:
        return labels_of(spec)
    labels = None
    if not record.classes or spec.lower().endswith(".json"):
        # Only the file of groups says which classes are in them.
        with contextlib.suppress(SoritesError):
            labels = labels_of(spec)
    if labels is not None and digest(*labels.ids, size=8).hex() == record.labels:
        return labels
    return labels_of(record.classes) if record.classes else None


def plan_of(run: str | Path) -> Plan:
    """Recreate the plan of a run folder; the same source, frame, random draws and rounding give the same
    pixels.

    No model is loaded and no training image is listed. Images are searched relative to the run folder and at
    their absolute path; images that have changed cannot be decoded. If the images are not available, the
    samples come from the manifest, and decoding one raises an error that says why.
    """
    record = read_record(run)
    if record.attack is not None:
        raise SoritesError(_of_attack(run))
    images_only = record.suite.model_copy(update={"models": (), "fit": None})
    try:
        if record.imported is not None:
            raise SoritesError("it was imported from prediction files")
        if class_names(record) is None:
            raise SoritesError(f"{images_only.labels} is not the list of classes of the run")
        return guard(recreate_plan(to_path(run), record, images_only), read_manifest(run))
    except SoritesError as error:
        first, further = _from_manifest(run, images_only, record.dials, error)
        bare = images_only.model_copy(update={"labels": _classes(run, record)})
        return replace(plans.make(bare, first, further=further), slice=record.slice)


def refuse_attacks(suite: str | Path, shifts: Sequence[str] = ()) -> None:
    """Raise a ``SoritesError`` if an attack is used as a suite or shift; attacks depend on a model."""
    if is_file(Path(suite) / RUN) and read_record(suite).attack is not None:
        raise SoritesError(_of_attack(suite))
    for name in (name for name in shifts if name.startswith(ATTACKS)):
        raise SoritesError(
            f"{name} is an attack: it depends on a model and is not rounded to 8 bits, so it cannot be part"
            " of a"
            f" suite or dataset. Type: {command('attack', 'MODEL', eps='4/255,.1,.25')}"
        )


def _of_attack(run: str | Path) -> str:
    return (
        f"{run} is the run of an attack: its images were made against its models and were not stored. Read it"
        f" with {command('metrics', str(run))} and {command('report', str(run))}."
    )


def recreate_plan(folder: Path, record: RunRecord, suite: Suite | None = None) -> Plan:
    """Recreate the plan of a stored suite from its files where they are now: the paths with most of its
    samples.

    Args:
        folder: The run folder, or the folder of a dataset.
        record: Its record.
        suite: The part of the stored suite to use; default all of it.

    Returns:
        The plan with the suite as it was typed, so that ids stay the same.
    """
    suite, listed, places = suite or record.suite, _listed(folder), record.places
    from_file = record.classes and isinstance(suite.labels, str)
    labelled = suite.model_copy(update={"labels": record.classes}) if from_file else suite
    plans_: list[tuple[int, Plan]] = []
    last_error: SoritesError | None = None
    for respell in candidates(folder, places):
        try:
            plan = plans.make(respelled(labelled, respell))
        except SoritesError as error:
            last_error = error
            continue
        ids = pl.concat([pl.Series(group.ids(), dtype=pl.String) for group in plan.groups.values()])
        count = int(listed.is_in(ids.unique().implode()).sum())
        if count == len(listed) or not places:
            return _as_begun(suite, plan, record)
        plans_.append((count, plan))
    best_count, best = max(plans_, key=lambda pair: pair[0], default=(0, None))
    if best is None or not best_count:
        raise last_error or SoritesError(f"{suite.source} no longer has any of its {len(listed)} samples")
    return _as_begun(suite, best, record)


def _listed(folder: Path) -> pl.Series:
    """Return the distinct sample ids of a run's manifest."""
    there = (folder / RUN).exists()
    return read_manifest(folder)["sample_id"].unique() if there else pl.Series("sample_id", [], pl.String)


def _as_begun(suite: Suite, plan: Plan, record: RunRecord) -> Plan:
    """Return the plan with the suite as it was typed, because options of shifts are part of image ids, and
    the stored sizes of slices and batches.
    """
    options = {dial.name: dial.options for dial in suite.dials}
    shifts = {
        name: replace(shift, options=options[name]) if shift.options else shift
        for name, shift in plan.shifts.items()
    }
    begun = replace(plan, suite=suite, shifts=shifts, slice=record.slice)
    return begun if record.batch is None else begun.with_batch(record.batch)


def _classes(run: str | Path, record: RunRecord) -> str | tuple[str, ...]:
    """Return the classes of a run for a plan without images; numbered if their names are unknown."""
    labels = class_names(record)
    if labels is not None:
        return record.suite.labels if record.suite.labels in BUILT_IN else labels.ids
    largest = read_manifest(run)["label"].max()
    return tuple(f"class {number}" for number in range(int(largest) + 1 if isinstance(largest, int) else 1))


def _from_manifest(
    run: str | Path, suite: Suite, dials: Mapping[str, DialRecord], why: SoritesError
) -> tuple[Source, dict[str, Source]]:
    """Return the first and further sources with the samples of the manifest; none can be decoded."""

    def load() -> ImageU8:
        raise BadImage(f"the images of {run} are not available: {why}")

    def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
        load()
        yield from ()

    own = {name: OwnDial(name, sweep=sweep, **dict(dial)) for name, dial in dials.items()}
    further: dict[str, list[Sample]] = {entry.name: [] for entry in suite.sources}
    first: list[Sample] = []
    for row in read_manifest(run).to_dicts():
        samples, name = further.get(row["source"], first), row["source"]
        sample_id = row["sample_id"].removeprefix(f"{name}/") if name in further else row["sample_id"]
        sample_dials = tuple(own[dial] for dial in row.get(DIALS) or () if dial in own)
        samples.append(_sample({**row, "sample_id": sample_id}, Generated(load), sample_dials))
    return Source(split_spec(suite.source)[0], first), {
        name: Source(name, samples_) for name, samples_ in further.items()
    }


def _sample(row: Mapping[str, Any], image: Generated, dials: tuple[OwnDial, ...]) -> Sample:
    try:
        params = dict(json.loads(row["params"] or "{}"))
    except (TypeError, ValueError) as error:
        raise SoritesError(
            f"manifest.parquet: the params of {row['sample_id']} are not JSON: {error}"
        ) from error
    return Sample(
        row["sample_id"],
        image,
        row["label"],
        frozenset(row["accept"] or ()),
        attrs=tuple(Attr(**attr) for attr in row["attrs"] or ()),
        split=row["split"],
        shift=row["shift"],
        setting=Setting(row["severity"], params, row["level"]),
        framed=row["framed"],
        image_id=row["image_id"],
        dials=dials,
    )
