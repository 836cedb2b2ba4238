"""From a suite to units of work. A unit is some shifts on one slice of the samples, with all models inside, so that a
picture is made once; what a unit does follows from the run folder alone, wherever and whenever it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, SHIFTS, Model, Picture, Sample, Scorer, Setting, Shift, Source, Stop
from sorites.errors import SoritesError
from sorites.frame import Frame
from sorites.labels import Labels
from sorites.labels import labels as labels_of
from sorites.rng import digest
from sorites.suite import Dial, Fit, Suite

SLICE = 16
"""Samples per unit: few enough to resume and to share out, enough to batch."""


@dataclass(frozen=True)
class Unit:
    """``samples[start:stop]`` of one shift; a probe unit refines the failure points of the grid unit of the same slice."""

    shift: str
    start: int
    stop: int
    probe: bool = False

    @property
    def key(self) -> str:
        return f"{self.shift}-{self.start:07d}{'-probe' if self.probe else ''}"

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Columns:
    """The labels of the suite that a model has, and the column of its logits for each: it is asked only about those."""

    labels: NDArray[np.int64]
    places: NDArray[np.int64]
    known: frozenset[int]

    def of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits of the suite's labels, one row per picture."""
        whole = len(self.places) == logits.shape[1] and np.array_equal(self.places, np.arange(len(self.places)))
        return logits if whole else np.take(logits, self.places, axis=1)


@dataclass(frozen=True)
class Plan:
    """Everything a unit needs, resolved: which samples, which stops of which dials, which models."""

    suite: Suite
    source: str
    labels: Labels
    models: Mapping[str, Model]
    groups: Mapping[str, Sequence[Sample]]
    """Shift name to its samples: the clean ones for a shift that we make, its own for a captured one."""
    shifts: Mapping[str, Shift]
    """The shifts that we make, with their options; captured ones are not in it."""
    stops: Mapping[str, tuple[Stop, ...]]
    """The stops that each of those shifts visits."""
    columns: Mapping[str, Columns]
    scorers: Mapping[str, Scorer]
    """The scorers as the suite names them, not yet fitted."""
    framed: Callable[[str], Picture]
    """Returns the framed clean picture of a sample by its id; the last few slices are kept."""
    fit: Sequence[Sample] = ()
    """The training pictures of scorers, in order."""
    fitted: Mapping[str, Mapping[str, Scorer]] = field(default_factory=dict)
    """Model to its own scorers, ready to be called."""
    objects: tuple[str, ...] = ()
    """What was passed from Python as an object and cannot be made again from the run folder, by name."""

    def scorers_of(self, model: str) -> Mapping[str, Scorer]:
        return self.fitted.get(model, self.scorers)

    @functools.cached_property
    def clean_ids(self) -> frozenset[str]:
        """The samples that have a clean picture."""
        return frozenset(self.clean_samples)

    @functools.cached_property
    def clean_samples(self) -> Mapping[str, Sample]:
        """The clean samples by id."""
        return {sample.id: sample for sample in self.groups[CLEAN]}

    def units(self) -> list[Unit]:
        """Slice by slice, all shifts of a slice after each other: its pictures are then decoded once."""
        found = [
            Unit(shift, start, min(start + SLICE, len(samples)))
            for shift, samples in self.groups.items()
            for start in range(0, len(samples), SLICE)
        ]
        return sorted(found, key=lambda unit: unit.start)

    def probes(self) -> list[Unit]:
        """Only a dial can be refined: a grid has nothing between its settings."""
        return [
            Unit(u.shift, u.start, u.stop, probe=True)
            for u in self.units()
            if u.shift in self.shifts and self.shifts[u.shift].levels
        ]

    def images_of(self, unit: Unit) -> int:
        """How many pictures each model sees in a grid unit."""
        return len(unit) * len(self.stops.get(unit.shift, (0,)))

    def images(self) -> int:
        """How many pictures each model will see, probes apart."""
        return sum(self.images_of(unit) for unit in self.units())

    def family(self, shift: str) -> str:
        """A captured shift of a name that we make too belongs to the same family."""
        if shift == CLEAN:
            return CLEAN
        made = self.shifts.get(shift) or (SHIFTS.get(shift) if shift in SHIFTS.names() else None)
        return made.family if made else "captured"

    def is_framed(self, sample: Sample) -> bool:
        """Whether a model only scales the sample's pictures, because a frame was laid on them."""
        return sample.framed or self.suite.frame is not None

    def image_id(self, sample: Sample, shift: str, setting: Setting) -> str:
        if sample.image_id is not None and shift == sample.shift:
            return sample.image_id
        made = self.shifts.get(shift)
        version = 0 if made is None else made.version if not made.options else f"{made.version} {sorted(made.options.items())}"
        frame = self.suite.frame.canonical if self.suite.frame and not sample.framed else sample.framed
        return digest(self.source, sample.id, shift, version, setting.canonical, frame, self.suite.seed).hex()


def framed_picture(frame: Frame | None, sample: Sample) -> Picture:
    """Decode a sample and lay the frame on it, unless it came framed."""
    picture = sample.load()
    return picture if frame is None or sample.framed else frame(picture)


def make(
    suite: Suite, source: Source | None = None, models: Mapping[str, Model] | None = None, fit: Source | None = None
) -> Plan:
    """Resolve every name in the suite; the first that is wrong is an error before any work is done.

    A source, a model or a training source given as an object takes the place of what the suite names.
    """
    labels = labels_of(suite.labels)
    read = core.source(suite.source, labels) if source is None else source
    ordered = _in_order(read)
    taken, dials = _groups(suite, read.name, ordered)
    kept = set(list(dict.fromkeys(sample.id for sample in ordered))[: suite.limit])
    groups = {name: [sample for sample in group if sample.id in kept] for name, group in taken.items()}
    shifts = {dial.name: dial.shift() for dial in dials}
    stops = {dial.name: dial.stops() for dial in dials}
    if suite.refine and not any(shift.levels for shift in shifts.values()):
        raise SoritesError("refine: none of the suite's shifts is a dial, and between settings there is nothing to bisect")
    loaded = {spec: (models or {}).get(spec) or core.model(spec) for spec in suite.models}
    columns = {name: _columns(model, labels) for name, model in loaded.items()}
    scorers = {name: core.scorer(name) for name in suite.scorers}
    framed = _framed(suite.frame, groups[CLEAN])
    training = _training(suite.fit, labels, fit) if suite.fit else ()
    objects = (*(s.name for s in (source, fit) if s is not None), *(models or ()))
    return Plan(suite, read.name, labels, loaded, groups, shifts, stops, columns, scorers, framed, training, objects=objects)


def _training(fit: Fit, labels: Labels, source: Source | None) -> list[Sample]:
    read = core.source(fit.source, labels) if source is None else source
    clean = [sample for sample in _in_order(read) if sample.shift == CLEAN]
    _unique(clean)
    chosen = [sample for sample in clean if fit.split is None or sample.split == fit.split]
    if not chosen:
        splits = ", ".join(sorted({sample.split for sample in clean if sample.split})) or "none"
        of = "" if fit.split is None else f" of the split {fit.split!r}; its splits are {splits}"
        raise SoritesError(f"fit: the source {fit.source} holds no clean pictures{of}")
    return chosen[: fit.limit]


def _columns(model: Model, labels: Labels) -> Columns:
    place = {id_: column for column, id_ in enumerate(model.labels or labels.ids)}
    known = {i: place[id_] for i, id_ in enumerate(labels.ids) if id_ in place}
    if not known:
        raise SoritesError(f"model {model.name} knows none of the suite's labels, such as {labels.ids[0]!r}")
    return Columns(np.array(list(known)), np.array(list(known.values())), frozenset(known))


def _framed(frame: Frame | None, clean: Sequence[Sample]) -> Callable[[str], Picture]:
    by_id = {sample.id: sample for sample in clean}
    return functools.lru_cache(maxsize=8 * SLICE if frame else 0)(lambda id_: framed_picture(frame, by_id[id_]))


def _in_order(source: Source) -> list[Sample]:
    """Ordered by a hash of the sample's id: any prefix is a fair sample, and the source's own order does not matter."""

    def place(sample: Sample) -> tuple[bytes, str, float, str]:
        return digest(sample.id), sample.shift, sample.setting.severity or 0.0, sample.setting.canonical

    ordered = sorted(source, key=place)
    if not ordered:
        raise SoritesError(f"the source {source.name} holds no samples")
    return ordered


def _groups(suite: Suite, source: str, samples: list[Sample]) -> tuple[dict[str, list[Sample]], list[Dial]]:
    """A named shift that the source brings captured is taken as captured; any other is made from the clean samples."""
    captured: dict[str, list[Sample]] = {CLEAN: []}
    for sample in samples:
        captured.setdefault(sample.shift, []).append(sample)
    clean = captured[CLEAN]
    _unique(samples)
    if not suite.shifts:
        return captured, []
    groups, made = {CLEAN: clean}, []
    for dial in suite.shifts:
        if dial.name in captured:
            groups[dial.name] = [sample for sample in captured[dial.name] if _at_stop(sample.setting, dial)]
            if captured[dial.name] and not groups[dial.name]:
                raise SoritesError(f"the source {source} holds {dial.name}, but not at the levels, severities or settings asked")
        else:
            groups[dial.name] = clean
            made.append(dial)
    return groups, made


def _at_stop(setting: Setting, dial: Dial) -> bool:
    at_level = not dial.levels or setting.level in dial.levels
    at_severity = not dial.severities or setting.severity in dial.severities
    return (
        at_level
        and at_severity
        and (not dial.settings or any(part.items() <= dict(setting.params).items() for part in dial.settings))
    )


def _unique(samples: Sequence[Sample]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for sample in samples:
        key = (sample.id, sample.shift, sample.setting.canonical)
        if key in seen:
            raise SoritesError(f"the source has two {sample.shift} samples with the id {sample.id!r} and the same setting")
        seen.add(key)
