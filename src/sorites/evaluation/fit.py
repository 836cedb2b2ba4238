"""Fit scorers that need training images.

The models see the training images once and their outputs are stored in ``fits/``; each scorer is then fitted
from these files, for each model separately. Validation images, on which a search chooses parameters, are
stored in the same way.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Head, Model, Outputs, Sample, Scorer, split_spec
from sorites.core.errors import Damaged, SoritesError, TooFewImages
from sorites.core.messages import option
from sorites.core.table import repair
from sorites.evaluation.box_scores import boxes_as_images, by_label, training_boxes
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.images import Shot, reason
from sorites.evaluation.plan import Columns, Plan, Unit, training_of
from sorites.evaluation.predict import (
    GREY,
    Answers,
    Looked,
    Texts,
    batches,
    evaluate_shots,
    for_model,
    look_inside,
)
from sorites.evaluation.samples import framed_sample
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.schema import Candidate, ModelFit, SearchResult, validated
from sorites.evaluation.storage.tensors import About, Arrays, arrays_of, read_tensors, write_tensors
from sorites.evaluation.worker import Running, Task
from sorites.io import digests
from sorites.io.paths import resolve
from sorites.metrics.separation import auroc, pair
from sorites.suites.suite import Fit, Suite

# Parameter search as in OpenOOD: every combination of a scorer's ranges is tried on validation images, and
# the one with the largest AUROC between in-distribution and OOD images is used (Zhang et al. 2023; the first
# one wins ties, as in their code).


@dataclass(frozen=True)
class Pools:
    """Outputs of one model for in-distribution and OOD validation images."""

    in_distribution: Outputs
    ood: Outputs


class NoneWorks(SoritesError):
    """No parameters of a scorer work with a model; its scores are missing, and the run continues."""


def searched(plan: Plan) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the plan's scorers whose parameters are searched, with their candidates; empty unless
    ``fit.search`` is true.
    """
    if plan.suite.fit is None or not plan.suite.fit.search:
        return {}
    return {name: tried for name in plan.scorers if (tried := core.scorer_candidates(name))}


def tried_scorers(plan: Plan) -> dict[str, Scorer]:
    """Return all scorers that are tried before a run starts: candidates instead of the scorers that are
    searched.
    """
    scorers: dict[str, Scorer] = {}
    for name, scorer in plan.scorers.items():
        scorers |= {candidate: core.scorer(candidate) for candidate in searched(plan).get(name, ())} or {
            name: scorer
        }
    return scorers


def best(
    spec: str, model: str, ready: Callable[[str], Scorer], pools: Callable[[str], Pools]
) -> tuple[Scorer, SearchResult]:
    """Return the fitted candidate with the largest AUROC, and the result of the search.

    Candidates that cannot be fitted (for example because k exceeds the number of training images) or cannot
    score the validation images are recorded with the reason.

    Args:
        spec: The scorer to search.
        model: Name of the model, for messages.
        ready: Fits a candidate by name.
        pools: Returns the validation outputs for a candidate.

    Raises:
        NoneWorks: No candidate works.
    """
    winner: tuple[float, Scorer, Mapping[str, Any]] | None = None
    tried: list[Candidate] = []
    for name, params in core.scorer_candidates(spec).items():
        validation = pools(name)
        try:
            scorer = ready(name)
            value = _auroc(scorer, validation)
        except SoritesError as error:
            tried.append(Candidate(params=params, left_out=str(error)))
            continue
        tried.append(Candidate(params=params, auroc=value))
        if winner is None or value > winner[0]:
            winner = value, scorer, params
    if winner is None:
        raise NoneWorks(f"search: no parameters of {spec} work with {model}: {tried[0].left_out}")
    return winner[1], SearchResult(chosen=dict(winner[2]), auroc=winner[0], tried=tuple(tried))


def _auroc(scorer: Scorer, pools: Pools) -> float:
    in_distribution, ood = (
        np.asarray(scorer(part), np.float64) for part in (pools.in_distribution, pools.ood)
    )
    not_finite = int((~np.isfinite(in_distribution)).sum() + (~np.isfinite(ood)).sum())
    if not_finite:
        raise SoritesError(f"scorer {scorer.name} returned {not_finite} scores that are not finite")
    return auroc(pair(in_distribution, ood))


def chosen_name(spec: str, search: SearchResult) -> str:
    """Return the name of the candidate that a stored search chose."""
    return next(name for name, params in core.scorer_candidates(spec).items() if params == search.chosen)


# Training images per file.
SAMPLES_PER_FILE = 128
# Kinds of slices: training images, in-distribution validation images, and OOD validation images.
NAME, VALIDATION, OOD = "fit", "validation", "ood"
INSIDE = "inside "


def refuse_unfitted(plan: Plan) -> None:
    """Raise a ``SoritesError`` if scorers need training images and the suite has none, or too few for all.

    A scorer for which there are too few does not keep the others from being computed.
    """
    needing_fit = [name for name, scorer in plan.scorers.items() if "training" in scorer.needs]
    if needing_fit and not plan.fit:
        raise SoritesError(
            f"{', '.join(needing_fit)}: must be fitted on training images. Add"
            f" {option('fit', 'folder:PATH')}, or to"
            ' the suite: [fit] source = "folder:PATH"'
        )
    refused = too_few(plan)
    if refused and refused.keys() == plan.scorers.keys():
        raise TooFewImages("\n".join(refused.values()))


def too_few(plan: Plan) -> dict[str, str]:
    """Return the scorers for which there are too few training images, with the reason."""
    # A training image has any number of boxes.
    if all(model.output == "boxes" for model in plan.models.values()):
        return {}
    refused = {}
    for name, scorer in plan.scorers.items():
        try:
            if "training" in scorer.needs:
                scorer.enough(len(plan.fit))
        except TooFewImages as error:
            refused[name] = str(error)
    return refused


def note_overlap(plan: Plan) -> str:
    """Return a notice if training or validation images are also in the test set, else an empty text."""
    return " ".join(filter(None, (_training_note(plan), _validation_note(plan))))


def _validation_note(plan: Plan) -> str:
    fit = plan.suite.fit
    both = _count_tested(plan, plan.validation)
    if (
        fit is None
        or fit.validation is None
        or not both
        or _location(fit.validation.source or fit.source) != _location(plan.suite.source)
    ):
        return ""
    return (
        f"note: {both} of {len(plan.validation)} validation images are also in the test set; parameters were"
        " chosen on them"
    )


def _count_tested(plan: Plan, others: Sequence[Sample]) -> int:
    """Count the images of ``others`` that are also in the test set."""
    ids = {sample.id for sample in others}
    return len(ids.intersection(id_ for group in plan.groups.values() for id_ in group.ids())) if ids else 0


def _training_note(plan: Plan) -> str:
    fit = plan.suite.fit if any("training" in scorer.needs for scorer in plan.scorers.values()) else None
    both = _count_tested(plan, plan.fit)
    if fit is None or not both or _location(fit.source) != _location(plan.suite.source):
        return ""
    return (
        f"note: {both} of {len(plan.fit)} training images are also in the test set; their OOD scores are"
        " biased"
        " low"
    )


def samples_of(plan: Plan, kind: str) -> Sequence[Sample]:
    """Return the images of a kind of slice, in order."""
    return training_of(plan, kind)


def _location(spec: str) -> tuple[str, Path | None]:
    """Return the reader of a source and its resolved path, however it is spelled."""
    name, argument = split_spec(spec)
    return name, resolve(Path(argument)) if argument else None


def units(plan: Plan, kind: str = NAME) -> list[Unit]:
    """Return the slices of the training or validation images."""
    count = len(samples_of(plan, kind))
    return [
        Unit(kind, start, min(start + SAMPLES_PER_FILE, count)) for start in range(0, count, SAMPLES_PER_FILE)
    ]


def kept_slices(folder: Path, model: str, kind: str = NAME) -> list[Unit]:
    """Return the slices of training or validation images that a run folder has of a model.

    Raises:
        SoritesError: There are gaps.
    """
    stored = shards.tensor_files(folder, shards.FITS)
    units = (Unit(kind, n * SAMPLES_PER_FILE, (n + 1) * SAMPLES_PER_FILE) for n in itertools.count())
    slices = list(itertools.takewhile(lambda unit: shards.stem(unit, model) in stored, units))
    own = f"{kind}-", f"--{shards.slug(model)}"
    file_count = sum(stem.startswith(own[0]) and stem.endswith(own[1]) for stem in stored)
    if file_count > len(slices):
        raise SoritesError(
            f"{folder / shards.FITS} lacks the {kind} images from {len(slices) * SAMPLES_PER_FILE} on of"
            f" {model}: repeat the run"
        )
    return slices


def gaps(plan: Plan, folder: Path, keep: bool = False) -> bool:
    """Return whether a run folder has some of the slices that ``tasks`` needs, but not all or no record."""
    unrecorded = (wants_training(plan) or bool(searched(plan))) and not (folder / RECORD).exists()
    return (folder / shards.FITS).is_dir() and (unrecorded or bool(tasks(plan, folder, keep)))


def tasks(plan: Plan, folder: Path, keep: bool = False) -> list[Task]:
    """Return the slices that models have not seen yet: those that scorers need, or all if ``keep``."""
    kinds = [NAME] * (keep or wants_training(plan)) + [VALIDATION, OOD] * (keep or bool(searched(plan)))
    present = shards.tensor_files(folder, shards.FITS)
    every_unit = [unit for kind in kinds for unit in units(plan, kind)]
    missing = {u: tuple(m for m in plan.models if shards.stem(u, m) not in present) for u in every_unit}
    return [Task(unit, names) for unit, names in missing.items() if names]


def wants_training(plan: Plan) -> bool:
    """Return whether any scorer needs training images."""
    return any("training" in scorer.needs for scorer in plan.scorers.values())


def inside_bytes(plan: Plan, kind: str = NAME) -> int:
    """Return the bytes of internal activations stored per training or validation image."""
    rows = (
        scorer.look(model, [GREY])
        for scorer in looking(plan, kind).values()
        for model in plan.models.values()
    )
    return sum(row.nbytes for row in rows if row is not None)


def looking(plan: Plan, kind: str) -> dict[str, Scorer]:
    """Return the scorers that need internal activations for a kind of slice, to be fitted or searched."""
    scorers = (
        tried_scorers(plan)
        if kind == NAME
        else {n: core.scorer(n) for candidates in searched(plan).values() for n in candidates}
    )
    return {
        n: scorer
        for n, scorer in scorers.items()
        if scorer.looks and (kind != NAME or "training" in scorer.needs)
    }


def fit_on(scorer: Scorer, folder: Path, slices: Sequence[Unit], model: str, head: Head | None) -> Scorer:
    """Fit a scorer on the stored outputs of training images."""
    return scorer.fit(training(folder, slices, model, scorer.name), head)


def training(
    folder: Path, slices: Sequence[Unit], model: str, inside: str = ""
) -> Iterator[tuple[Outputs, list[int]]]:
    """Yield the stored outputs of training images with their labels (columns of the logits, -1 for none), one
    file at a time.
    """
    for about, outputs in kept_outputs(folder, slices, model, inside):
        yield outputs, about["label"]


def kept_outputs(
    folder: Path, slices: Sequence[Unit], model: str, inside: str
) -> Iterator[tuple[About, Outputs]]:
    """Yield the metadata of each file and its outputs, with the internal activations for the scorer
    ``inside``.
    """
    array_name = f"{INSIDE}{inside}"
    for about, arrays in kept_files(folder, slices, model, ("logits", "features", array_name)):
        activations = {inside: arrays[array_name]} if array_name in arrays else {}
        if arrays:
            yield (
                about,
                Outputs(
                    arrays.get("logits"), arrays.get("features"), inside=activations, ids=about["sample_id"]
                ),
            )


def kept_files(
    folder: Path, slices: Sequence[Unit], model: str, parts: Sequence[str]
) -> Iterator[tuple[About, Arrays]]:
    """Yield the metadata and some arrays of each file of a model."""
    stored = shards.tensor_files(folder, shards.FITS)
    for unit in slices:
        yield read_tensors(stored[shards.stem(unit, model)], ("sample_id", "label"), parts)


@dataclass
class _Collected:
    """Outputs of a model for training or validation images, with their ids and labels.

    ``right`` says whether the model classifies each image correctly; ``left`` counts skipped images, and
    ``wrong`` those skipped because the model misclassifies them.
    """

    outputs: list[Outputs] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    right: list[bool | None] = field(default_factory=list)
    left: int = 0
    wrong: int = 0


def collect(run: Running, task: Task, *, batch: int) -> None:
    """Show a slice of the training or validation images to the task's models and store the outputs."""
    plan, unit, kind = run.plan, run.here(task.unit), task.unit.shift
    collected = {name: _Collected() for name in task.models}
    scorers = looking(plan, kind)
    samples = samples_of(plan, kind)[unit.start : unit.stop]
    for chunk in batches((training_shot(plan.suite, sample) for sample in samples), batch):
        for name, outputs in collected.items():
            stop_if_requested()
            model = plan.models[name]
            answered = evaluate_shots(model, chunk, plan.is_framed, plan.width_of(name))
            look = functools.partial(_inside, plan, scorers, model, [chunk[i] for i in answered.seen])
            _add_outputs(plan, name, chunk, answered, outputs, kind, look)
        run.tick(len(chunk) * len(collected))
    _store(run.folder, plan, task, collected)


def store(
    folder: Path,
    plan: Plan,
    task: Task,
    shots: Sequence[Shot],
    answers: Mapping[str, Answers],
    looks: Mapping[str, Mapping[str, Sequence[Looked]]],
) -> None:
    """Store the outputs of a slice of training or validation images.

    Args:
        folder: The run folder.
        plan: The plan.
        task: The slice and its models.
        shots: The images, without pixels.
        answers: The answers of each model.
        looks: By model and scorer, the internal activations of the images that the model could evaluate.
    """
    collected = {name: _Collected() for name in task.models}
    for name, outputs in collected.items():
        look = functools.partial(_joined_looks, looks[name])
        _add_outputs(plan, name, shots, answers[name], outputs, task.unit.shift, look)
    _store(folder, plan, task, collected)


def _store(folder: Path, plan: Plan, task: Task, collected: Mapping[str, _Collected]) -> None:
    kind = task.unit.shift
    only = plan.suite.fit is not None and plan.suite.fit.only is not None
    for name, outputs in collected.items():
        joined = Outputs.join(outputs.outputs)
        about = {"sample_id": outputs.ids, "label": outputs.labels, "left": outputs.left}
        about |= {"right": outputs.right} if kind != NAME else {"wrong": outputs.wrong} if only else {}
        inside = {f"{INSIDE}{part}": rows for part, rows in joined.inside.items()}
        stem, arrays = shards.stem(task.unit, name), {**inside, **arrays_of(joined)}
        write_tensors(folder / shards.FITS, stem, arrays, **about)


def training_shot(suite: Suite, sample: Sample) -> Shot:
    """Return an image that scorers are fitted on."""
    shot = planned_training_shot(sample)
    try:
        image, ground_truth = framed_sample(suite, sample)
        return replace(shot, image=image, ground_truth=ground_truth)
    except Exception as error:
        return replace(shot, error=reason(error, "reading the image"))


def planned_training_shot(sample: Sample) -> Shot:
    """Return an image that scorers are fitted on, without pixels."""
    return Shot(sample, CLEAN, sample.setting)


# Returns the internal activations of some of the images that a model could evaluate, or None for those where
# a scorer fails.
Look = Callable[[Sequence[int]], "list[Arrays | None]"]


def _add_outputs(
    plan: Plan,
    model: str,
    chunk: Sequence[Shot],
    answered: Answers,
    collected: _Collected,
    kind: str,
    look: Look,
) -> None:
    """Add the outputs of some images to ``collected``.

    Skip images that cannot be read or evaluated, images with a label the model lacks (unless they are OOD),
    and, with ``fit.only``, training images that the model does not classify correctly.
    """
    columns = plan.columns[model]
    if plan.models[model].output == "boxes":
        _add_boxes(columns, chunk, answered, collected, kind)
        return
    column_of = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    only = plan.suite.fit is not None and plan.suite.fit.only == "correct"
    chosen: list[tuple[int, Shot, int, bool | None]] = []
    for row, i in enumerate(answered.seen):
        sample = chunk[i].sample
        label = -1 if sample.label is None or kind == OOD else column_of.get(sample.label)
        right = None if kind == OOD else _is_correct(columns, sample, answered.outputs[row : row + 1].logits)
        if only and kind == NAME and right is not True and label is not None:
            collected.wrong += right is False
            collected.left += right is None
            continue
        if label is None:
            collected.left += 1
        else:
            chosen.append((row, chunk[i], label, right))
    collected.left += len(chunk) - len(answered.seen)
    activations = look([row for row, _, _, _ in chosen])
    for (row, shot, label, right), inside in zip(chosen, activations, strict=True):
        if inside is None:
            collected.left += 1
            continue
        collected.outputs.append(replace(answered.outputs[row : row + 1], inside=inside))
        collected.ids.append(shot.sample.id)
        collected.labels.append(label)
        collected.right.append(right)


def _add_boxes(
    columns: Columns, chunk: Sequence[Shot], answered: Answers, collected: _Collected, kind: str
) -> None:
    """Add boxes of some images to ``collected``, one row each: those that find an object of their class.

    Of OOD validation images, all boxes count. An image without such a box is left out.
    """
    suite_label = dict(zip(columns.places.tolist(), columns.labels.tolist(), strict=True))
    shots, outputs = [chunk[i] for i in answered.seen], answered.outputs
    relabelled = [tuple(by_label(box, suite_label) for box in boxes) for boxes in outputs.boxes or ()]
    truths = [None if kind == OOD else shot.ground_truth for shot in shots]
    chosen = training_boxes(replace(outputs, boxes=relabelled), truths)
    rows = boxes_as_images(outputs, chosen)
    if len(rows):
        collected.outputs.append(replace(rows, boxes=None))
    for shot, boxes, places in zip(shots, outputs.boxes or (), chosen, strict=True):
        collected.ids += [f"{shot.sample.id}#{place}" for place in places.tolist()]
        collected.labels += [-1 if kind == OOD else boxes[place].label for place in places.tolist()]
        collected.right += [None if kind == OOD or shot.ground_truth is None else True] * len(places)
        collected.left += not len(places)
    collected.left += len(chunk) - len(shots)


def _is_correct(columns: Columns, sample: Sample, logits: NDArray[np.float32] | None) -> bool | None:
    """Return whether a model classifies an image correctly among the suite's labels; None if unknown."""
    if logits is None or sample.right.isdisjoint(columns.known):
        return None
    return int(columns.labels[columns.of(logits)[0].argmax()]) in sample.right


def _inside(
    plan: Plan, scorers: Mapping[str, Scorer], model: Model, shots: Sequence[Shot], rows: Sequence[int]
) -> list[Arrays | None]:
    """Return the internal activations of each image for the scorers that need them, or None if one fails."""
    seen = [shots[row] for row in rows]
    images = [(shot.image, plan.is_framed(shot.sample)) for shot in seen if shot.image is not None]
    looked = {name: look_inside(scorer, name, model, images) for name, scorer in scorers.items()}
    return _joined_looks(looked, range(len(images)))


def _joined_looks(looked: Mapping[str, Sequence[Looked]], rows: Sequence[int]) -> list[Arrays | None]:
    return [
        None
        if any(seen[row][1] is not None for seen in looked.values())
        else {name: seen[row][0] for name, seen in looked.items()}
        for row in rows
    ]


# Fitting, and the record of it.


RECORD = "fits/fitted.json"


def ready(run: Running) -> Plan:
    """Return the plan with fitted scorers for each model; fitted once per process from ``fits/``."""

    def fitted(plan: Plan) -> Plan:
        own: dict[str, dict[str, Scorer]] = {name: {} for name in plan.models}
        searches: dict[str, dict[str, SearchResult]] = {name: {} for name in plan.models if searched(plan)}
        before = read_fits(run.folder)
        for name, model in plan.models.items():
            earlier = before[name].search if name in before else {}
            fits = Fits(run.folder, name, model.head, plan.suite.fit, earlier, model.texts)
            for spec, scorer in plan.scorers.items():
                own[name][spec], search = fits.scorer(spec, scorer)
                if search is not None:
                    searches[name][spec] = search
        return replace(plan, fitted=own, searches=searches)

    plan = run.once("fitted", fitted)
    return (
        plan
        if plan.groups is run.plan.groups
        else replace(run.plan, fitted=plan.fitted, searches=plan.searches)
    )


class UnfittedScorer(Scorer):
    """Replaces a scorer that could not be fitted: every score is missing, with the reason as error."""

    def __init__(self, scorer: Scorer, reason: str) -> None:
        self.name, self.note = scorer.name, reason

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise SoritesError(self.note)


@dataclass(frozen=True)
class Fits:
    """The files of one model in ``fits/``; ``before`` are earlier searches, ``texts`` is ``Model.texts``."""

    folder: Path
    model: str
    head: Head | None
    fit: Fit | None = None
    before: Mapping[str, SearchResult] = field(default_factory=dict)
    texts: Texts | None = None

    def scorer(self, spec: str, scorer: Scorer) -> tuple[Scorer, SearchResult | None]:
        """Return a scorer fitted for this model, and the result of its parameter search, if any."""
        if self.fit is None or not self.fit.search or not core.scorer_candidates(spec):
            return self._fitted(scorer), None
        search = self.before.get(spec)
        if search is not None:
            fitted = self._candidate(chosen_name(spec, search))
        else:
            try:
                fitted, search = best(spec, self.model, self._candidate, functools.cache(self._pools))
            except NoneWorks as error:
                return UnfittedScorer(scorer, str(error)), None
        fitted.name = spec
        return fitted, search

    def _candidate(self, name: str) -> Scorer:
        return self._fitted(core.scorer(name))

    def _fitted(self, scorer: Scorer) -> Scorer:
        ready = for_model(scorer, self.head, self.texts)
        if "training" in scorer.needs:
            try:
                fit_on(ready, self.folder, kept_slices(self.folder, self.model), self.model, self.head)
            except TooFewImages as error:
                return UnfittedScorer(scorer, str(error))
            except (Damaged, OSError):
                raise
            except Exception as error:  # of any library or plug-in: the other scorers go on without it
                return UnfittedScorer(scorer, f"{scorer.name} cannot be fitted: {reason(error, 'fitting')}")
        return ready

    def _pools(self, name: str) -> Pools:
        """Return the validation outputs for the candidate ``name``."""
        fit = self.fit
        assert fit is not None
        assert fit.validation is not None
        own, in_distribution, ood = fit.validation.ood is None, list[Outputs](), list[Outputs]()
        for about, outputs in kept_outputs(
            self.folder, kept_slices(self.folder, self.model, VALIDATION), self.model, name
        ):
            right = np.array([{True: 1, False: 0}.get(correct, -1) for correct in about["right"]])
            in_distribution.append(outputs[np.flatnonzero(right == 1)] if own or fit.only else outputs)
            ood += [outputs[np.flatnonzero(right == 0)]] if own else []
        ood_files = kept_outputs(self.folder, kept_slices(self.folder, self.model, OOD), self.model, name)
        pools = Pools(
            Outputs.join(in_distribution), Outputs.join([*ood, *(outputs for _, outputs in ood_files)])
        )
        if not len(pools.in_distribution) or not len(pools.ood):
            raise SoritesError(
                f"search: {self.model} has {len(pools.in_distribution)} in-distribution and {len(pools.ood)}"
                " OOD"
                " validation images. Give more of them, or a source of OOD images:"
                ' [fit.validation] ood = "folder:PATH"'
            )
        return pools


def read_fits(folder: Path) -> dict[str, ModelFit]:
    """Return what the scorers of each model were fitted on; empty if none were fitted.

    Raises:
        Damaged: The record cannot be read.
    """
    path = folder / RECORD
    if not path.exists():
        return {}
    models = digests.read_sealed(path, repair(folder)).get("models")
    entries = models.items() if isinstance(models, dict) else ()
    return {name: validated(entry, path, ModelFit, repair(folder)) for name, entry in entries}


def write_fits(folder: Path, fits: Mapping[str, ModelFit]) -> None:
    """Write what the scorers of each model were fitted on."""
    digests.write_sealed({"models": {name: fit.as_json() for name, fit in fits.items()}}, folder / RECORD)


def fit_notes(folder: Path) -> list[str]:
    """Return the remarks of fitted scorers, by model."""
    return [f"{name}: {note}" for name, entry in read_fits(folder).items() for note in entry.notes.values()]


def refusals(folder: Path) -> list[str]:
    """Return why scorers of a run have no scores at all, by model."""
    return [
        f"{model}: {note}"
        for model, entry in read_fits(folder).items()
        for name, note in entry.notes.items()
        if name not in entry.scorers
    ]


def record(plan: Plan, folder: Path) -> None:
    """Write what the scorers were fitted on, how many training images were skipped, and what searches
    chose.
    """
    fits = {name: _fit_of(folder, name, scorers) for name, scorers in plan.fitted.items()}
    searched_ = {name: fits[name].having(search=dict(found)) for name, found in plan.searches.items()}
    write_fits(folder, {**fits, **searched_})


def _fit_of(folder: Path, model: str, scorers: Mapping[str, Scorer]) -> ModelFit:
    metadata = [about for about, _ in kept_files(folder, kept_slices(folder, model), model, ())]
    counted = {
        name: scorer.fitted for name, scorer in scorers.items() if getattr(scorer, "fitted", None) is not None
    }
    notes = {name: scorer.note for name, scorer in scorers.items() if getattr(scorer, "note", "")}
    optional: dict[str, Any] = {"notes": notes} if notes else {}
    if any("wrong" in about for about in metadata):
        optional["wrong"] = sum(about["wrong"] for about in metadata)
    return ModelFit(left_out=sum(about["left"] for about in metadata), scorers=counted, **optional)
