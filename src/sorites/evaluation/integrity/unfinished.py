"""Unfinished runs: what is missing, and the samples that every model has at every setting.

This follows from the run folder alone: the manifest lists the samples in the order of the slices, and a slice
is done if a shard with its rows exists. Imported runs have no slices and are never unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import noun, option
from sorites.evaluation.plan import Unit
from sorites.evaluation.storage.folder import MANIFEST_FILE, read_manifest, sampled_by
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.storage.shards import missing
from sorites.io.listed import RUN
from sorites.io.stores import to_path

Counts = dict[str, dict[str, tuple[int, int]]]


@dataclass(frozen=True)
class Unfinished:
    """The content of an unfinished run, and the part of it that can be compared."""

    name: str
    slices: int
    """Number of evaluated slices; a slice counts once per model."""
    wanted: int
    """Number of slices of the finished run."""
    counts: Counts
    """By model and shift: finished samples and all samples, if some are missing."""
    unrefined: int
    """Number of slices whose failure severities are not refined yet."""
    models: tuple[str, ...]
    """Models without any results."""
    shifts: tuple[str, ...]
    """Shifts for which one of the other models has no results."""
    lost: frozenset[str]
    """Samples that one of the other models lacks at a setting of the other shifts."""
    samples: int
    compared: int
    """Number of samples that every model has at every setting."""

    def keep(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows of samples that every model has at every setting.

        Raises:
            SoritesError: There are none.
        """
        if self.compared == 0:
            raise SoritesError(
                f"{self.found()} No sample is finished for every model at every setting; {NEXT}."
            )
        condition = ~pl.col("sample_id").is_in(sorted(self.lost))
        for column, names in (("model", self.models), ("shift", self.shifts)):
            condition &= ~pl.col(column).is_in(names)
        return table.filter(condition)

    def found(self) -> str:
        """Describe what exists and what is missing."""
        summary = f"{self.name} is not finished: {self.slices} of {self.wanted} slices are evaluated."
        missing = [f"{model} lacks {_shift_counts_text(shifts)}" for model, shifts in self.counts.items()]
        refine = f"{self.unrefined} slices are not refined" if self.unrefined else ""
        details = "; ".join([*missing, *([refine] if refine else [])])
        return f"{summary} {details}." if details else summary

    def sentences(self, partial: bool) -> list[str]:
        """Describe what is missing and what the numbers are based on, for the top of a table or page."""
        if partial:
            return [
                self.found(),
                "Everything available is used, so models and settings may be based on different images.",
            ]
        if not (self.lost or self.models or self.shifts):
            return [self.found()]
        omitted = [
            f"the {kind} {', '.join(names)}"
            for kind, names in (("models", self.models), ("shifts", self.shifts))
            if names
        ]
        without = f", without {' and '.join(omitted)}" if omitted else ""
        basis = (
            f"the {self.compared} of {self.samples} samples that every model has at every setting{without}"
        )
        return [self.found(), f"The numbers are based on {basis}; {NEXT}."]


NEXT = f"repeat the run to finish it, or add {option('partial')} to use everything available"


def _shift_counts_text(shifts: Mapping[str, tuple[int, int]], most: int = 6) -> str:
    parts = [f"{shift} ({done} of {of} samples done)" for shift, (done, of) in list(shifts.items())[:most]]
    more = len(shifts) - most
    return ", ".join(parts) + (f" and {more} more {noun(more, 'shift')}" if more > 0 else "")


def unfinished(run: str | Path) -> Unfinished | None:
    """Return what is missing of a run folder, or None if it is complete or has no metadata."""
    folder = to_path(run)
    if not (folder / RUN).exists():
        return None
    record = read_record(folder)
    if record.imported is not None or MANIFEST_FILE not in record.files:
        return None
    groups, models = _groups(folder, record), tuple(record.models)
    units = _units(groups, record)
    left, probes = missing(folder, units, models), missing_probes(folder, record)
    if not left and not probes:
        return None
    expected = len(units) * len(models)
    absent_models, absent_shifts, incomplete = _find_incomplete(groups, units, left, models)
    evaluated = groups if len(absent_models) < len(models) else {}
    compared = {
        id_ for shift, ids in evaluated.items() if shift not in absent_shifts for id_ in ids
    } - incomplete
    return Unfinished(
        str(folder),
        expected - sum(map(len, left.values())),
        expected,
        _counts(groups, left),
        len(probes),
        absent_models,
        absent_shifts,
        frozenset(incomplete),
        len({id_ for ids in groups.values() for id_ in ids}),
        len(compared),
    )


def _groups(folder: Path, record: RunRecord) -> dict[str, list[str]]:
    """Return the samples of each shift in the order of its slices; applied shifts use the clean samples."""
    listed = read_manifest(folder)
    captured = {
        str(shift): rows["sample_id"].to_list()
        for (shift,), rows in listed.group_by("shift", maintain_order=True)
    }
    applied = {shift: sampled_by(listed, shift)["sample_id"].to_list() for shift in record.settings}
    return {CLEAN: captured.get(CLEAN, []), **applied, **captured}


def _units(groups: Mapping[str, Sequence[str]], record: RunRecord) -> list[Unit]:
    size = record.slice
    return [
        Unit(s, i, min(i + size, len(ids))) for s, ids in groups.items() for i in range(0, len(ids), size)
    ]


def missing_probes(folder: Path, record: RunRecord) -> dict[Unit, tuple[str, ...]]:
    """Return the slices whose failure severities are not refined, each with the models that lack them.

    Empty unless the run is refined. Grids have params as settings, and captured shifts are not listed.
    """
    if not record.suite.refine:
        return {}
    dials = {
        shift
        for shift, settings in record.settings.items()
        if settings and not isinstance(settings[0], Mapping)
    }
    units = _units(_groups(folder, record), record)
    probes = [replace(unit, probe=True) for unit in units if unit.shift in dials]
    return missing(folder, probes, record.models)


def _counts(groups: Mapping[str, Sequence[str]], left: Mapping[Unit, Sequence[str]]) -> Counts:
    counts: Counts = {}
    for unit, models in left.items():
        for model in models:
            total = len(groups[unit.shift])
            done, _ = counts.setdefault(model, {}).get(unit.shift, (total, total))
            counts[model][unit.shift] = (done - len(unit), total)
    return counts


def _find_incomplete(
    groups: Mapping[str, Sequence[str]],
    units: Sequence[Unit],
    left: Mapping[Unit, Sequence[str]],
    models: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], set[str]]:
    """Return the models without results, the shifts that another model lacks, and the samples missing for the
    rest.
    """
    missing_by_model = {model: {unit for unit, names in left.items() if model in names} for model in models}
    absent_models = tuple(model for model in models if len(missing_by_model[model]) == len(units))
    other_models = [model for model in models if model not in absent_models]
    units_by_shift = {shift: {unit for unit in units if unit.shift == shift} for shift in groups}
    absent_shifts = tuple(
        shift
        for shift, all_units in units_by_shift.items()
        if all_units and any(all_units <= missing_by_model[model] for model in other_models)
    )
    incomplete = {
        unit for model in other_models for unit in missing_by_model[model] if unit.shift not in absent_shifts
    }
    return (
        absent_models,
        absent_shifts,
        {id_ for unit in incomplete for id_ in groups[unit.shift][unit.start : unit.stop]},
    )
