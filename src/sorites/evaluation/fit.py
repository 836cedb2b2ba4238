"""Scorers that remember training images: the models see those once, what they gave is kept in
``fits/``, and each scorer is fitted from these files, one after the other, for each model on its
own. Validation images, on which a search chooses parameters, are seen and kept in the same way.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Head, Model, Outputs, Sample, Scorer, split_spec
from sorites.core.errors import SoritesError, TooFewImages
from sorites.evaluation.engines.interrupts import leave_if_asked
from sorites.evaluation.images import Shot, reason
from sorites.evaluation.plan import Columns, Plan, Unit
from sorites.evaluation.predict import GREY, answers, batches, for_model, look_inside
from sorites.evaluation.samples import framed_image
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.tensors import About, Arrays, read_tensors
from sorites.evaluation.worker import Running, Task, running_in
from sorites.io.files import read_json, write_bytes
from sorites.io.paths import resolved
from sorites.metrics.separation import auroc, pair
from sorites.suites.suite import Fit

# OpenOOD's search of scorers' parameters: every combination of a scorer's ranges is tried on validation
# images, and the one with the largest AUROC between in-distribution and OOD ones is taken (Zhang et al.
# 2023; of equal ones the first, as released).


# The result of a search, as it is kept in ``fits/fitted.json``.
Told = dict[str, Any]


@dataclass(frozen=True)
class Pools:
    """The outputs of in-distribution and of OOD validation images of one model, as one scorer needs them."""

    in_distribution: Outputs
    ood: Outputs


def searched(plan: Plan) -> dict[str, dict[str, dict[str, Any]]]:
    """The plan's scorers whose parameters are to be searched, each with its candidates; none
    without ``search = true``.
    """
    if plan.suite.fit is None or not plan.suite.fit.search:
        return {}
    return {name: tried for name in plan.scorers if (tried := core.scorer_candidates(name))}


def every(plan: Plan) -> dict[str, Scorer]:
    """All scorers that are asked before a run begins: the candidates in the place of those that are
    searched.
    """
    found: dict[str, Scorer] = {}
    for name, scorer in plan.scorers.items():
        found |= {other: core.scorer(other) for other in searched(plan).get(name, ())} or {name: scorer}
    return found


def best(
    spec: str, model: str, ready: Callable[[str], Scorer], pools: Callable[[str], Pools]
) -> tuple[Scorer, Told]:
    """Return the candidate with the largest AUROC, ready to be called, and what was tried.

    ``ready`` fits a candidate by name and ``pools`` gives the validation images as it needs them.
    A candidate that cannot be fitted (there may be too few training images for its k) or cannot
    score them is left out, with the reason; if all are, that is an error.
    """
    kept: tuple[float, Scorer, Mapping[str, Any]] | None = None
    told: list[Told] = []
    for name, params in core.scorer_candidates(spec).items():
        shown = pools(name)
        try:
            scorer = ready(name)
            value = _separates(scorer, shown)
        except SoritesError as error:
            told.append({"params": params, "left_out": str(error)})
            continue
        told.append({"params": params, "auroc": value})
        if kept is None or value > kept[0]:
            kept = value, scorer, params
    if kept is None:
        raise SoritesError(
            f"search: no parameters of {spec} can be tried with {model}: {told[0]['left_out']}"
        )
    return kept[1], {"chosen": dict(kept[2]), "auroc": kept[0], "tried": told}


def _separates(scorer: Scorer, pools: Pools) -> float:
    in_distribution, ood = (
        np.asarray(scorer(part), np.float64) for part in (pools.in_distribution, pools.ood)
    )
    wrong = int((~np.isfinite(in_distribution)).sum() + (~np.isfinite(ood)).sum())
    if wrong:
        raise SoritesError(f"scorer {scorer.name} gave {wrong} scores that are not finite")
    return auroc(pair(in_distribution, ood))


def chosen_name(spec: str, told: Mapping[str, Any]) -> str:
    """Return the name of the candidate that a kept search chose."""
    return next(name for name, params in core.scorer_candidates(spec).items() if params == told["chosen"])


# Training images per file.
SLICE = 128
# Kinds of units: of training images, of in-distribution validation images, and of OOD ones.
NAME, VALIDATION, OOD = "fit", "validation", "ood"
INSIDE = "inside "


def refuse_unfitted(plan: Plan) -> None:
    """Refuse scorers by name that need training images where the suite has none for them, or too few."""
    unmet = [name for name, scorer in plan.scorers.items() if "training" in scorer.needs]
    if unmet and not plan.fit:
        raise SoritesError(
            f"{', '.join(unmet)}: must be fitted on training images. Add --fit SOURCE, such as --fit"
            ' folder:PATH, or to the suite: [fit] source = "folder:PATH"'
        )
    for scorer in plan.scorers.values():
        if "training" in scorer.needs:
            scorer.enough(len(plan.fit))


def note_overlap(plan: Plan) -> str:
    """A warning where training or validation images of scorers are under test as well; empty
    where none is.
    """
    return " ".join(filter(None, (_training_note(plan), _validation_note(plan))))


def _validation_note(plan: Plan) -> str:
    fit = plan.suite.fit
    both = _judged(plan, plan.validation)
    if (
        fit is None
        or fit.validation is None
        or not both
        or _place(fit.validation.source or fit.source) != _place(plan.suite.source)
    ):
        return ""
    return (
        f"note: {both} of the {len(plan.validation)} validation images are also judged, by parameters"
        " chosen on them"
    )


def _judged(plan: Plan, others: Sequence[Sample]) -> int:
    """Return how many of other images are under test as well."""
    ids = {sample.id for sample in others}
    return len(ids.intersection(id_ for group in plan.groups.values() for id_ in group.ids())) if ids else 0


def _training_note(plan: Plan) -> str:
    fit = plan.suite.fit if any("training" in scorer.needs for scorer in plan.scorers.values()) else None
    both = _judged(plan, plan.fit)
    if fit is None or not both or _place(fit.source) != _place(plan.suite.source):
        return ""
    return f"note: {both} of the {len(plan.fit)} training images are also judged: their OOD score is too low"


def samples_of(plan: Plan, kind: str) -> Sequence[Sample]:
    """The images of a kind of unit, in order."""
    return {NAME: plan.fit, VALIDATION: plan.validation, OOD: plan.ood}[kind]


def _place(spec: str) -> tuple[str, Path | None]:
    """A source by its name and where it reads from, however that is spelled."""
    name, argument = split_spec(spec)
    return name, resolved(Path(argument)) if argument else None


def units(plan: Plan, kind: str = NAME) -> list[Unit]:
    """The slices of the training images, or of validation images."""
    count = len(samples_of(plan, kind))
    return [Unit(kind, start, min(start + SLICE, count)) for start in range(0, count, SLICE)]


def kept_slices(folder: Path, model: str, kind: str = NAME) -> list[Unit]:
    """The slices of training or validation images that a run folder keeps of a model."""
    found: list[Unit] = []
    while shards.training(
        folder, unit := Unit(kind, len(found) * SLICE, (len(found) + 1) * SLICE), model
    ).exists():
        found.append(unit)
    held = len(list((folder / "fits").glob(f"{kind}-*--{shards.slug(model)}.safetensors")))
    if held > len(found):
        raise SoritesError(
            f"{folder / 'fits'} lacks the {kind} images from {len(found) * SLICE} on of {model}: type the"
            " run's command again"
        )
    return found


def gaps(plan: Plan, folder: Path, keep: bool = False) -> bool:
    """Return whether a run folder keeps some of the slices that ``tasks`` asks for and lacks others."""
    return (folder / "fits").is_dir() and bool(tasks(plan, folder, keep))


def tasks(plan: Plan, folder: Path, keep: bool = False) -> list[Task]:
    """The slices that some models have not seen yet, where scorers ask for them or ``keep`` says to
    keep them all.
    """
    kinds = [NAME] * (keep or wants_training(plan)) + [VALIDATION, OOD] * (keep or bool(searched(plan)))
    present = shards.Present(folder, ("fits",))
    every_unit = [unit for kind in kinds for unit in units(plan, kind)]
    found = {
        u: tuple(m for m in plan.models if shards.training(folder, u, m) not in present) for u in every_unit
    }
    return [Task(unit, names) for unit, names in found.items() if names]


def wants_training(plan: Plan) -> bool:
    return any("training" in scorer.needs for scorer in plan.scorers.values())


def inside_bytes(plan: Plan, kind: str = NAME) -> int:
    """Bytes that scorers keep of one training or validation image from inside the models."""
    rows = (
        scorer.look(model, [GREY])
        for scorer in _looking(plan, kind).values()
        for model in plan.models.values()
    )
    return sum(row.nbytes for row in rows if row is not None)


def _looking(plan: Plan, kind: str) -> dict[str, Scorer]:
    """The scorers that look inside the models at the images of a kind of unit: to be fitted on
    them, or to be searched.
    """
    asked = (
        every(plan)
        if kind == NAME
        else {n: core.scorer(n) for tried in searched(plan).values() for n in tried}
    )
    return {
        n: scorer
        for n, scorer in asked.items()
        if scorer.looks and (kind != NAME or "training" in scorer.needs)
    }


def fit_on(scorer: Scorer, folder: Path, slices: Sequence[Unit], model: str, head: Head | None) -> Scorer:
    """Fit a scorer on the kept outputs of training images of a model."""
    return scorer.fit(training(folder, slices, model, scorer.name), head)


def training(
    folder: Path, slices: Sequence[Unit], model: str, inside: str = ""
) -> Iterator[tuple[Outputs, list[int]]]:
    """Yield the kept outputs of training images with their labels (columns of the logits; -1 is
    none), a file at a time.
    """
    for about, outputs in kept_outputs(folder, slices, model, inside):
        yield outputs, about["label"]


def kept_outputs(
    folder: Path, slices: Sequence[Unit], model: str, inside: str
) -> Iterator[tuple[About, Outputs]]:
    """Yield what a file says of its images, and their outputs with what the scorer ``inside`` saw
    inside the model.
    """
    within = f"{INSIDE}{inside}"
    for about, arrays in kept_files(folder, slices, model, ("logits", "features", within)):
        seen = {inside: arrays[within]} if within in arrays else {}
        if arrays:
            yield (
                about,
                Outputs(arrays.get("logits"), arrays.get("features"), inside=seen, ids=about["sample_id"]),
            )


def kept_files(
    folder: Path, slices: Sequence[Unit], model: str, parts: Sequence[str]
) -> Iterator[tuple[About, Arrays]]:
    """Yield what each file of a model says of its images, and some of its arrays."""
    for unit in slices:
        yield read_tensors(shards.training(folder, unit, model), ("sample_id", "label"), parts)


@dataclass
class _Kept:
    """The outputs of a model for some training or validation images, with their ids and labels.

    ``right`` says of each whether the model has it right; ``left`` counts those left out, and
    ``wrong`` those left out because the model has them wrong.
    """

    outputs: list[Outputs] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    right: list[bool | None] = field(default_factory=list)
    left: int = 0
    wrong: int = 0


def collect(folder: Path, task: Task, *, batch: int) -> None:
    """A unit of work: show a slice of the training or validation images to the task's models and
    keep what each gave.
    """
    running = running_in(folder)
    plan, kind = running.plan, task.unit.shift
    kept = {name: _Kept() for name in task.models}
    looking = _looking(plan, kind)
    shots = (_shot(plan, sample) for sample in samples_of(plan, kind)[task.unit.start : task.unit.stop])
    for some in batches(shots, batch):
        for name, mine in kept.items():
            leave_if_asked()
            _see(plan, plan.models[name], some, mine, kind, looking)
        running.tick(len(some) * len(kept))
    only = plan.suite.fit is not None and plan.suite.fit.only is not None
    for name, mine in kept.items():
        more = (
            {"wrong": str(mine.wrong)}
            if only and kind == NAME
            else {"right": json.dumps(mine.right)}
            if kind != NAME
            else {}
        )
        write_bytes(_packed(mine, more), shards.training(folder, task.unit, name))


def _shot(plan: Plan, sample: Sample) -> Shot:
    shot = Shot(sample, CLEAN, sample.setting)
    try:
        return replace(shot, image=framed_image(plan.suite, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the image"))


def _see(
    plan: Plan, model: Model, some: Sequence[Shot], kept: _Kept, kind: str, looking: Mapping[str, Scorer]
) -> None:
    """Leave out an image that cannot be read or seen, one that is not OOD and whose label the
    model does not know, and a training image that the model has not right where the suite asks
    only for those.
    """
    columns = plan.columns[model.name]
    place = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    given = answers(model, some, plan.is_framed, plan.width_of(model.name))
    only = plan.suite.fit is not None and plan.suite.fit.only == "right"
    for row, i in enumerate(given.seen):
        sample = some[i].sample
        label = -1 if sample.label is None or kind == OOD else place.get(sample.label)
        right = None if kind == OOD else _right(columns, sample, given.outputs[row : row + 1].logits)
        if only and kind == NAME and right is not True and label is not None:
            kept.wrong += right is False
            kept.left += right is None
            continue
        inside = None if label is None else _inside(looking, model, some[i], plan.is_framed(some[i].sample))
        if inside is None or label is None:
            kept.left += 1
            continue
        kept.outputs.append(replace(given.outputs[row : row + 1], inside=inside))
        kept.ids.append(sample.id)
        kept.labels.append(label)
        kept.right.append(right)
    kept.left += len(some) - len(given.seen)


def _right(columns: Columns, sample: Sample, logits: NDArray[np.float32] | None) -> bool | None:
    """Return whether a model has an image right among the suite's labels; None where that cannot be said."""
    if logits is None or sample.right.isdisjoint(columns.known):
        return None
    return int(columns.labels[columns.of(logits)[0].argmax()]) in sample.right


def _inside(looking: Mapping[str, Scorer], model: Model, shot: Shot, framed: bool) -> Arrays | None:
    """Return what the scorers that need it see inside the model, or None if one of them cannot look."""
    found: Arrays = {}
    for name, scorer in looking.items():
        if shot.image is not None:
            row, error = look_inside(scorer, name, model, shot.image, framed)
            if error is not None:
                return None
            found[name] = row
    return found


def _packed(kept: _Kept, more: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    joined = Outputs.join(kept.outputs)
    arrays: Arrays = {f"{INSIDE}{name}": rows for name, rows in joined.inside.items()}
    arrays |= {
        part: rows
        for part, rows in (("features", joined.features), ("logits", joined.logits))
        if rows is not None
    }
    about = {
        "sample_id": json.dumps(kept.ids),
        "label": json.dumps(kept.labels),
        "left": str(kept.left),
        **more,
    }
    return save(arrays, metadata=about)


# Scorers fitted from what ``fits/`` keeps, their parameters searched where the suite asks for it, and the
# record of both.


RECORD = "fits/fitted.json"


def ready(folder: Path, running: Running) -> Plan:
    """Return the plan with every model's own scorers, fitted once per process from what ``fits/`` keeps."""

    def fitted(plan: Plan) -> Plan:
        own: dict[str, dict[str, Scorer]] = {name: {} for name in plan.models}
        searches: dict[str, dict[str, Told]] = {name: {} for name in plan.models if searched(plan)}
        before = read_record(folder)
        for name, model in plan.models.items():
            fits = Fits(folder, name, model.head, plan.suite.fit, before.get(name, {}).get("search", {}))
            for spec, scorer in plan.scorers.items():
                own[name][spec], told = fits.scorer(spec, scorer)
                if told is not None:
                    searches[name][spec] = told
        return replace(plan, fitted=own, searches=searches)

    return running.once("fitted", fitted)


class Refused(Scorer):
    """Stands in the place of a scorer that could not be fitted: every score is missing, and the
    reason is why.
    """

    def __init__(self, scorer: Scorer, reason: str) -> None:
        self.name, self.note = scorer.name, reason

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise SoritesError(self.note)


@dataclass(frozen=True)
class Fits:
    """The files that a run folder keeps for the scorers of one model; ``before`` are searches that
    were made already.
    """

    folder: Path
    model: str
    head: Head | None
    fit: Fit | None = None
    before: Mapping[str, Told] = field(default_factory=dict)

    def scorer(self, spec: str, scorer: Scorer) -> tuple[Scorer, Told | None]:
        """Return a scorer fitted for this model, and what a search of its parameters found where
        the suite asks for one.
        """
        if self.fit is None or not self.fit.search or not core.scorer_candidates(spec):
            return self._fitted(scorer), None
        told = self.before.get(spec)
        if told is not None:
            found = self._candidate(chosen_name(spec, told))
        else:
            found, told = best(spec, self.model, self._candidate, functools.cache(self._pools))
        found.name = spec
        return found, told

    def _candidate(self, name: str) -> Scorer:
        return self._fitted(core.scorer(name))

    def _fitted(self, scorer: Scorer) -> Scorer:
        ready = for_model(scorer, self.head)
        if "training" in scorer.needs:
            try:
                fit_on(ready, self.folder, kept_slices(self.folder, self.model), self.model, self.head)
            except TooFewImages as error:
                return Refused(scorer, str(error))
        return ready

    def _pools(self, name: str) -> Pools:
        """The validation images as the candidate ``name`` needs them: in-distribution to this model, and
        OOD.
        """
        fit = self.fit
        assert fit is not None
        assert fit.validation is not None
        own, in_distribution, ood = fit.validation.ood is None, list[Outputs](), list[Outputs]()
        for about, outputs in kept_outputs(
            self.folder, kept_slices(self.folder, self.model, VALIDATION), self.model, name
        ):
            right = np.array([{True: 1, False: 0}.get(known, -1) for known in about["right"]])
            in_distribution.append(outputs[np.flatnonzero(right == 1)] if own or fit.only else outputs)
            ood += [outputs[np.flatnonzero(right == 0)]] if own else []
        shown = kept_outputs(self.folder, kept_slices(self.folder, self.model, OOD), self.model, name)
        pools = Pools(Outputs.join(in_distribution), Outputs.join([*ood, *(outputs for _, outputs in shown)]))
        if not len(pools.in_distribution) or not len(pools.ood):
            raise SoritesError(
                f"search: {self.model} has {len(pools.in_distribution)} in-distribution and {len(pools.ood)} OOD"
                " validation images. Give more of them, or OOD ones: [fit.validation] OOD ="
                ' "folder:PATH"'
            )
        return pools


def read_record(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of its fitted scorers by model; nothing where none were fitted."""
    try:
        found = read_json(folder / RECORD)
    except SoritesError:
        return {}
    return (
        {name: about for name, about in found.items() if _is_record(about)} if isinstance(found, dict) else {}
    )


def _is_record(about: Any) -> bool:
    searches = about.get("search", {}) if isinstance(about, dict) else None
    return isinstance(searches, dict) and all(
        isinstance(told, dict) and "chosen" in told for told in searches.values()
    )


def chosen_parameters(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the parameters that searches of a run chose, by model and scorer; nothing where there
    was no search.
    """
    told = {name: about.get("search", {}) for name, about in read_record(folder).items()}
    return {
        name: {spec: found["chosen"] for spec, found in searches.items()}
        for name, searches in told.items()
        if searches
    }


def fit_notes(folder: Path) -> list[str]:
    """Return what has to be said beside the scores of a run's fitted scorers, model by model."""
    told = {name: about.get("notes", {}) for name, about in read_record(folder).items()}
    return [f"{model}: {note}" for model, notes in told.items() for note in notes.values()]


def refusals(folder: Path) -> list[str]:
    """Return why scorers of a run have no scores at all, model by model; those that were fitted are
    not in it.
    """
    found = read_record(folder)
    named = ((model, about.get("notes", {}), about.get("scorers", {})) for model, about in found.items())
    return [
        f"{model}: {note}" for model, notes, fits in named for name, note in notes.items() if name not in fits
    ]


def record(plan: Plan, folder: Path) -> None:
    """Keep what a fitted plan's scorers were fitted on, how many training images were left out,
    and what searches chose.
    """
    found = {name: _about(folder, name, scorers) for name, scorers in plan.fitted.items()}
    for name, searches in plan.searches.items():
        found[name]["search"] = dict(searches)
    write_bytes(json.dumps(found, indent=1).encode(), folder / RECORD)


def _about(folder: Path, model: str, scorers: Mapping[str, Scorer]) -> dict[str, Any]:
    told = [about for about, _ in kept_files(folder, kept_slices(folder, model), model, ())]
    fits = {
        name: scorer.fitted for name, scorer in scorers.items() if getattr(scorer, "fitted", None) is not None
    }
    wrong = (
        {"wrong": sum(about["wrong"] for about in told)} if any("wrong" in about for about in told) else {}
    )
    notes = {name: scorer.note for name, scorer in scorers.items() if getattr(scorer, "note", "")}
    said = {"notes": notes} if notes else {}
    return {"left_out": sum(about["left"] for about in told), **wrong, "scorers": fits, **said}
