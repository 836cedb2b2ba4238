"""From a suite to a plan: resolve all names and divide the samples into slices.

A slice (``Unit``) is a range of samples of one shift; all models evaluate it together, so that each image is
made once. Its result depends only on the run folder, wherever and whenever it is computed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import (
    CLEAN,
    SHIFTS,
    Attr,
    Graph,
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
from sorites.core.compute.passes import then
from sorites.core.compute.torch_tools import ComputeOptions, use_compute_options
from sorites.core.errors import Notice, SoritesError, UnknownName, tell
from sorites.core.labels import Labels, OpenLabels, imagenet, matched_text
from sorites.core.labels import labels as labels_of
from sorites.core.messages import option
from sorites.core.packed import ById, PackedSamples, as_packed, concatenate, packed
from sorites.core.rng import digest
from sorites.evaluation.engines.interrupts import arm_second_interrupt
from sorites.evaluation.samples import (
    CleanImages,
    by_shards,
    check_unique,
    distinct,
    first_ids,
    frame_of,
    hashed_samples,
    training_samples,
    unseen,
    validation_samples,
)
from sorites.evaluation.storage.schema import SAMPLES_PER_UNIT, SearchResult
from sorites.io.paths import following_links
from sorites.models.torch_module import module_device
from sorites.models.trial import settle_scale
from sorites.models.versions import with_version
from sorites.suites.suite import Dial, SourceEntry, Suite

# Framed clean images that are kept: 1,700 of 224 px, those that 64 workers use at a time with two shifts.
MAX_FRAMED_BYTES = 1 << 28


def load_models(
    suite: Suite,
    given: Mapping[str, Model],
    labels: Labels,
    load: Callable[[str], Model] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, Model]:
    """Load the models of a suite, or only some of them; models in ``given`` replace those of the same
    name.
    """
    loaded: dict[str, Model] = {}
    with use_compute_options(ComputeOptions(suite.device, suite.precision)):
        for entry, name in zip(suite.models, suite.model_names, strict=True):
            if only is not None and name not in only:
                continue
            model = _with_classes(given.get(name) or (load or core.model)(entry), labels)
            _refuse_precision(suite, name, model)
            loaded[name] = settle_scale(model) if model.version else with_version(model)
    return loaded


def models_on(plan: Plan, device: str) -> dict[str, Model]:
    """Load the models of a plan again, on another device of the same kind."""
    suite = plan.suite.model_copy(update={"device": device})
    reduced, _ = _restricted_models(load_models(suite, {}, plan.labels), plan.labels, False)
    sizes = {name: model.batch for name, model in plan.models.items()}
    return {name: model.with_batch(sizes[name] or 1) for name, model in reduced.items()}


def _refuse_precision(suite: Suite, name: str, model: Model) -> None:
    """Raise a ``SoritesError`` if a precision other than float32 is requested for a model that does not have
    it.
    """
    if suite.precision not in (None, "float32", model.backend.precision):
        raise SoritesError(
            f"precision {suite.precision}: model {name} is not a torch model loaded by Sorites, so its"
            " precision cannot be changed; leave it out"
        )


def _with_classes(model: Model, labels: Labels) -> Model:
    """Give a zero-shot model the classes of the suite; return other models unchanged."""
    return model if model.for_classes is None else replace(model.for_classes(labels.names), name=model.name)


def restricted(model: Model, places: NDArray[np.int64]) -> Model:
    """Return the model with only some columns of its logits, in the order of ``places``.

    Logits, head and torch module are all reduced, so that predictions, confidence and scorers use the same
    classes.
    """
    labels = model.labels or ()

    def reduce(_: int, outputs: Outputs) -> Outputs:
        if outputs.logits is None:
            return outputs
        if outputs.logits.shape[1] != len(labels):
            width = outputs.logits.shape[1]
            raise SoritesError(
                f"{model.name} gives {width} logits for {len(labels)} labels; name its classes with"
                f" {option('labels', 'FILE')}"
            )
        return replace(outputs, logits=np.take(outputs.logits, places, axis=1))

    head = None if model.head is None else (model.head[0][places], model.head[1][places])
    module = None if model.module is None else _restricted_module(model.module, places)
    return replace(
        model,
        forward=then(model.forward, reduce),
        head=head,
        labels=tuple(labels[i] for i in places),
        module=module,
        graph=None if model.graph is None else functools.partial(_restricted_graph, model.graph, places),
    )


def _restricted_graph(graph: Callable[[], Graph], places: NDArray[np.int64]) -> Graph:
    whole = graph()
    columns = places if whole.columns is None else np.take(whole.columns, places)
    return replace(whole, columns=tuple(columns.tolist()))


def _restricted_module(module: Any, places: NDArray[np.int64]) -> Any:
    import torch
    from torch import nn

    class Restricted(nn.Module):
        places: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.register_buffer("places", torch.from_numpy(np.array(places)))

        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs = self.module(images)
            logits, *rest = outputs if isinstance(outputs, tuple | list) else (outputs,)
            return (logits[:, self.places], *rest)

    return Restricted().eval().to(module_device(module))


# Samples by shift: captured shifts use their captured images, dials the samples that have them, and all other
# shifts are applied to the clean samples.


@dataclass(frozen=True)
class Groups:
    """The samples of each shift, and the shifts that are applied here with their settings."""

    samples: dict[str, PackedSamples] = field(default_factory=dict)
    shifts: dict[str, Shift] = field(default_factory=dict)
    settings: dict[str, tuple[SettingValue, ...]] = field(default_factory=dict)
    own: dict[str, OwnDial] = field(default_factory=dict)
    """Dials of samples by name, taken from the first sample that has each."""


def group_samples(suite: Suite, source: str, samples: Sequence[Sample]) -> Groups:
    """Group the samples of a suite by shift.

    A suite without shifts uses everything that its source provides.
    """
    captured = by_shift(samples)
    check_unique(samples)
    own = own_dials(samples)
    for name in own.keys() & captured.keys():
        raise SoritesError(
            f"the source {source} has {name} twice: as captured images and as a dial of its samples"
        )
    groups = Groups({CLEAN: captured[CLEAN]} if suite.dials else dict(captured))
    for dial in suite.dials or tuple(Dial(name=name) for name in own):
        if not isinstance(dial, Dial):
            groups.samples[dial.name] = captured[CLEAN]
            groups.shifts[dial.name] = dial.shift()
            groups.settings[dial.name] = dial.setting_values(groups.shifts[dial.name])
        elif dial.name in captured:
            groups.samples[dial.name] = captured[dial.name].where(functools.partial(_at_setting, dial))
            if captured[dial.name] and not groups.samples[dial.name]:
                raise SoritesError(
                    f"the source {source} has {dial.name}, but not at the requested levels, severities or"
                    " settings"
                )
        elif dial.name in own:
            groups.own[dial.name] = own[dial.name]
            groups.samples[dial.name] = captured[CLEAN].where(functools.partial(_has, dial.name))
            groups.shifts[dial.name] = shift_of(own[dial.name], dial)
            groups.settings[dial.name] = dial.setting_values(groups.shifts[dial.name], foresee=False)
        elif own and dial.name not in SHIFTS:
            raise UnknownName(
                "shift", dial.name, [*own, *SHIFTS.names()], f"The samples of {source} have {', '.join(own)}."
            )
        else:
            groups.samples[dial.name] = captured[CLEAN]
            groups.shifts[dial.name] = dial.shift()
            groups.settings[dial.name] = dial.setting_values()
    return groups


def by_shift(samples: Sequence[Sample]) -> dict[str, PackedSamples]:
    """Return the samples of each shift of a source; the clean ones come first, even if there are none."""
    all_samples = as_packed(samples)
    if all_samples.plain():
        return {CLEAN: all_samples}
    return {CLEAN: all_samples.take([]), **all_samples.by("shift")}


def own_dials(samples: Sequence[Sample]) -> dict[str, OwnDial]:
    """Return the dials of samples by name.

    Raises:
        SoritesError: Two samples have different dials of the same name.
    """
    first_of: dict[str, tuple[OwnDial, Sample]] = {}
    for sample in as_packed(samples).having("dials"):
        for dial in sample.dials:
            first, owner = first_of.setdefault(dial.name, (dial, sample))
            for key, value in dial.shared.items():
                if value != first.shared[key]:
                    raise SoritesError(
                        f"the dial {dial.name} is not the same for all samples: its {key} is"
                        f" {first.shared[key]!r} for {owner.id} and {value!r} for {sample.id}. Rename"
                        " one of them."
                    )
    return {name: dial for name, (dial, _) in first_of.items()}


def shift_of(own: OwnDial, requested: Dial | None = None) -> Shift:
    """Return a dial of samples as a shift; its images come only from the samples."""
    if requested is not None and requested.options:
        raise SoritesError(
            f"{own.name} is a dial of samples and has no options, got {', '.join(requested.options)}"
        )

    def apply(image: ImageF32, severity: float, rng: object) -> ImageF32:
        raise SoritesError(f"{own.name} is a dial of samples: it cannot be applied to other images")

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


# Maximum number of slices times groups of models before slices grow: each is one file, and another one if
# failure severities are refined. Folders with millions of files are slow.
MAX_UNITS = 50_000


@dataclass(frozen=True)
class Unit:
    """The slice ``samples[start:stop]`` of one shift; a probe slice refines the failure severities of the
    same slice.
    """

    shift: str
    start: int
    stop: int
    probe: bool = False

    @property
    def key(self) -> str:
        """Text for file names."""
        return self.key_of(self.shift)

    def key_of(self, shift: str) -> str:
        """Return the text for file names with another name of the shift."""
        return f"{shift}-{self.start:07d}{'-probe' if self.probe else ''}"

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Columns:
    """The labels of the suite that a model has, and their columns in its logits."""

    labels: NDArray[np.int64]
    places: NDArray[np.int64]
    known: frozenset[int]

    def of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the logits of these labels, one row per image."""
        unchanged = len(self.places) == logits.shape[1] and np.array_equal(
            self.places, np.arange(len(self.places))
        )
        return logits if unchanged else np.take(logits, self.places, axis=1)


@dataclass(frozen=True)
class Plan:
    """A resolved suite: samples, settings, models and scorers."""

    suite: Suite
    source: str
    labels: Labels
    models: Mapping[str, Model]
    groups: Mapping[str, PackedSamples]
    """Samples by shift: clean ones for applied shifts, else the captured images or the samples with that
    dial.
    """
    shifts: Mapping[str, Shift]
    """The applied shifts with their options; captured shifts are not included."""
    settings: Mapping[str, tuple[SettingValue, ...]]
    """The settings of each applied shift."""
    columns: Mapping[str, Columns]
    scorers: Mapping[str, Scorer]
    """The scorers of the suite, not yet fitted."""
    framed: CleanImages
    """Framed clean images by sample id; the last few slices are cached."""
    fit: Sequence[Sample] = ()
    """Training images of scorers, in order."""
    fitted: Mapping[str, Mapping[str, Scorer]] = field(default_factory=dict)
    """Fitted scorers by model."""
    searches: Mapping[str, Mapping[str, SearchResult]] = field(default_factory=dict)
    """Results of parameter searches by model and scorer."""
    validation: Sequence[Sample] = ()
    """In-distribution validation images, in order."""
    ood: Sequence[Sample] = ()
    """OOD validation images, if the suite has a source of them."""
    objects: tuple[str, ...] = ()
    """Names of objects passed from Python, which cannot be recreated from the run folder."""
    restricted: tuple[str, ...] = ()
    """Models that have more classes than the suite."""
    left_out: tuple[str, ...] = ()
    """Scorers that are skipped because the suite has no training images."""
    limited: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Sources that are cut by a limit: samples used, and samples available."""
    own: Mapping[str, OwnDial] = field(default_factory=dict)
    """The shifts that are dials of samples; their groups contain only samples that have them."""
    slice: int = SAMPLES_PER_UNIT
    """Samples per slice; fixed when a run folder is created."""
    families: Mapping[str, str] = field(default_factory=dict)
    """Families of captured shifts whose samples are not all here."""
    same_answers: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """For each class that is never correct without others: all classes that are correct wherever it is."""

    def with_batch(self, size: int) -> Plan:
        """Return the plan with passes of exactly ``size`` images for the models whose rows depend on it."""
        return replace(self, models={name: model.with_batch(size) for name, model in self.models.items()})

    def planned_settings(self, shift: str) -> tuple[Setting, ...]:
        """Return the settings of an applied shift; they are made once, with their text for image ids."""
        return self._planned_settings[shift]

    @functools.cached_property
    def _planned_settings(self) -> Mapping[str, tuple[Setting, ...]]:
        return {
            name: tuple(shift.setting(setting) for setting in self.settings.get(name, ()))
            for name, shift in self.shifts.items()
        }

    def width_of(self, model: str) -> int:
        """Return the number of logits of a model, or the number of classes of a detector."""
        return len(self.models[model].labels or self.labels.ids)

    def scorers_of(self, model: str) -> Mapping[str, Scorer]:
        """Return the scorers of a model, fitted if they are."""
        return self.fitted.get(model, self.scorers)

    @functools.cached_property
    def clean_ids(self) -> Set[str]:
        """Ids of the samples that have a clean image."""
        return self.clean_samples.keys()

    @functools.cached_property
    def clean_samples(self) -> ById:
        """Clean samples by id."""
        return ById(self.groups[CLEAN])

    def units(self) -> list[Unit]:
        """Return the slices, with all shifts of a range of samples in a row, so that its images are decoded
        once.
        """
        slices = [
            Unit(shift, start, min(start + self.slice, len(samples)))
            for shift, samples in self.groups.items()
            for start in range(0, len(samples), self.slice)
        ]
        return sorted(slices, key=lambda unit: unit.start)

    def probes(self) -> list[Unit]:
        """Return the slices that refine failure severities; grids have nothing between their settings."""
        return [
            Unit(u.shift, u.start, u.stop, probe=True)
            for u in self.units()
            if u.shift in self.shifts and self.shifts[u.shift].levels
        ]

    def clean_units(self, unit: Unit) -> list[Unit]:
        """Return the clean slices that contain the samples of a slice: several if only some samples have its
        dial.
        """
        clean, size = self.groups[CLEAN], self.slice
        indices = map(self.clean_samples.place, self.groups[unit.shift][unit.start : unit.stop].ids())
        starts = {index // size * size for index in indices if index is not None}
        return [Unit(CLEAN, start, min(start + size, len(clean))) for start in sorted(starts)]

    def images_of(self, unit: Unit) -> int:
        """Return the number of images per model in a slice."""
        return len(unit) * len(self.settings.get(unit.shift, (0,)))

    def images(self) -> int:
        """Return the number of images per model, without probes."""
        return sum(self.images_of(unit) for unit in self.units())

    def family(self, shift: str) -> str:
        """Return the family of a shift; a captured shift belongs to the family of the registered shift of
        that name.
        """
        if shift == CLEAN:
            return CLEAN
        if shift in self.families:
            return self.families[shift]
        if shift not in self.shifts and (group := self.groups.get(shift)) and group[0].family:
            return group[0].family
        shift_ = self.shifts.get(shift) or (SHIFTS.get(shift) if shift in SHIFTS else None)
        return shift_.family if shift_ else "captured"

    def source_of(self, sample: Sample) -> str:
        """Return the name of the sample's source in the table."""
        return sample.source or self.suite.source_name or self.source

    def is_ood(self, sample: Sample) -> bool:
        """Return whether the sample's source has the role ``ood``."""
        return self.further[sample.source].role == "ood" if sample.source else False

    @functools.cached_property
    def further(self) -> Mapping[str, SourceEntry]:
        """Further sources by name."""
        return {entry.name: entry for entry in self.suite.sources}

    def is_framed(self, sample: Sample) -> bool:
        """Return whether a frame was applied to the sample's images, so that models only scale them."""
        return sample.framed or frame_of(self.suite, sample) is not None

    def image_id(self, sample: Sample, shift: str, setting: Setting) -> str:
        """Return the id of an image: a hash of everything that determines its pixels."""
        if sample.image_id is not None and shift == sample.shift:
            return sample.image_id
        applied = self.shifts.get(shift)
        version = (
            0
            if applied is None
            else applied.version
            if not applied.options
            else f"{applied.version} {sorted(applied.options.items())}"
        )
        frame_ = frame_of(self.suite, sample)
        frame = frame_.canonical if frame_ and not sample.framed else sample.framed
        return digest(
            sample.source or self.source, sample.id, shift, version, setting.canonical, frame, self.suite.seed
        ).hex()


def make(
    suite: Suite,
    source: Source | None = None,
    models: Mapping[str, Model] | None = None,
    fit: Source | None = None,
    further: Mapping[str, Source] | None = None,
    load: Callable[[str], Model] | None = None,
) -> Plan:
    """Resolve every name in a suite; wrong names raise an error before any work is done.

    Args:
        suite: The suite.
        source: Replaces the first source.
        models: Replace models of the same name.
        fit: Replaces the source of training images.
        further: Replace further sources of the same name.
        load: Loads a model by its spec; several plans may share one that keeps what it has loaded.
    """
    with following_links(suite.follow_links):
        return _make(suite, source, models or {}, fit, further or {}, load)


def _make(
    suite: Suite,
    source: Source | None,
    models: Mapping[str, Model],
    fit: Source | None,
    further: Mapping[str, Source],
    load: Callable[[str], Model] | None,
) -> Plan:
    objects = (*(obj.name for obj in (source, fit) if obj is not None), *further, *models)
    labels = labels_of(suite.labels)
    read, first, others = _sources(suite, labels, source, further)
    grouping = group_samples(suite, read.name, concatenate([first, *others]))
    limited = _limited(suite, read.name, (first, *others))
    limits = (suite.limit, *(entry.limit for entry in suite.sources))
    groups = _within(limits, (first, *others), grouping.samples) if limited else grouping.samples
    _check_refinable(suite, grouping)
    arm_second_interrupt()
    has_boxes = any(sample.ground_truth is not None for sample in itertools.islice(first, 1))
    whole = load_models(suite, models, labels, load)
    _note_similar(whole, labels)
    loaded, cut = _restricted_models(whole, labels, has_boxes)
    columns = {name: _columns(model, labels) for name, model in loaded.items()}
    scorers = {name: core.scorer(name) for name in scorer_names(suite)}
    with use_compute_options(ComputeOptions(suite.device, suite.precision)):
        training, in_distribution, ood = _fit_samples(suite, labels, fit)
    return Plan(
        suite,
        read.name,
        labels,
        loaded,
        groups,
        grouping.shifts,
        grouping.settings,
        columns,
        scorers,
        _clean_images(suite, groups[CLEAN]),
        training,
        validation=in_distribution,
        ood=ood,
        objects=objects,
        restricted=tuple(cut),
        left_out=() if suite.fit else suite.scorers_if_fitted,
        limited=limited,
        own=grouping.own,
        slice=slice_for([len(group) for group in groups.values()]),
        same_answers=same_answers(set().union(*(samples.right_sets() for samples in (first, *others)))),
    )


def same_answers(sets: Collection[frozenset[int]]) -> dict[int, frozenset[int]]:
    """Return the classes that mean the same answer as a class, itself included, by class.

    These are the classes that are correct for every sample for which the class is: the category of a class
    where samples accept the classes of a category. Classes without others are left out.

    Args:
        sets: The sets of correct classes of the samples.

    Example:
        >>> same_answers([frozenset({1, 2}), frozenset({3, 4}), frozenset({3})])
        {1: frozenset({1, 2}), 2: frozenset({1, 2}), 4: frozenset({3, 4})}
    """
    common: dict[int, frozenset[int]] = {}
    for right in sets:
        for label in right:
            common[label] = common.get(label, right) & right
    return {label: common[label] for label in sorted(common) if len(common[label]) > 1}


def scorer_names(suite: Suite) -> tuple[str, ...]:
    """Return the scorers of a suite that are computed: some only if there are training images."""
    return (*suite.scorers, *suite.scorers_if_fitted) if suite.fit else suite.scorers


def loaded_models(
    suite: Suite, labels: Labels, only: Collection[str]
) -> tuple[dict[str, Model], dict[str, Columns], tuple[str, ...]]:
    """Load some models of a suite as ``make`` does.

    Returns:
        The models, their columns, and the names of those that have more classes than the suite.
    """
    loaded, cut = _restricted_models(load_models(suite, {}, labels, only=only), labels, False)
    return loaded, {name: _columns(model, labels) for name, model in loaded.items()}, tuple(cut)


def training_of(plan: Plan, kind: str) -> Sequence[Sample]:
    """Return the training or validation images of a plan: ``fit``, ``validation`` or ``ood``."""
    return {"fit": plan.fit, "validation": plan.validation, "ood": plan.ood}[kind]


def with_training(plan: Plan, kind: str, samples: Sequence[Sample]) -> Plan:
    """Return the plan with other training or validation images: ``fit``, ``validation`` or ``ood``."""
    images: dict[str, Sequence[Sample]] = {kind: samples}
    return replace(
        plan,
        fit=images.get("fit", plan.fit),
        validation=images.get("validation", plan.validation),
        ood=images.get("ood", plan.ood),
    )


def _sources(
    suite: Suite, labels: Labels, source: Source | None, further: Mapping[str, Source]
) -> tuple[Source, PackedSamples, list[PackedSamples]]:
    """Return the first source, its samples, and the samples of the further sources."""
    # Sources that draw their images use the device too.
    with use_compute_options(ComputeOptions(suite.device, suite.precision)):
        read = _first(suite, labels) if source is None else source
        first = as_packed(read.samples) if suite.order else hashed_samples(read)
        others = [_further(entry, labels, further.get(entry.name)) for entry in suite.sources]
        if suite.unseen_by:
            first, *others = (unseen(samples, suite.unseen_by) for samples in (first, *others))
        return read, first, others


def _check_refinable(suite: Suite, grouping: Groups) -> None:
    if suite.refine and not any(shift.levels for shift in grouping.shifts.values()):
        raise SoritesError("refine: none of the suite's shifts has a severity that can be bisected")


def _fit_samples(
    suite: Suite, labels: Labels, source: Source | None
) -> tuple[Sequence[Sample], Sequence[Sample], Sequence[Sample]]:
    """Return the training images, and the in-distribution and OOD validation images."""
    if suite.fit is None:
        return (), (), ()
    training = training_samples(suite.fit, labels, source)
    return training, *validation_samples(suite.fit, labels, source, training)


def _limited(suite: Suite, first: str, sources: Sequence[PackedSamples]) -> dict[str, tuple[int, int]]:
    """Return the limit and the number of samples of each source that has more samples than its limit."""
    limits = (suite.limit, *(entry.limit for entry in suite.sources))
    names = (suite.source_name or first, *(entry.name for entry in suite.sources))
    counts = [
        None if limit is None else distinct(samples) for samples, limit in zip(sources, limits, strict=True)
    ]
    return {
        name: (limit, count)
        for name, limit, count in zip(names, limits, counts, strict=True)
        if limit is not None and count and limit < count
    }


def _restricted_models(
    models: Mapping[str, Model], labels: Labels, has_boxes: bool
) -> tuple[dict[str, Model], list[str]]:
    """Reduce classifiers to the suite's classes; return all models and the names of the reduced ones."""
    cut = [
        name
        for name, model in models.items()
        if model.output == "label"
        and model.labels
        and len(_columns(model, labels, has_boxes).places) < len(model.labels)
    ]
    reduced = {
        name: _reduced(model, _columns(model, labels), labels) if name in cut else model
        for name, model in models.items()
    }
    return reduced, cut


def _reduced(model: Model, columns: Columns, labels: Labels) -> Model:
    """Return the model with the columns of the suite's classes, which are named as in the suite."""
    return replace(restricted(model, columns.places), labels=tuple(labels.ids[i] for i in columns.labels))


def _within(
    limits: Sequence[int | None], sources: Sequence[PackedSamples], groups: Mapping[str, PackedSamples]
) -> Mapping[str, PackedSamples]:
    """Return the groups without samples beyond the limits of their sources; a limit counts ids."""
    allowed = {
        id_ for samples, limit in zip(sources, limits, strict=True) for id_ in first_ids(samples, limit)
    }
    return {
        name: group.take([i for i, id_ in enumerate(group.ids()) if id_ in allowed])
        for name, group in groups.items()
    }


def slice_for(sizes: Sequence[int], model_groups: int = 1) -> int:
    """Return the number of samples per slice: 16, or more if the plan is huge.

    Args:
        sizes: The number of samples of each shift.
        model_groups: The number of model groups; each writes one file per slice.
    """
    size = SAMPLES_PER_UNIT
    while model_groups * sum(-(-count // size) for count in sizes) > MAX_UNITS:
        size *= 2
    return size


def _first(suite: Suite, labels: Labels) -> Source:
    return by_shards(suite.source, labels, suite.limit) if suite.order else core.source(suite.source, labels)


def with_changed(plan: Plan, change: Callable[[Sample], Sample]) -> Plan:
    """Return the plan with ``change`` applied to each sample when it is accessed; ids must stay the same."""
    groups = {name: group.changed(change) for name, group in plan.groups.items()}
    return replace(plan, groups=groups, framed=_clean_images(plan.suite, groups[CLEAN]))


def _clean_images(suite: Suite, clean: PackedSamples) -> CleanImages:
    # Unframed photographs are too large to cache.
    return CleanImages(suite, clean, MAX_FRAMED_BYTES if suite.frame else 0)


def _similar_columns(own: Sequence[str], labels: Labels) -> dict[str, int]:
    """Return the columns of a classifier by class id of the suite, for classes with similar names only.

    There are none if classes of both remain without a partner: such a model has other classes.
    """
    columns = dict(zip(own, range(len(own)), strict=False))
    if all(id_ in columns for id_ in labels.ids):
        return {}
    space = imagenet() if tuple(own) == imagenet().ids else Labels(tuple(own), tuple(own))
    taken = {columns[id_] for id_ in labels.ids if id_ in columns}
    found: dict[str, int] = {}
    for id_, name in zip(labels.ids, labels.names, strict=True):
        column = None if id_ in columns else space.get(id_, name)
        similar = () if id_ in columns else (column,) if column is not None else space.similar(name)
        if len(similar) == 1 and similar[0] not in taken:
            found[id_] = similar[0]
            taken.add(similar[0])
    complete = len(taken) in (len(labels), len(own))
    return found if complete else {}


def _note_similar(models: Mapping[str, Model], labels: Labels) -> None:
    """Show the classes of classifiers that were matched by similar names."""
    for name, model in models.items():
        if model.output != "label" or not model.labels:
            continue
        found = _similar_columns(model.labels, labels)
        if found:
            shown = matched_text((model.labels[column], id_) for id_, column in found.items())
            text = f"model {name}: classes taken for similar ones of the suite: {shown}"
            tell(Notice(text, code="similar_classes", matched=found), stacklevel=2)


def _columns(model: Model, labels: Labels, boxed: bool = False) -> Columns:
    column_of = {id_: column for column, id_ in enumerate(model.labels or labels.ids)}
    if model.output == "label" and model.labels:
        column_of |= _similar_columns(model.labels, labels)
    # Classes of detectors are matched by name: "traffic_light" is "traffic light".
    if model.output == "boxes" and model.labels:
        own, names = Labels(model.labels, model.labels), zip(labels.ids, labels.names, strict=True)
        column_of = {id_: column for id_, name in names if (column := own.get(id_, name)) is not None}
    columns = {i: column_of[id_] for i, id_ in enumerate(labels.ids) if id_ in column_of}
    if not columns:
        if boxed and model.output == "label":
            raise SoritesError(
                f"model {model.name} is a classifier, but the source has boxes: use a detector, such as"
                " picodet"
            )
        classes = model.labels
        its = f"its own are {len(classes)}, such as {classes[0]!r}" if classes else "it names none"
        raise SoritesError(
            f"model {model.name} has none of the suite's {len(labels.ids)} labels, such as {labels.ids[0]!r};"
            f" {its}. Use a model that was trained for the suite's classes, or leave out"
            f" {option('labels', 'FILE')} and name the folders of the images like classes of the model."
        )
    return Columns(np.array(list(columns)), np.array(list(columns.values())), frozenset(columns))


def _further(entry: SourceEntry, labels: Labels, source: Source | None) -> PackedSamples:
    """Return the samples of a further source with unique ids; OOD samples have no label."""
    ood = entry.role == "ood"
    label_space = OpenLabels(labels.ids, labels.names, dict(labels.aliases)) if ood else labels
    read = core.source(entry.spec, label_space) if source is None else source
    group = () if entry.group is None else (Attr("group", entry.group),)
    no_label: dict[str, Any] = {"label": None, "accept": frozenset()} if ood else {}
    samples = (
        replace(
            sample,
            id=f"{entry.name}/{sample.id}",
            source=entry.name,
            attrs=tuple(dict.fromkeys((*sample.attrs, *group))),
            **no_label,
        )
        for sample in hashed_samples(read)
    )
    return as_packed(packed(samples))
