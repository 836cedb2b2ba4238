"""Combine the tables of several runs: give models distinct names, keep the shared samples and settings, and
describe what was left out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import polars as pl

from sorites.core import CLEAN, split_spec
from sorites.core import table as tables
from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import option
from sorites.core.rng import digest
from sorites.evaluation.integrity.unfinished import Unfinished, unfinished
from sorites.evaluation.storage.folder import MANIFEST_FILE, read_manifest
from sorites.evaluation.storage.overlap import overlap_notes, overlap_of
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.storage.variants import (
    apart_notes,
    distinct_conditions,
    short_version,
    with_conditions,
    with_names,
)
from sorites.io.listed import RUN
from sorites.io.stores import to_path


def distinct_names(records: Sequence[RunRecord | None]) -> list[dict[str, str]]:
    """Return, for each run, new names for the models of which other runs have another version."""
    models = [record.models if record else {} for record in records]
    versions_by_name: dict[str, list[str]] = {}
    for named in models:
        for name, version in named.items():
            versions_by_name.setdefault(name, []).append(str(version or ""))

    def full_name(name: str, version: str) -> str:
        others = [other for other in set(versions_by_name[name]) if other != version]
        return f"{name} ({short_version(version, others)})"

    ambiguous = {name for name, versions in versions_by_name.items() if len(set(versions)) > 1}
    return [{n: full_name(n, str(v or "")) for n, v in named.items() if n in ambiguous} for named in models]


def renamed(record: RunRecord | None, names: Mapping[str, str]) -> RunRecord | None:
    """Return a record with models renamed."""
    if record is None:
        return None
    reference = record.suite.reference
    return record.having(
        suite=record.suite.model_copy(update={"reference": names.get(reference or "", reference)}),
        models=with_names(record.models, names),
        parameters=with_names(record.parameters, names),
        not_repeating=tuple(names.get(name, name) for name in record.not_repeating),
    )


# Filtered images.


class Filtered(Protocol):
    """A run with its name and the ids of its rejected images."""

    @property
    def name(self) -> str: ...
    @property
    def aside(self) -> pl.Series | None: ...


def sentences(runs: Sequence[Filtered], partial: bool) -> list[str]:
    """Describe how many images were rejected by filters, and what it means if the runs differ."""
    counts = [f"{len(run.aside)} in {run.name}" for run in runs if run.aside is not None]
    if not counts:
        return []
    counted = f"Images rejected by a filter are not counted: {', '.join(counts)}."
    if not only_in_some(runs):
        return [counted]
    if partial:
        return [
            f"{counted} The runs were filtered differently, so models may be evaluated on different images."
        ]
    return [
        f"{counted} The runs were filtered differently; images rejected in one run are left out of all. Add"
        f" {option('partial')} to use everything."
    ]


def only_in_some(runs: Sequence[Filtered]) -> list[str]:
    """Return the images that are rejected in some but not all runs."""
    each = [set() if run.aside is None else set(run.aside) for run in runs]
    return sorted(set().union(*each) - each[0].intersection(*each[1:]))


def left_out(tables: Sequence[pl.LazyFrame], runs: Sequence[Filtered]) -> list[pl.LazyFrame]:
    """Return the tables without the images that are rejected in only some of the runs."""
    partly_rejected = only_in_some(runs)
    return (
        [table.filter(~pl.col("image_id").is_in(partly_rejected)) for table in tables]
        if partly_rejected
        else list(tables)
    )


# Several runs as one table.


SAMPLE = ("source", "sample_id")
SETTING_KEY = ("shift", "severity", "params")
PROBE = pl.col("probe").fill_null(False)


class Run(Protocol):
    """A run: its table, name, record (None for a bare table), missing parts, and rejected images."""

    @property
    def table(self) -> pl.LazyFrame: ...
    @property
    def name(self) -> str: ...
    @property
    def record(self) -> RunRecord | None: ...
    @property
    def unfinished(self) -> Unfinished | None: ...
    @property
    def aside(self) -> pl.Series | None: ...
    @property
    def trained_on(self) -> Mapping[str, tuple[int, int]]: ...
    @property
    def conditions(self) -> Mapping[str, str]: ...
    @property
    def folder(self) -> Path | None: ...


@dataclass(frozen=True)
class Folder:
    """A run read from its folder."""

    table: pl.LazyFrame
    name: str
    record: RunRecord | None
    """The content of ``run.json``; None if there is none."""
    unfinished: Unfinished | None = None
    aside: pl.Series | None = None
    """Ids of the images that filters rejected; None if there are none."""
    trained_on: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By model that was trained on samples of the run: how many of how many."""
    folder: Path | None = None
    """The run folder."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """New names of shifts that make other images in another run."""


@dataclass(frozen=True)
class Combined:
    """The table of one or more runs; images shared by several runs are counted once."""

    table: pl.LazyFrame
    tables: tuple[pl.LazyFrame, ...]
    """The rows of each run, in the order of the runs."""
    ids: tuple[tuple[str, ...], ...]
    """The values of ``run_id`` of each run."""
    notes: tuple[str, ...]
    """Sentences to show with the results: what is missing, what the runs share, and what was left out."""
    comparable: bool = True
    """False if the runs share no sample."""


def read(run: str | Path | Sequence[str | Path], *more: str | Path, partial: bool = False) -> pl.LazyFrame:
    """Return the table of one or more run folders lazily.

    By default, only samples that every model has at every setting are included, and only what all runs share;
    a ``Notice`` says what was left out. ``sorites.core.table.read`` reads the files of one folder as they
    are.

    Args:
        run: A run folder or a sequence of them.
        more: Further run folders.
        partial: Include everything.
    """
    combined = combine(open_folders([*([run] if isinstance(run, str | Path) else run), *more]), partial)
    if combined.notes:
        warnings.warn(Notice("\n".join(combined.notes), code="incomplete"), stacklevel=2)
    return combined.table


def open_folder(run: str | Path) -> Folder:
    """Read a run folder and find out what is missing; a folder without ``run.json`` has no metadata."""
    folder = to_path(run)
    table = tables.read(folder)
    record = read_record(folder) if (folder / RUN).exists() else None
    counts = {} if record is None else overlap_of(folder)
    aside = tables.rejected_images(folder)
    return Folder(table, str(folder), record, unfinished(folder), aside, counts, folder)


def open_folders(runs: Sequence[str | Path]) -> list[Folder]:
    """Read run folders; models that occur in several versions get the version in their name, and shifts that
    differ in options or version what differs.
    """
    folders = [open_folder(run) for run in runs]
    records = [folder.record for folder in folders]
    names, conditions = distinct_names(records), distinct_conditions(records)
    each = zip(folders, names, conditions, strict=True)
    return [_renamed(folder, new, apart) if new or apart else folder for folder, new, apart in each]


def _renamed(folder: Folder, names: Mapping[str, str], conditions: Mapping[str, str]) -> Folder:
    return replace(
        folder,
        table=renamed_rows(folder.table, names, conditions),
        record=with_conditions(renamed(folder.record, names), conditions),
        unfinished=renamed_parts(folder.unfinished, names, conditions),
        trained_on=with_names(folder.trained_on, names),
        conditions=conditions,
    )


def renamed_parts(
    missing: Unfinished | None, names: Mapping[str, str], conditions: Mapping[str, str]
) -> Unfinished | None:
    """Return the missing parts of a run with models and shifts renamed."""
    if missing is None:
        return None
    return replace(
        missing,
        models=tuple(names.get(model, model) for model in missing.models),
        shifts=tuple(conditions.get(shift, shift) for shift in missing.shifts),
    )


def renamed_rows(
    table: pl.LazyFrame, names: Mapping[str, str], conditions: Mapping[str, str]
) -> pl.LazyFrame:
    """Return a table with models and shifts renamed."""
    return table.with_columns(pl.col("model").replace(dict(names)), pl.col("shift").replace(dict(conditions)))


def combine(runs: Sequence[Run], partial: bool = False) -> Combined:
    """Combine runs into one table.

    Args:
        runs: At least one run.
        partial: Include everything; by default only finished and shared parts.
    """
    if not runs:
        raise SoritesError("expected at least one run, got none")
    notes = _notes_of_each(runs, partial)
    finished = [_finished_rows(run, partial) for run in runs]
    if len(runs) == 1:
        return Combined(finished[0], tuple(finished), (_ids(finished[0]),), tuple(notes))
    specs = _source_specs(runs)
    common_ids = [_common_id(run, specs) for run in runs]
    tables_ = [
        _with_source(table if id_ is None else table.with_columns(run_id=pl.lit(id_)), run, specs)
        for table, id_, run in zip(finished, common_ids, runs, strict=True)
    ]
    ids = tuple(
        _ids(table) if id_ is None else (id_,) for table, id_ in zip(tables_, common_ids, strict=True)
    )
    shared = _Shared.of(runs, tables_)
    notes += [*apart_notes([run.conditions for run in runs]), *shared.sentences(partial)]
    notes += [*_differences(runs), *_refinement(runs, partial)]
    if not partial:
        tables_ = _shared_rows(tables_, shared, runs)
    combined = _without_doubles(tables_, common_ids)
    return Combined(combined, tuple(tables_), ids, tuple(notes), shared.comparable)


def _without_doubles(parts: Sequence[pl.LazyFrame], common_ids: Sequence[str | None]) -> pl.LazyFrame:
    """Concatenate tables; rows of runs that share an id are kept once."""
    known_ids = [id_ for id_ in common_ids if id_ is not None]
    if len(set(known_ids)) == len(known_ids):
        return pl.concat(parts)
    return pl.concat(parts).unique(tables.KEY, keep="first", maintain_order=True)


def _notes_of_each(runs: Sequence[Run], partial: bool) -> list[str]:
    unfinished = [note for run in runs for note in _unfinished_notes(run, partial)]
    overlaps = [note for run in runs for note in overlap_notes(run.trained_on)]
    return [*unfinished, *sentences(runs, partial), *overlaps]


def _unfinished_notes(run: Run, partial: bool) -> list[str]:
    return [] if run.unfinished is None else run.unfinished.sentences(partial)


def _finished_rows(run: Run, partial: bool) -> pl.LazyFrame:
    return run.table if partial or run.unfinished is None else run.unfinished.keep(run.table)


def _shared_rows(tables_: Sequence[pl.LazyFrame], shared: _Shared, runs: Sequence[Run]) -> list[pl.LazyFrame]:
    cut = left_out([shared.keep(table) for table in tables_], runs)
    return [table.filter(~PROBE) for table in cut] if _refined_in_part(runs) else cut


@dataclass(frozen=True)
class _Shared:
    """The samples that all runs have and the settings that all models have; None if nothing has to be left
    out.
    """

    samples: pl.DataFrame | None
    settings: pl.DataFrame | None
    lost: tuple[tuple[str, int, int, tuple[str, ...]], ...]
    """For each run: name, number of samples, shared samples, and shifts with settings that are not shared."""
    count: int
    comparable: bool

    @staticmethod
    def of(runs: Sequence[Run], tables_: Sequence[pl.LazyFrame]) -> _Shared:
        samples_by_run = [table.select(SAMPLE).unique().collect(engine="streaming") for table in tables_]
        shared_samples = samples_by_run[0]
        for others in samples_by_run[1:]:
            shared_samples = shared_samples.join(others, on=SAMPLE, how="semi", nulls_equal=True)
        setting_rows = [table.filter(~PROBE).select("model", *SETTING_KEY).unique() for table in tables_]
        settings = [table.collect(engine="streaming") for table in setting_rows]
        all_settings = pl.concat(settings).unique()
        models = all_settings["model"].n_unique()
        common = all_settings.group_by(SETTING_KEY).len().filter(pl.col("len") == models).select(SETTING_KEY)
        unshared_shifts = [_shifts_beyond(own, common) for own in settings]
        comparable = shared_samples.height > 0 or models == 1
        same = all(shared_samples.height == own.height for own in samples_by_run) or not shared_samples.height
        lost = tuple(
            (name, own.height, shared_samples.height, shifts)
            for name, own, shifts in zip(_names(runs), samples_by_run, unshared_shifts, strict=True)
        )
        cut = common if any(unshared_shifts) and common.height and shared_samples.height else None
        return _Shared(None if same else shared_samples, cut, lost, shared_samples.height, comparable)

    def keep(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return the shared rows; probes are kept if all settings of their shift are shared."""
        if self.samples is not None:
            table = table.join(self.samples.lazy(), on=SAMPLE, how="semi", nulls_equal=True)
        if self.settings is None:
            return table
        cut = {shift for *_, shifts in self.lost for shift in shifts}
        grid = table.filter(~PROBE).join(self.settings.lazy(), on=SETTING_KEY, how="semi", nulls_equal=True)
        return pl.concat([grid, table.filter(PROBE & ~pl.col("shift").is_in(sorted(cut)))])

    def sentences(self, partial: bool) -> list[str]:
        if self.samples is None and self.settings is None and self.comparable:
            return []
        if not self.count:
            counts = "; ".join(f"{name} has {own}" for name, own, _, _ in self.lost)
            return [
                f"These runs share no sample ({counts}): each number is about the samples of its own run, and"
                " the"
                " models cannot be ranked."
            ]
        omitted = [_left_out(*run) for run in self.lost if run[1] != run[2] or run[3]]
        if partial:
            return [
                f"These runs have different samples or settings ({'; '.join(omitted)}). Everything is used,"
                " so models"
                " may be evaluated on different images."
            ]
        shifts = (
            [name for name in self.settings["shift"].unique().sort() if name != CLEAN]
            if self.settings is not None
            else None
        )
        settings_text = (
            ""
            if shifts is None
            else f" at the settings of {', '.join(shifts)} that all models have"
            if shifts
            else ", clean only"
        )
        about = f"These runs are compared on what they share: {self.count} samples{settings_text}."
        return [f"{about} Left out: {'; '.join(omitted)}. Add {option('partial')} to use everything."]


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the runs' names, with the start of their ids if two names are equal."""
    names = [run.name for run in runs]
    ids = [run.record.run_id[:8] if run.record else f"number {number}" for number, run in enumerate(runs, 1)]
    return [f"{name} {id_}" if names.count(name) > 1 else name for name, id_ in zip(names, ids, strict=True)]


def _shifts_beyond(mine: pl.DataFrame, common: pl.DataFrame) -> tuple[str, ...]:
    beyond = mine.join(common, on=SETTING_KEY, how="anti", nulls_equal=True)
    return tuple(beyond["shift"].unique().sort())


def _left_out(name: str, mine: int, shared: int, shifts: Sequence[str]) -> str:
    parts = [f"{mine - shared} of its {mine} samples"] * (mine != shared) + [
        f"settings of {', '.join(shifts)}"
    ] * bool(shifts)
    return f"{name}: {' and '.join(parts)}"


def _differences(runs: Sequence[Run]) -> list[str]:
    """Describe in which ways the same sample at the same setting is a different image in the runs."""
    records = _records(runs)
    keys = {"frame": "frame", "frames": "frames of captured shifts", "seed": "seed"}
    suites = [record.suite.model_dump(mode="json", include=set(keys)) for record in records]
    differences = []
    for key, description in keys.items():
        values = list(dict.fromkeys(_as_text(suite[key]) for suite in suites))
        differences += [f"{description} ({' and '.join(values)})"] if len(values) > 1 else []
    return (
        [
            f"The runs differ in {', '.join(differences)}: the same sample at the same setting is a different"
            " image in each."
        ]
        if differences
        else []
    )


def _refined_in_part(runs: Sequence[Run]) -> bool:
    return len({bool(record.suite.refine) for record in _records(runs)}) > 1


def _records(runs: Sequence[Run]) -> list[RunRecord]:
    return [run.record for run in runs if run.record is not None]


def _refinement(runs: Sequence[Run], partial: bool) -> list[str]:
    if not _refined_in_part(runs):
        return []
    treatment = "they are used as they are" if partial else "only the settings of the suite are used"
    return [f"Failure severities are refined in some of the runs only; {treatment}."]


def _as_text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key} {part}" for key, part in value.items() if part is not None) or "none"
    return "none" if value is None else json.dumps(value, sort_keys=True, default=str)


def _source_specs(runs: Sequence[Run]) -> dict[str, str]:
    """Return one spec for each spec of a source: the same for those with the same images.

    A folder may be spelled in two ways, or be a copy of another: sources of one reader are the same if the
    samples with equal ids have equal content in the manifests of their runs.
    """
    same: dict[str, str] = {}
    first: list[Run] = []
    for run in runs:
        if run.record is None or run.record.suite.source in same:
            continue
        spec = run.record.suite.source
        twin = next((other for other in first if _same_images(other, run)), None)
        same[spec] = spec if twin is None or twin.record is None else twin.record.suite.source
        first += [run] if twin is None else []
    return same


def _same_images(one: Run, two: Run) -> bool:
    """Return whether two runs have samples in common, all with equal content and read in the same way."""
    readers = {split_spec(run.record.suite.source)[0] for run in (one, two) if run.record is not None}
    if len(readers) > 1 or one.folder is None or two.folder is None:
        return False
    if one.record is None or two.record is None:
        return False
    mine, theirs = _first_source(one.folder, one.record), _first_source(two.folder, two.record)
    if mine is None or theirs is None:
        return False
    both = mine.join(theirs, on=["sample_id", "shift", "severity", "params"], suffix="_two", nulls_equal=True)
    return both.height > 0 and bool((both["content"] == both["content_two"]).fill_null(False).all())


def _first_source(folder: Path, record: RunRecord) -> pl.DataFrame | None:
    """Return the manifest of the first source of a run; None if it has none."""
    if not (folder / MANIFEST_FILE).exists():
        return None
    further = [entry.name for entry in record.suite.sources]
    return read_manifest(folder).filter(~pl.col("source").is_in(further))


def _with_source(table: pl.LazyFrame, run: Run, specs: Mapping[str, str]) -> pl.LazyFrame:
    """Make source names unique if one reader read several sources, since ids in two folders may be equal by
    chance.
    """
    if run.record is None:
        return table
    suite = run.record.suite
    reader, _ = split_spec(suite.source)
    if len({spec for spec in specs.values() if split_spec(spec)[0] == reader}) < 2:
        return table
    own = pl.col("source") == (suite.source_name or reader)
    return table.with_columns(source=pl.when(own).then(pl.lit(specs[suite.source])).otherwise("source"))


def _common_id(run: Run, specs: Mapping[str, str]) -> str | None:
    """Return an id that is equal for runs with the same samples and random draws, or None for a bare
    table.
    """
    if run.record is None:
        return None
    causes = run.record.suite.model_dump(mode="json", include={"source", "frame", "labels"})
    causes["source"] = specs[run.record.suite.source]
    return digest(json.dumps(causes, sort_keys=True), run.record.suite.seed).hex()


def _ids(table: pl.LazyFrame) -> tuple[str, ...]:
    ids = table.select(pl.col("run_id").unique()).collect(engine="streaming")["run_id"]
    return tuple(id_ for id_ in ids if id_ is not None)
