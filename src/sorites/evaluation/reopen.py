"""Reopen a run folder: recreate its plan from ``run.json``, or its samples from the manifest if images are
missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import Attr, ImageF32, ImageU8, OwnDial, Sample, Setting, Source, split_spec
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import BUILT_IN, Labels
from sorites.core.labels import labels as labels_of
from sorites.core.messages import command
from sorites.core.rng import digest
from sorites.evaluation import plan as plans
from sorites.evaluation.plan import Plan
from sorites.evaluation.resume import guard
from sorites.evaluation.storage.folder import DIALS, read_info, read_manifest, slice_of
from sorites.evaluation.storage.record import candidates, respelled
from sorites.io.paths import is_file
from sorites.io.stores import to_path
from sorites.suites.suite import Suite, parse

# Key of ``run.json`` with the settings of an attack.
ATTACK = "attack"
# Prefix of the names of attacks in the table.
ATTACKS = "apgd_"


def suite_of(info: Mapping[str, Any]) -> Suite:
    """Return the suite stored in ``run.json``."""
    return parse(dict(info["suite"]), "run.json")


def class_names(info: Mapping[str, Any]) -> Labels | None:
    """Return the label space of a run: stored in ``run.json``, or from the file that it names if it has the
    same classes.

    None if that file has other classes.
    """
    spec = info["suite"].get("labels", "imagenet")
    if not isinstance(spec, str) or spec in BUILT_IN:
        return labels_of(spec)
    if info.get("classes"):
        return labels_of(info["classes"])
    try:
        labels = labels_of(spec)
    except SoritesError:
        return None
    return labels if digest(*labels.ids, size=8).hex() == info.get("labels") else None


def plan_of(run: str | Path) -> Plan:
    """Recreate the plan of a run folder; the same source, frame, random draws and rounding give the same
    pixels.

    No model is loaded and no training image is listed. Images are searched relative to the run folder and at
    their absolute path; images that have changed cannot be decoded. If the images are not available, the
    samples come from the manifest, and decoding one raises an error that says why.
    """
    info = read_info(run)
    if ATTACK in info:
        raise SoritesError(_of_attack(run))
    images_only = suite_of(info).model_copy(update={"models": (), "fit": None})
    try:
        if "imported" in info:
            raise SoritesError("it was imported from prediction files")
        if class_names(info) is None:
            raise SoritesError(f"{images_only.labels} is not the list of classes of the run")
        return guard(recreate_plan(to_path(run), info, images_only), read_manifest(run))
    except SoritesError as error:
        first, further = _from_manifest(run, images_only, info.get("dials", {}), error)
        bare = images_only.model_copy(update={"labels": _classes(run, info)})
        return replace(plans.make(bare, first, further=further), slice=slice_of(info))


def refuse_attacks(suite: str | Path, shifts: Sequence[str] = ()) -> None:
    """Raise a ``SoritesError`` if an attack is used as a suite or shift; attacks depend on a model."""
    if is_file(Path(suite) / "run.json") and ATTACK in read_info(suite):
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


def recreate_plan(folder: Path, info: Mapping[str, Any], suite: Suite) -> Plan:
    """Recreate the plan of a stored suite from its files where they are now: the paths with most of its
    samples.

    The plan has the suite as it was typed, so that ids stay the same.
    """
    classes = info.get("classes") if isinstance(suite.labels, str) else None
    labelled = suite.model_copy(update={"labels": tuple(classes)}) if classes else suite
    places, listed = info.get("places", {}), _listed(folder)
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
            return _as_begun(suite, plan, info)
        plans_.append((count, plan))
    best_count, best = max(plans_, key=lambda pair: pair[0], default=(0, None))
    if best is None or not best_count:
        raise last_error or SoritesError(f"{suite.source} no longer has any of its {len(listed)} samples")
    return _as_begun(suite, best, info)


def _listed(folder: Path) -> pl.Series:
    """Return the distinct sample ids of a run's manifest."""
    there = (folder / "manifest.parquet").exists()
    return read_manifest(folder)["sample_id"].unique() if there else pl.Series("sample_id", [], pl.String)


def _as_begun(suite: Suite, plan: Plan, info: Mapping[str, Any]) -> Plan:
    """Return the plan with the suite as it was typed, because options of shifts are part of image ids, and
    the stored slice size.
    """
    options = {dial.name: dial.options for dial in suite.shifts}
    shifts = {
        name: replace(shift, options=options[name]) if shift.options else shift
        for name, shift in plan.shifts.items()
    }
    return replace(plan, suite=suite, shifts=shifts, slice=slice_of(info))


def _classes(run: str | Path, info: Mapping[str, Any]) -> str | tuple[str, ...]:
    """Return the classes of a run for a plan without images; numbered if their names are unknown."""
    labels = class_names(info)
    if labels is not None:
        spec = info["suite"].get("labels")
        return spec if spec in BUILT_IN else labels.ids
    largest = read_manifest(run)["label"].max()
    return tuple(f"class {number}" for number in range(int(largest) + 1 if isinstance(largest, int) else 1))


def _from_manifest(
    run: str | Path, suite: Suite, dials: Mapping[str, Any], why: SoritesError
) -> tuple[Source, dict[str, Source]]:
    """Return the first and further sources with the samples of the manifest; none can be decoded."""

    def load() -> ImageU8:
        raise BadImage(f"the images of {run} are not available: {why}")

    def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
        load()
        yield from ()

    own = {name: OwnDial(name, sweep=sweep, **properties) for name, properties in dials.items()}
    further: dict[str, list[Sample]] = {entry.name: [] for entry in suite.sources}
    first: list[Sample] = []
    for row in read_manifest(run).to_dicts():
        samples, name = further.get(row["source"], first), row["source"]
        sample_id = row["sample_id"].removeprefix(f"{name}/") if name in further else row["sample_id"]
        sample_dials = tuple(own[dial] for dial in row.get(DIALS) or () if dial in own)
        samples.append(_sample({**row, "sample_id": sample_id}, load, sample_dials))
    return Source(split_spec(suite.source)[0], first), {
        name: Source(name, samples_) for name, samples_ in further.items()
    }


def _sample(row: Mapping[str, Any], load: Any, dials: tuple[OwnDial, ...]) -> Sample:
    try:
        params = dict(json.loads(row["params"] or "{}"))
    except (TypeError, ValueError) as error:
        raise SoritesError(
            f"manifest.parquet: the params of {row['sample_id']} are not JSON: {error}"
        ) from error
    return Sample(
        row["sample_id"],
        load,
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
