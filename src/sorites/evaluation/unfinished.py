"""A run that was stopped: what is missing of it, and the samples that every model has at every setting.

What is missing follows from the run folder alone: the manifest lists the samples in the order of
the units, and a unit is done where its shard is there. A run of prediction files has no units and
is never called unfinished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from sorites.core import CLEAN
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.evaluation.plan import Unit
from sorites.evaluation.storage.folder import read_info, read_manifest, sampled_by, slice_of
from sorites.evaluation.storage.shards import missing
from sorites.io.stores import place

Counts = dict[str, dict[str, tuple[int, int]]]


@dataclass(frozen=True)
class Unfinished:
    """The contents of a stopped run, and the part of them that can be compared."""

    name: str
    shards: int
    """Shards that are there, of ``wanted``."""
    wanted: int
    counts: Counts
    """Model to shift to the samples that are done and all there are, where some are missing."""
    unrefined: int
    """Slices whose failure severities are still to be refined."""
    models: tuple[str, ...]
    """Models that have nothing yet."""
    shifts: tuple[str, ...]
    """Shifts that one of the other models has nothing of yet."""
    lost: frozenset[str]
    """Samples that one of the other models lacks at a setting of the other shifts."""
    samples: int
    compared: int
    """The number of samples that every model has at every setting."""

    def keep(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows of the samples that every model has at every setting, without the models
        and shifts left out.
        """
        if self.compared == 0:
            raise SoritesError(f"{self.found()} No image is done by every model at every setting; {NEXT}.")
        kept = ~pl.col("sample_id").is_in(sorted(self.lost))
        for column, names in (("model", self.models), ("shift", self.shifts)):
            kept &= ~pl.col(column).is_in(names)
        return table.filter(kept)

    def found(self) -> str:
        """Say what is there and what is missing."""
        of = f"{self.name} is not finished: {self.shards} of {self.wanted} shards are there."
        lacks = [f"{model} lacks {_listed(shifts)}" for model, shifts in self.counts.items()]
        refine = f"{self.unrefined} slices are not refined" if self.unrefined else ""
        said = "; ".join([*lacks, *([refine] if refine else [])])
        return f"{of} {said}." if said else of

    def sentences(self, partial: bool) -> list[str]:
        """Say what is missing and what the figures are about, for the top of a table or page."""
        if partial:
            return [
                self.found(),
                "All that is there is used, so models and settings may stand on different images.",
            ]
        if not (self.lost or self.models or self.shifts):
            return [self.found()]
        out = [
            f"the {kind} {', '.join(names)}"
            for kind, names in (("models", self.models), ("shifts", self.shifts))
            if names
        ]
        without = f", without {' and '.join(out)}" if out else ""
        about = (
            f"the {self.compared} of {self.samples} samples that every model has at every setting{without}"
        )
        return [self.found(), f"The figures are about {about}; {NEXT}."]


NEXT = f"type the run's command again to finish it, or add {option('partial')} to use all that is there"


def _listed(shifts: Mapping[str, tuple[int, int]], most: int = 6) -> str:
    some = [f"{shift} ({done} of {of} samples done)" for shift, (done, of) in list(shifts.items())[:most]]
    return ", ".join(some) + (f" and {len(shifts) - most} more shifts" if len(shifts) > most else "")


def unfinished(run: str | Path) -> Unfinished | None:
    """Return what is missing of a run folder, or None where nothing is or the folder does not say."""
    folder = place(run)
    if not (folder / "run.json").exists() or not (folder / "manifest.parquet").exists():
        return None
    info = read_info(folder)
    if "imported" in info:
        return None
    groups = _groups(folder, info)
    size = slice_of(info)
    units = [
        Unit(s, i, min(i + size, len(ids))) for s, ids in groups.items() for i in range(0, len(ids), size)
    ]
    models = tuple(info["models"])
    left = missing(folder, units, models)
    probes = missing(folder, _probes(units, info), models) if info["suite"].get("refine") else {}
    if not left and not probes:
        return None
    wanted = len(units) * len(models)
    gone, away, lost = _left_out(groups, units, left, models)
    kept = {id_ for shift, ids in groups.items() if shift not in away for id_ in ids} - lost
    return Unfinished(
        str(folder), wanted - sum(map(len, left.values())), wanted, _counts(groups, left), len(probes), gone, away,
        frozenset(lost), len({id_ for ids in groups.values() for id_ in ids}), len(kept),
    )  # fmt: skip


def _groups(folder: Path, info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the samples of each shift in the order of its units: a shift that we make goes over
    clean ones.
    """
    listed = read_manifest(folder)
    captured = {
        str(shift): rows["sample_id"].to_list()
        for (shift,), rows in listed.group_by("shift", maintain_order=True)
    }
    made = {shift: sampled_by(listed, shift)["sample_id"].to_list() for shift in info["settings"]}
    return {CLEAN: captured.get(CLEAN, []), **made, **captured}


def _probes(units: Sequence[Unit], info: Mapping[str, Any]) -> list[Unit]:
    """List the units that refine a dial; the stops of a grid are params, and those of a captured
    shift are not listed.
    """
    dials = {
        shift
        for shift, settings in info["settings"].items()
        if settings and not isinstance(settings[0], Mapping)
    }
    return [Unit(unit.shift, unit.start, unit.stop, probe=True) for unit in units if unit.shift in dials]


def _counts(groups: Mapping[str, Sequence[str]], left: Mapping[Unit, Sequence[str]]) -> Counts:
    found: Counts = {}
    for unit, models in left.items():
        for model in models:
            of = len(groups[unit.shift])
            done, _ = found.setdefault(model, {}).get(unit.shift, (of, of))
            found[model][unit.shift] = (done - len(unit), of)
    return found


def _left_out(
    groups: Mapping[str, Sequence[str]],
    units: Sequence[Unit],
    left: Mapping[Unit, Sequence[str]],
    models: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], set[str]]:
    """Return the models that have nothing, the shifts that another model has nothing of, and the
    samples lost to the rest.
    """
    lacking = {model: {unit for unit, names in left.items() if model in names} for model in models}
    gone = tuple(model for model in models if len(lacking[model]) == len(units))
    rest = [model for model in models if model not in gone]
    of_shift = {shift: {unit for unit in units if unit.shift == shift} for shift in groups}
    away = tuple(
        shift
        for shift, all_units in of_shift.items()
        if all_units and any(all_units <= lacking[model] for model in rest)
    )
    short = {unit for model in rest for unit in lacking[model] if unit.shift not in away}
    return gone, away, {id_ for unit in short for id_ in groups[unit.shift][unit.start : unit.stop]}
