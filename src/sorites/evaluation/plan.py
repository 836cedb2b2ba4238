"""From a suite to units of work.

A unit is some shifts on one slice of the samples, with all models inside, so that an image is made
once; what a unit does follows from the run folder alone, wherever and whenever it runs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import (
    CLEAN,
    SHIFTS,
    Attr,
    ImageF32,
    Model,
    Outputs,
    OwnDial,
    Sample,
    Scorer,
    Setting,
    SettingValue,
    Shift,
    Source,
)
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, OpenLabels
from sorites.core.labels import labels as labels_of
from sorites.core.packed import ById, PackedSamples, joined, packed, seen
from sorites.core.rng import digest
from sorites.core.torch_tools import Computing, computed
from sorites.evaluation.engines.interrupts import hear_once
from sorites.evaluation.samples import (
    CleanImages,
    by_shards,
    distinct,
    first_ids,
    frame_of,
    in_order,
    training_samples,
    unique,
    validation_samples,
)
from sorites.models.versions import versioned
from sorites.suites.suite import Dial, SourceEntry, Suite

# The models of a plan by their names in the table: with the suite's classes where they have none, and
# each with a version.


def load_models(suite: Suite, given: Mapping[str, Model], labels: Labels) -> dict[str, Model]:
    """Load the models of a suite; one that is given as an object takes the place of what the suite names."""
    found: dict[str, Model] = {}
    with computed(Computing(suite.device, suite.precision)):
        for entry, name in zip(suite.models, suite.model_names, strict=True):
            model = _with_classes(given.get(name) or core.model(entry), labels)
            _refuse_precision(suite, name, model, name in given)
            found[name] = model if model.version else versioned(model)
    return found


def _refuse_precision(suite: Suite, name: str, model: Model, is_given: bool) -> None:
    """Refuse another precision than float32 for a model that nobody here can tell what to compute with."""
    if suite.precision not in (None, "float32") and (is_given or model.module is None):
        raise SoritesError(
            f"precision {suite.precision}: the model {name} is no torch model that is loaded here; leave"
            " it out"
        )


def _with_classes(model: Model, labels: Labels) -> Model:
    """Return the model as it is, or one without classes of its own (zero-shot) with the suite's."""
    return model if model.for_classes is None else replace(model.for_classes(labels.names), name=model.name)


# A model that is asked about fewer classes than it has: its logits, head and torch module are cut down to
# those, so that right and wrong, confidence and every scorer are about the same classes.


def restricted(model: Model, places: NDArray[np.int64]) -> Model:
    """Return the model with only some columns of its logits, in the order of ``places``."""
    labels = model.labels or ()

    def forward(images: list[NDArray[Any]]) -> Outputs:
        outputs = model.forward(images)
        if outputs.logits is None:
            return outputs
        if outputs.logits.shape[1] != len(labels):
            wide = outputs.logits.shape[1]
            raise SoritesError(
                f"{model.name} gives {wide} logits for {len(labels)} labels; name its classes with --labels"
                " FILE"
            )
        return replace(outputs, logits=np.take(outputs.logits, places, axis=1))

    head = None if model.head is None else (model.head[0][places], model.head[1][places])
    module = None if model.module is None else _module(model.module, places)
    return replace(model, forward=forward, head=head, labels=tuple(labels[i] for i in places), module=module)


def _module(module: Any, places: NDArray[np.int64]) -> Any:
    import torch
    from torch import nn

    class Restricted(nn.Module):
        places: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.register_buffer("places", torch.from_numpy(np.array(places)))

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            given = self.module(images)
            logits, *rest = given if isinstance(given, tuple | list) else (given,)
            return (logits[:, self.places], *rest)

    return Restricted().eval()


# The samples of a suite by shift: one that the source brings captured is taken as captured, one that
# samples have as a dial of their own from those samples, and any other is made from the clean samples.


@dataclass(frozen=True)
class Groups:
    """The samples of each shift, and the settings of the shifts that are dials or grids here."""

    samples: dict[str, PackedSamples] = field(default_factory=dict)
    shifts: dict[str, Shift] = field(default_factory=dict)
    settings: dict[str, tuple[SettingValue, ...]] = field(default_factory=dict)
    own: dict[str, OwnDial] = field(default_factory=dict)
    """The dials that samples have themselves, as the first of them has each."""


def grouped(suite: Suite, source: str, samples: Sequence[Sample]) -> Groups:
    """Group the samples of a suite by shift.

    A suite without shifts takes everything that its source brings.
    """
    captured = by_shift(samples)
    unique(samples)
    own = own_dials(samples)
    for name in own.keys() & captured.keys():
        raise SoritesError(
            f"the source {source} holds {name} twice: as captured images and as a dial of its samples"
        )
    found = Groups({CLEAN: captured[CLEAN]} if suite.shifts else dict(captured))
    for dial in suite.shifts or tuple(Dial(name=name) for name in own):
        if dial.name in captured:
            found.samples[dial.name] = captured[dial.name].where(functools.partial(_at_setting, dial))
            if captured[dial.name] and not found.samples[dial.name]:
                raise SoritesError(
                    f"the source {source} holds {dial.name}, but not at the levels, severities or settings"
                    " asked"
                )
        elif dial.name in own:
            found.own[dial.name] = own[dial.name]
            found.samples[dial.name] = captured[CLEAN].where(functools.partial(_has, dial.name))
            found.shifts[dial.name] = shift_of(own[dial.name], dial)
            found.settings[dial.name] = dial.setting_values(found.shifts[dial.name], foresee=False)
        elif own and dial.name not in SHIFTS.names():
            raise UnknownName(
                "shift", dial.name, [*own, *SHIFTS.names()], f"The samples of {source} have {', '.join(own)}."
            )
        else:
            found.samples[dial.name] = captured[CLEAN]
            found.shifts[dial.name] = dial.shift()
            found.settings[dial.name] = dial.setting_values()
    return found


def by_shift(samples: Sequence[Sample]) -> dict[str, PackedSamples]:
    """Return the samples of each shift that a source brings, the clean ones first, be there any or not."""
    held = seen(samples)
    if held.plain():
        return {CLEAN: held}
    places: dict[str, list[int]] = {CLEAN: []}
    for place, sample in enumerate(held):
        places.setdefault(sample.shift, []).append(place)
    return {shift: held.take(some) for shift, some in places.items()}


def own_dials(samples: Sequence[Sample]) -> dict[str, OwnDial]:
    """Return the dials that samples have, by name, as the first of them has each; one that another
    has otherwise is an error.
    """
    found: dict[str, tuple[OwnDial, Sample]] = {}
    for sample in () if (held := seen(samples)).plain() else held:
        for dial in sample.dials:
            first, whose = found.setdefault(dial.name, (dial, sample))
            for key, value in dial.shared.items():
                if value != first.shared[key]:
                    raise SoritesError(
                        f"the dial {dial.name} is not the same for all samples: its {key} is"
                        f" {first.shared[key]!r} for {whose.id} and {value!r} for {sample.id}. Give one of"
                        " them another name."
                    )
    return {name: dial for name, (dial, _) in found.items()}


def shift_of(own: OwnDial, asked: Dial | None = None) -> Shift:
    """Return a dial that samples have as the shift that a plan lists: its images come from the
    samples alone.
    """
    if asked is not None and asked.options:
        raise SoritesError(
            f"{own.name} is a dial that samples have themselves: it has no options, got"
            f" {', '.join(asked.options)}"
        )

    def apply(image: ImageF32, severity: float, rng: object) -> ImageF32:
        raise SoritesError(f"{own.name} is a dial of the samples' own: it moves no other image")

    return Shift(
        own.name,
        apply,
        own.family,
        own.unit,
        own.levels,
        version=own.version,
        about=own.about,
        moves_objects=True,
    )


def _has(dial: str, sample: Sample) -> bool:
    return sample.dial(dial) is not None


def _at_setting(dial: Dial, sample: Sample) -> bool:
    setting = sample.setting
    at_level = not dial.levels or setting.level in dial.levels
    at_severity = not dial.severities or setting.severity in dial.severities
    return (
        at_level
        and at_severity
        and (not dial.settings or any(part.items() <= dict(setting.params).items() for part in dial.settings))
    )


# Samples per unit: few enough to resume and to share out, enough to batch.
SLICE = 16
# Units of a plan beyond which they grow: each is a file for each model, and a folder of millions is
# slow everywhere.
MOST_UNITS = 50_000


@dataclass(frozen=True)
class Unit:
    """``samples[start:stop]`` of one shift; a probe unit refines the failure severities of the grid
    unit of the same slice.
    """

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
    """The labels of the suite that a model has, and the column of its logits for each: it is asked
    only about those.
    """

    labels: NDArray[np.int64]
    places: NDArray[np.int64]
    known: frozenset[int]

    def of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of the suite's labels, one row per image."""
        whole = len(self.places) == logits.shape[1] and np.array_equal(
            self.places, np.arange(len(self.places))
        )
        return logits if whole else np.take(logits, self.places, axis=1)


@dataclass(frozen=True)
class Plan:
    """Everything a unit needs, resolved: which samples, which stops of which dials, which models."""

    suite: Suite
    source: str
    labels: Labels
    models: Mapping[str, Model]
    groups: Mapping[str, PackedSamples]
    """Shift name to its samples: the clean ones for a shift that we make, its own for a captured
    one or for a dial of theirs.
    """
    shifts: Mapping[str, Shift]
    """The shifts that we make, with their options; captured ones are not in it."""
    settings: Mapping[str, tuple[SettingValue, ...]]
    """The settings that each of those shifts visits."""
    columns: Mapping[str, Columns]
    scorers: Mapping[str, Scorer]
    """The scorers as the suite names them, not yet fitted."""
    framed: CleanImages
    """Returns the framed clean image of a sample by its id; the last few slices are kept."""
    fit: Sequence[Sample] = ()
    """The training images of scorers, in order."""
    fitted: Mapping[str, Mapping[str, Scorer]] = field(default_factory=dict)
    """Model to its own scorers, ready to be called."""
    searches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Model to what a search of parameters found, by scorer."""
    validation: Sequence[Sample] = ()
    """The in-distribution images that a search of parameters is judged on, in order."""
    ood: Sequence[Sample] = ()
    """The OOD ones, where the suite names a source of them."""
    objects: tuple[str, ...] = ()
    """The names of objects passed from Python, which cannot be made again from the run folder."""
    restricted: tuple[str, ...] = ()
    """The models that have more classes than the suite asks about."""
    left_out: tuple[str, ...] = ()
    """Scorers of the suite that need training images, where it has none."""
    limited: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The sources that a limit cuts: how many of their samples are taken, of how many."""
    own: Mapping[str, OwnDial] = field(default_factory=dict)
    """Those of the shifts that are dials of samples' own; only samples that have one are in its group."""
    slice: int = SLICE
    """Samples per unit of work; a run folder keeps that of its beginning."""

    def width_of(self, model: str) -> int:
        """Return how many logits a model gives for each image, or how many classes a detector has."""
        return len(self.models[model].labels or self.labels.ids)

    def scorers_of(self, model: str) -> Mapping[str, Scorer]:
        return self.fitted.get(model, self.scorers)

    @functools.cached_property
    def clean_ids(self) -> Set[str]:
        """Return the ids of the samples that have a clean image."""
        return self.clean_samples.keys()

    @functools.cached_property
    def clean_samples(self) -> ById:
        """Return the clean samples by id."""
        return ById(self.groups[CLEAN])

    def units(self) -> list[Unit]:
        """List the units slice by slice, all shifts of a slice after each other: its images are
        then decoded once.
        """
        found = [
            Unit(shift, start, min(start + self.slice, len(samples)))
            for shift, samples in self.groups.items()
            for start in range(0, len(samples), self.slice)
        ]
        return sorted(found, key=lambda unit: unit.start)

    def probes(self) -> list[Unit]:
        """List the units that refine a dial; a grid has nothing between its settings."""
        return [
            Unit(u.shift, u.start, u.stop, probe=True)
            for u in self.units()
            if u.shift in self.shifts and self.shifts[u.shift].levels
        ]

    def clean_units(self, unit: Unit) -> list[Unit]:
        """List the clean units that hold the samples of a unit: one, or several where only some
        samples have its dial.
        """
        clean, size = self.groups[CLEAN], self.slice
        places = map(self.clean_samples.place, self.groups[unit.shift][unit.start : unit.stop].ids())
        starts = {place // size * size for place in places if place is not None}
        return [Unit(CLEAN, start, min(start + size, len(clean))) for start in sorted(starts)]

    def images_of(self, unit: Unit) -> int:
        """Count the images that each model sees in a grid unit."""
        return len(unit) * len(self.settings.get(unit.shift, (0,)))

    def images(self) -> int:
        """Count the images that each model will see, probes not counted."""
        return sum(self.images_of(unit) for unit in self.units())

    def family(self, shift: str) -> str:
        """Return the family of a shift; a captured shift of a name that we make too belongs to the
        same family.
        """
        if shift == CLEAN:
            return CLEAN
        if shift not in self.shifts and (held := self.groups.get(shift)) and held[0].family:
            return held[0].family
        made = self.shifts.get(shift) or (SHIFTS.get(shift) if shift in SHIFTS.names() else None)
        return made.family if made else "captured"

    def source_of(self, sample: Sample) -> str:
        """Return the name of the sample's source in the table."""
        return sample.source or self.suite.source_name or self.source

    def is_ood(self, sample: Sample) -> bool:
        """Return whether the sample comes from a source whose images count as unknown to every model."""
        return self.further[sample.source].role == "ood" if sample.source else False

    @functools.cached_property
    def further(self) -> Mapping[str, SourceEntry]:
        """The sources beside the first, by name."""
        return {entry.name: entry for entry in self.suite.sources}

    def is_framed(self, sample: Sample) -> bool:
        """Return whether a model only scales the sample's images, because a frame was laid on them."""
        return sample.framed or frame_of(self.suite, sample) is not None

    def image_id(self, sample: Sample, shift: str, setting: Setting) -> str:
        if sample.image_id is not None and shift == sample.shift:
            return sample.image_id
        made = self.shifts.get(shift)
        version = (
            0
            if made is None
            else made.version
            if not made.options
            else f"{made.version} {sorted(made.options.items())}"
        )
        laid = frame_of(self.suite, sample)
        frame = laid.canonical if laid and not sample.framed else sample.framed
        return digest(
            sample.source or self.source, sample.id, shift, version, setting.canonical, frame, self.suite.seed
        ).hex()


def make(
    suite: Suite,
    source: Source | None = None,
    models: Mapping[str, Model] | None = None,
    fit: Source | None = None,
    further: Mapping[str, Source] | None = None,
) -> Plan:
    """Resolve every name in the suite; the first that is wrong is an error before any work is done.

    A source, a model, a training source or a further source given as an object takes the place of
    what the suite names.
    """
    labels = labels_of(suite.labels)
    read = _first(suite, labels) if source is None else source
    first = seen(read.samples) if suite.order else in_order(read)
    others = [_further(entry, labels, (further or {}).get(entry.name)) for entry in suite.sources]
    taken = grouped(suite, read.name, joined([first, *others]))
    limits = (suite.limit, *(entry.limit for entry in suite.sources))
    named = (suite.source_name or read.name, *(entry.name for entry in suite.sources))
    counts = [
        None if limit is None else distinct(some)
        for some, limit in zip((first, *others), limits, strict=True)
    ]
    limited = {
        name: (n, of)
        for name, n, of in zip(named, limits, counts, strict=True)
        if n is not None and of and n < of
    }
    groups = _within(limits, (first, *others), taken.samples) if limited else taken.samples
    if suite.refine and not any(shift.levels for shift in taken.shifts.values()):
        raise SoritesError(
            "refine: none of the suite's shifts is a dial, and between settings there is nothing to bisect"
        )
    hear_once()
    whole = load_models(suite, models or {}, labels)
    boxed = any(sample.ground_truth is not None for sample in itertools.islice(first, 1))
    label = {name: model for name, model in whole.items() if model.output == "label"}
    cut = [
        name
        for name, model in label.items()
        if model.labels and len(_columns(model, labels, boxed).places) < len(model.labels)
    ]
    loaded = {
        name: restricted(m, _columns(m, labels).places) if name in cut else m for name, m in whole.items()
    }
    columns = {name: _columns(model, labels) for name, model in loaded.items()}
    scorers = {
        name: core.scorer(name) for name in (*suite.scorers, *(suite.scorers_if_fitted if suite.fit else ()))
    }
    framed = _clean_images(suite, groups[CLEAN])
    training = training_samples(suite.fit, labels, fit) if suite.fit else ()
    in_distribution, ood = validation_samples(suite.fit, labels, fit, training) if suite.fit else ((), ())
    objects = (*(s.name for s in (source, fit) if s is not None), *(further or ()), *(models or ()))
    left_out = () if suite.fit else suite.scorers_if_fitted
    return Plan(
        suite, read.name, labels, loaded, groups, taken.shifts, taken.settings, columns, scorers, framed, training,
        validation=in_distribution, ood=ood, objects=objects, restricted=tuple(cut), left_out=left_out, limited=limited,
        own=taken.own, slice=slice_for([len(group) for group in groups.values()]),
    )  # fmt: skip


def _within(
    limits: Sequence[int | None], sources: Sequence[PackedSamples], groups: Mapping[str, PackedSamples]
) -> Mapping[str, PackedSamples]:
    """Return the groups without samples beyond the limits of their sources; a limit counts ids."""
    kept = {id_ for samples, limit in zip(sources, limits, strict=True) for id_ in first_ids(samples, limit)}
    return {
        name: group.take([i for i, id_ in enumerate(group.ids()) if id_ in kept])
        for name, group in groups.items()
    }


def slice_for(sizes: Sequence[int]) -> int:
    """Return how many samples a unit takes in a plan of groups of these sizes: 16, or more of them
    where the plan is huge.
    """
    size = SLICE
    while sum(-(-count // size) for count in sizes) > MOST_UNITS:
        size *= 2
    return size


def _first(suite: Suite, labels: Labels) -> Source:
    return by_shards(suite.source, labels, suite.limit) if suite.order else core.source(suite.source, labels)


def with_changed(plan: Plan, change: Callable[[Sample], Sample]) -> Plan:
    """Return the plan with what a function makes of each sample in its place, made when it is asked
    for; ids stay.
    """
    groups = {name: group.changed(change) for name, group in plan.groups.items()}
    return replace(plan, groups=groups, framed=_clean_images(plan.suite, groups[CLEAN]))


def _clean_images(suite: Suite, clean: PackedSamples) -> CleanImages:
    # whole photographs are too large to keep
    return CleanImages(suite, clean, 8 * SLICE if suite.frame else 0)


def _columns(model: Model, labels: Labels, boxed: bool = False) -> Columns:
    place = {id_: column for column, id_ in enumerate(model.labels or labels.ids)}
    # classes of detectors go by name: "traffic_light" is "traffic light"
    if model.output == "boxes" and model.labels:
        own, both = Labels(model.labels, model.labels), zip(labels.ids, labels.names, strict=True)
        place = {id_: column for id_, name in both if (column := own.get(id_, name)) is not None}
    known = {i: place[id_] for i, id_ in enumerate(labels.ids) if id_ in place}
    if not known:
        if boxed and model.output == "label":
            raise SoritesError(
                f"model {model.name} is a classifier, and the source has boxes: name a detector, such as"
                " picodet"
            )
        raise SoritesError(f"model {model.name} knows none of the suite's labels, such as {labels.ids[0]!r}")
    return Columns(np.array(list(known)), np.array(list(known.values())), frozenset(known))


def _further(entry: SourceEntry, labels: Labels, source: Source | None) -> PackedSamples:
    """Return the samples of a further source under names that no other source has; OOD ones
    have no label here.
    """
    ood = entry.role == "ood"
    space = OpenLabels(labels.ids, labels.names, dict(labels.aliases)) if ood else labels
    read = core.source(entry.spec, space) if source is None else source
    group = () if entry.group is None else (Attr("group", entry.group),)
    bare: dict[str, Any] = {"label": None, "accept": frozenset()} if ood else {}
    return seen(packed(
        replace(
            sample, id=f"{entry.name}/{sample.id}", source=entry.name, attrs=tuple(dict.fromkeys((*sample.attrs, *group))), **bare
        )
        for sample in in_order(read)
    ))  # fmt: skip
