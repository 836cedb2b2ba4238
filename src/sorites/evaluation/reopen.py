"""A run folder opened again: its plan, made again from ``run.json``, and the samples of its
manifest where images are gone.
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
from sorites.core.rng import digest
from sorites.evaluation import plan as plans
from sorites.evaluation.plan import Plan
from sorites.evaluation.resume import guard
from sorites.evaluation.storage.folder import DIALS, read_info, read_manifest, slice_of
from sorites.evaluation.storage.record import candidates, respelled
from sorites.io.paths import is_file
from sorites.io.stores import place
from sorites.suites.suite import Suite, parse

# The key of ``run.json`` that holds the settings of an attack.
ATTACK = "attack"
# The prefix of the names of attacks in the table.
ATTACKS = "apgd_"


def suite_of(info: Mapping[str, Any]) -> Suite:
    """The suite as ``run.json`` keeps it."""
    return parse(dict(info["suite"]), "run.json")


def class_names(info: Mapping[str, Any]) -> Labels | None:
    """Return the label space of a run: as ``run.json`` keeps it, or of the file that it names, if
    that has the same classes.

    A file with other classes is not the run's, wherever it lies; then there is none.
    """
    named = info["suite"].get("labels", "imagenet")
    if not isinstance(named, str) or named in BUILT_IN:
        return labels_of(named)
    if info.get("classes"):
        return labels_of(info["classes"])
    try:
        found = labels_of(named)
    except SoritesError:
        return None
    return found if digest(*found.ids, size=8).hex() == info.get("labels") else None


def plan_of(run: str | Path) -> Plan:
    """Make the plan of a run folder again: the same source, frame, draws and rounding give the same pixels.

    No model is loaded and no training image is listed. Images are looked for where they stood,
    seen from the run folder and on this machine; one that has changed since cannot be decoded. A
    run whose images are not available still has its plan: the samples then come from the manifest,
    and decoding one of them is an error that says why.
    """
    info = read_info(run)
    if ATTACK in info:
        raise SoritesError(_of_attack(run))
    alone = suite_of(info).model_copy(update={"models": (), "fit": None})
    try:
        if "imported" in info:
            raise SoritesError("it was made of prediction files by sorites import")
        if class_names(info) is None:
            raise SoritesError(f"{alone.labels} is not the list of classes that it was run with")
        return guard(made_again(place(run), info, alone), read_manifest(run))
    except SoritesError as error:
        first, further = _from_manifest(run, alone, info.get("dials", {}), error)
        bare = alone.model_copy(update={"labels": _classes(run, info)})
        return replace(plans.make(bare, first, further=further), slice=slice_of(info))


def refuse_attacks(suite: str | Path, shifts: Sequence[str] = ()) -> None:
    """Refuse the folder of an attack in the place of a suite, and attacks in the place of shifts:
    both follow from a model.
    """
    if is_file(Path(suite) / "run.json") and ATTACK in read_info(suite):
        raise SoritesError(_of_attack(suite))
    for name in (name for name in shifts if name.startswith(ATTACKS)):
        raise SoritesError(
            f"{name} is an attack: it is made against a model, is not rounded to 8 bits, and no suite or"
            " dataset can hold it. Type: sorites attack MODEL --eps 4/255,.1,.25"
        )


def _of_attack(run: str | Path) -> str:
    return (
        f"{run} holds an attack: its images were made against its models, were not rounded to 8 bits and"
        ' were not kept, so that nothing more can be made of them. Read it with "sorites metrics" and'
        ' "sorites report".'
    )


def made_again(folder: Path, info: Mapping[str, Any], suite: Suite) -> Plan:
    """Make the plan of a suite that a run folder keeps, from its files as they stand now: those
    that hold most of its samples.

    The plan has the suite as it was typed, so that ids stay what they were.
    """
    classes = info.get("classes") if isinstance(suite.labels, str) else None
    labelled = suite.model_copy(update={"labels": tuple(classes)}) if classes else suite
    places, listed = info.get("places", {}), _listed(folder)
    found: list[tuple[int, Plan]] = []
    why: SoritesError | None = None
    for respell in candidates(folder, places):
        try:
            plan = plans.make(respelled(labelled, respell))
        except SoritesError as error:
            why = error
            continue
        here = pl.concat([pl.Series(group.ids(), dtype=pl.String) for group in plan.groups.values()])
        held = int(listed.is_in(here.unique().implode()).sum())
        if held == len(listed) or not places:
            return _as_begun(suite, plan, info)
        found.append((held, plan))
    most, best = max(found, key=lambda pair: pair[0], default=(0, None))
    if best is None or not most:
        raise why or SoritesError(f"{suite.source} holds none of its {len(listed)} samples any more")
    return _as_begun(suite, best, info)


def _listed(folder: Path) -> pl.Series:
    """Return the ids of the samples that a run looks at, each once."""
    there = (folder / "manifest.parquet").exists()
    return read_manifest(folder)["sample_id"].unique() if there else pl.Series("sample_id", [], pl.String)


def _as_begun(suite: Suite, plan: Plan, info: Mapping[str, Any]) -> Plan:
    """Return the plan with the suite as it was typed, since the options of shifts stand in the ids
    of images, and with the units that the folder began with.
    """
    options = {dial.name: dial.options for dial in suite.shifts}
    shifts = {
        name: replace(shift, options=options[name]) if shift.options else shift
        for name, shift in plan.shifts.items()
    }
    return replace(plan, suite=suite, shifts=shifts, slice=slice_of(info))


def _classes(run: str | Path, info: Mapping[str, Any]) -> str | tuple[str, ...]:
    """Return the classes of a run for a plan without images; where nothing knows their names,
    they are numbered.
    """
    known = class_names(info)
    if known is not None:
        named = info["suite"].get("labels")
        return named if named in BUILT_IN else known.ids
    most = read_manifest(run)["label"].max()
    return tuple(f"class {number}" for number in range(int(most) + 1 if isinstance(most, int) else 1))


def _from_manifest(
    run: str | Path, suite: Suite, dials: Mapping[str, Any], why: SoritesError
) -> tuple[Source, dict[str, Source]]:
    """Return the first source and the further ones with the samples that the manifest lists; none
    can be decoded.
    """

    def load() -> ImageU8:
        raise BadImage(f"the images of {run} are not available: {why}")

    def sweep(severities: Sequence[float]) -> Iterator[ImageF32]:
        load()
        yield from ()

    own = {name: OwnDial(name, sweep=sweep, **told) for name, told in dials.items()}
    found: dict[str, list[Sample]] = {entry.name: [] for entry in suite.sources}
    first: list[Sample] = []
    for row in read_manifest(run).to_dicts():
        place, name = found.get(row["source"], first), row["source"]
        short = row["sample_id"].removeprefix(f"{name}/") if name in found else row["sample_id"]
        held = tuple(own[dial] for dial in row.get(DIALS) or () if dial in own)
        place.append(_sample({**row, "sample_id": short}, load, held))
    return Source(split_spec(suite.source)[0], first), {
        name: Source(name, some) for name, some in found.items()
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
