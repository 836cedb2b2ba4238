"""A plan without its samples and models, for workers in other processes.

The process that starts a run lists the sources once. A worker gets the outline of the plan once, loads the
models of one group, and receives the samples of a slice with each task. It neither lists a source nor reads
the manifest.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from sorites import core
from sorites.core import CLEAN, Sample, SettingValue
from sorites.core.errors import SoritesError
from sorites.core.labels import Labels
from sorites.core.packed import as_packed
from sorites.evaluation import plan as plans
from sorites.evaluation.plan import MAX_FRAMED_BYTES, Plan, Unit, own_dials, shift_of
from sorites.evaluation.samples import CleanImages
from sorites.evaluation.storage.contents import COLUMNS, guard_sample
from sorites.evaluation.storage.record import describe
from sorites.evaluation.storage.schema import RunRecord, first_difference
from sorites.suites.suite import Suite

# Bytes of a pickled sample above which a source is opened by each worker instead: its samples contain more
# than a reference to an image, such as a generator.
MAX_SAMPLE_BYTES = 8 << 20

# What a worker compares with the record of the run: everything that may differ on another machine.
_COMPARED = ("shifts", "models", "versions", "computing", "scorers")


@dataclass(frozen=True)
class Held:
    """The samples of a slice.

    Attributes:
        kind: The shift of the slice, or the field of the plan with its training images.
        start: The position of the first sample.
        samples: The samples.
        contents: Size, time and hash of each, if known; a sample that has changed since cannot be decoded.
        references: The clean samples of captured ones, for measures that compare both.
        training: Whether they are training or validation images.
    """

    kind: str
    start: int
    samples: tuple[Sample, ...]
    contents: tuple[Mapping[str, Any], ...] = ()
    references: tuple[Sample, ...] = ()
    training: bool = False

    def guarded(self) -> tuple[Sample, ...]:
        """Return the samples; those that have changed since the run started cannot be decoded."""
        if not self.contents:
            return self.samples
        pairs = zip(self.samples, self.contents, strict=True)
        return tuple(guard_sample(sample, row) for sample, row in pairs)


@dataclass(frozen=True)
class Outline:
    """The part of a plan that a worker needs before it gets a task; it can be pickled.

    Attributes:
        suite: The suite.
        source: The name of the first source.
        labels: The label space.
        settings: The settings of each applied shift.
        own: The shifts that are dials of samples.
        families: The families of captured shifts.
        slice: Samples per slice.
        same_answers: The classes that mean the same answer as a class.
        record: The record of the run.
    """

    suite: Suite
    source: str
    labels: Labels
    settings: Mapping[str, tuple[SettingValue, ...]]
    own: tuple[str, ...]
    families: Mapping[str, str]
    slice: int
    same_answers: Mapping[int, frozenset[int]]
    record: RunRecord

    @classmethod
    def of(cls, plan: Plan, record: RunRecord) -> Outline:
        """Return the outline of a plan."""
        captured = [name for name in plan.groups if name not in plan.shifts and name != CLEAN]
        return cls(
            plan.suite,
            plan.source,
            plan.labels,
            plan.settings,
            tuple(plan.own),
            {name: plan.family(name) for name in captured},
            plan.slice,
            plan.same_answers,
            record.having(files={}, places={}, inputs={}),
        )

    def with_models(self, names: Collection[str]) -> Plan:
        """Return the plan with some of its models and without samples.

        Raises:
            SoritesError: Models, shifts, scorers or libraries of this process differ from those of the run.
        """
        models, columns, cut = plans.loaded_models(self.suite, self.labels, names)
        applied = [dial for dial in self.suite.shifts if dial.name in self.settings]
        plan = Plan(
            suite=self.suite,
            source=self.source,
            labels=self.labels,
            models=models,
            groups={},
            shifts={dial.name: dial.shift() for dial in applied if dial.name not in self.own},
            settings=self.settings,
            columns=columns,
            scorers={name: core.scorer(name) for name in plans.scorer_names(self.suite)},
            framed=CleanImages(self.suite, as_packed(()), 0),
            restricted=cut,
            families=self.families,
            slice=self.slice,
            same_answers=self.same_answers,
        )
        if self.record.batch is not None:
            plan = plan.with_batch(self.record.batch)
        self._refuse_other(plan)
        return plan

    def _refuse_other(self, plan: Plan) -> None:
        here = describe(plan).compared()
        there = self.record.compared()
        for name in _COMPARED:
            own = {key: value for key, value in here.get(name, {}).items() if key not in self.own}
            stored = {key: there.get(name, {}).get(key) for key in own}
            if stored != own:
                raise SoritesError(
                    "a worker cannot evaluate this run, because models or libraries differ where it runs:"
                    f" {first_difference(stored, own, name)}"
                )

    def with_samples(self, plan: Plan, held: Held) -> Plan:
        """Return a plan of this outline with the samples of a slice."""
        samples = held.guarded()
        if held.training:
            return plans.with_training(plan, held.kind, samples)
        clean = as_packed([sample for sample in (*samples, *held.references) if sample.shift == CLEAN])
        dials = own_dials(clean)
        own = {name: dials[name] for name in self.own if name in dials}
        return replace(
            plan,
            groups={CLEAN: clean, held.kind: as_packed(samples)},
            shifts={**plan.shifts, **{name: shift_of(dial) for name, dial in own.items()}},
            framed=CleanImages(self.suite, clean, MAX_FRAMED_BYTES),
            own=own,
        )


class SampleSlices:
    """Packs the samples of slices of a plan, with what the manifest knows about them.

    Args:
        plan: The plan.
        contents: Size, time and hash of each sample, in the order of the manifest; None if the samples of the
            plan check this themselves, or are not checked.
    """

    def __init__(self, plan: Plan, contents: pl.DataFrame | None = None) -> None:
        self._plan = plan
        self._contents = (
            pl.DataFrame(schema=COLUMNS) if contents is None else contents.select(COLUMNS.names())
        )
        self._sendable: dict[tuple[str, bool], bool] = {}
        self._first: dict[str, int] = {}
        count = 0
        for name, group in plan.groups.items():
            if name == CLEAN or name not in plan.shifts:
                self._first[name] = count
                count += len(group)

    def pack(
        self, kind: str, start: int, stop: int, training: bool = False, references: bool = False
    ) -> Held | None:
        """Return the samples of a slice; None if those of its kind cannot be sent to another process.

        Args:
            kind: The shift of the slice, or the field of the plan with its training images.
            start: The position of the first sample.
            stop: The position after the last.
            training: Whether they are training or validation images.
            references: Whether to add the clean samples of captured ones.
        """
        if training:
            images = plans.training_of(self._plan, kind)[start:stop]
            held = Held(kind, start, tuple(images), training=True)
        else:
            samples = tuple(self._plan.groups[kind][start:stop])
            rows = tuple(self.rows(kind, start, stop).to_dicts()) if self._contents.height else ()
            held = Held(kind, start, samples, rows, self._references(samples) if references else ())
        if (kind, training) not in self._sendable:
            self._sendable[kind, training] = _is_sendable(held)
        return held if self._sendable[kind, training] else None

    def _references(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        clean = self._plan.clean_samples
        return tuple(clean[one.id] for one in samples if one.shift != CLEAN and one.id in clean)

    def rows(self, kind: str, start: int, stop: int) -> pl.DataFrame:
        """Return the rows of the manifest about the samples of a slice."""
        return self._contents[self.places(kind, start, stop)]

    def unhashed(self) -> set[int]:
        """Return the positions in the manifest of samples whose data is not hashed yet."""
        unknown = self._contents["content"].is_null() & self._contents["bytes"].is_not_null()
        return set(unknown.arg_true().to_list())

    def span(self, unit: Unit) -> range:
        """Return the positions of a clean or captured slice in the manifest."""
        first = self._first.get(unit.shift, self._first[CLEAN])
        return range(first + unit.start, first + unit.stop)

    def places(self, kind: str, start: int, stop: int) -> list[int]:
        """Return the positions of the samples of a slice in the manifest."""
        plan = self._plan
        if kind not in plan.own:
            first = self._first.get(kind, self._first[CLEAN])
            return list(range(first + start, first + stop))
        clean = (plan.clean_samples.place(id_) for id_ in plan.groups[kind][start:stop].ids())
        return [self._first[CLEAN] + place for place in clean if place is not None]


def _is_sendable(held: Held) -> bool:
    try:
        data = pickle.dumps(held, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # samples of users may contain anything
        return False
    return len(data) <= MAX_SAMPLE_BYTES * len(held.samples)
