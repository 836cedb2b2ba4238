"""Fit scorers that need training images.

The models see the training images once and their outputs are stored in ``fits/``; each scorer is then fitted
from these files, for each model separately. Validation images, on which a search chooses parameters, are
stored in the same way.
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
from sorites.core.messages import option
from sorites.evaluation.engines.interrupts import stop_if_requested
from sorites.evaluation.images import Shot, reason
from sorites.evaluation.plan import Columns, Plan, Unit
from sorites.evaluation.predict import GREY, batches, evaluate_shots, for_model, look_inside
from sorites.evaluation.samples import framed_image
from sorites.evaluation.storage import shards
from sorites.evaluation.storage.tensors import About, Arrays, read_tensors
from sorites.evaluation.worker import Running, Task, running_in
from sorites.io.files import read_json, write_bytes
from sorites.io.paths import resolve
from sorites.metrics.separation import auroc, pair
from sorites.suites.suite import Fit

# Parameter search as in OpenOOD: every combination of a scorer's ranges is tried on validation images, and
# the one with the largest AUROC between in-distribution and OOD images is used (Zhang et al. 2023; the first
# one wins ties, as in their code).


# Result of a search, as stored in ``fits/fitted.json``.
SearchResult = dict[str, Any]


@dataclass(frozen=True)
class Pools:
    """Outputs of one model for in-distribution and OOD validation images."""

    in_distribution: Outputs
    ood: Outputs


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
        SoritesError: No candidate works.
    """
    winner: tuple[float, Scorer, Mapping[str, Any]] | None = None
    tried: list[SearchResult] = []
    for name, params in core.scorer_candidates(spec).items():
        validation = pools(name)
        try:
            scorer = ready(name)
            value = _auroc(scorer, validation)
        except SoritesError as error:
            tried.append({"params": params, "left_out": str(error)})
            continue
        tried.append({"params": params, "auroc": value})
        if winner is None or value > winner[0]:
            winner = value, scorer, params
    if winner is None:
        raise SoritesError(f"search: no parameters of {spec} work with {model}: {tried[0]['left_out']}")
    return winner[1], {"chosen": dict(winner[2]), "auroc": winner[0], "tried": tried}


def _auroc(scorer: Scorer, pools: Pools) -> float:
    in_distribution, ood = (
        np.asarray(scorer(part), np.float64) for part in (pools.in_distribution, pools.ood)
    )
    not_finite = int((~np.isfinite(in_distribution)).sum() + (~np.isfinite(ood)).sum())
    if not_finite:
        raise SoritesError(f"scorer {scorer.name} returned {not_finite} scores that are not finite")
    return auroc(pair(in_distribution, ood))


def chosen_name(spec: str, search: Mapping[str, Any]) -> str:
    """Return the name of the candidate that a stored search chose."""
    return next(name for name, params in core.scorer_candidates(spec).items() if params == search["chosen"])


# Training images per file.
SAMPLES_PER_FILE = 128
# Kinds of slices: training images, in-distribution validation images, and OOD validation images.
NAME, VALIDATION, OOD = "fit", "validation", "ood"
INSIDE = "inside "


def refuse_unfitted(plan: Plan) -> None:
    """Raise a ``SoritesError`` if scorers need training images and the suite has none or too few."""
    needing_fit = [name for name, scorer in plan.scorers.items() if "training" in scorer.needs]
    if needing_fit and not plan.fit:
        raise SoritesError(
            f"{', '.join(needing_fit)}: must be fitted on training images. Add"
            f" {option('fit', 'folder:PATH')}, or to"
            ' the suite: [fit] source = "folder:PATH"'
        )
    for scorer in plan.scorers.values():
        if "training" in scorer.needs:
            scorer.enough(len(plan.fit))


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
    return {NAME: plan.fit, VALIDATION: plan.validation, OOD: plan.ood}[kind]


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
    slices: list[Unit] = []
    while shards.training(
        folder,
        unit := Unit(kind, len(slices) * SAMPLES_PER_FILE, (len(slices) + 1) * SAMPLES_PER_FILE),
        model,
    ).exists():
        slices.append(unit)
    file_count = len(list((folder / "fits").glob(f"{kind}-*--{shards.slug(model)}.safetensors")))
    if file_count > len(slices):
        raise SoritesError(
            f"{folder / 'fits'} lacks the {kind} images from {len(slices) * SAMPLES_PER_FILE} on of {model}:"
            " repeat the run"
        )
    return slices


def gaps(plan: Plan, folder: Path, keep: bool = False) -> bool:
    """Return whether a run folder has some of the slices that ``tasks`` needs, but not all."""
    return (folder / "fits").is_dir() and bool(tasks(plan, folder, keep))


def tasks(plan: Plan, folder: Path, keep: bool = False) -> list[Task]:
    """Return the slices that models have not seen yet: those that scorers need, or all if ``keep``."""
    kinds = [NAME] * (keep or wants_training(plan)) + [VALIDATION, OOD] * (keep or bool(searched(plan)))
    present = shards.Present(folder, ("fits",))
    every_unit = [unit for kind in kinds for unit in units(plan, kind)]
    missing = {
        u: tuple(m for m in plan.models if shards.training(folder, u, m) not in present) for u in every_unit
    }
    return [Task(unit, names) for unit, names in missing.items() if names]


def wants_training(plan: Plan) -> bool:
    """Return whether any scorer needs training images."""
    return any("training" in scorer.needs for scorer in plan.scorers.values())


def inside_bytes(plan: Plan, kind: str = NAME) -> int:
    """Return the bytes of internal activations stored per training or validation image."""
    rows = (
        scorer.look(model, [GREY])
        for scorer in _looking(plan, kind).values()
        for model in plan.models.values()
    )
    return sum(row.nbytes for row in rows if row is not None)


def _looking(plan: Plan, kind: str) -> dict[str, Scorer]:
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
    for unit in slices:
        yield read_tensors(shards.training(folder, unit, model), ("sample_id", "label"), parts)


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


def collect(folder: Path, task: Task, *, batch: int) -> None:
    """Show a slice of the training or validation images to the task's models and store the outputs."""
    running = running_in(folder)
    plan, kind = running.plan, task.unit.shift
    collected = {name: _Collected() for name in task.models}
    looking = _looking(plan, kind)
    shots = (_shot(plan, sample) for sample in samples_of(plan, kind)[task.unit.start : task.unit.stop])
    for chunk in batches(shots, batch):
        for name, outputs in collected.items():
            stop_if_requested()
            _add_outputs(plan, plan.models[name], chunk, outputs, kind, looking)
        running.tick(len(chunk) * len(collected))
    only = plan.suite.fit is not None and plan.suite.fit.only is not None
    for name, outputs in collected.items():
        metadata = (
            {"wrong": str(outputs.wrong)}
            if only and kind == NAME
            else {"right": json.dumps(outputs.right)}
            if kind != NAME
            else {}
        )
        write_bytes(_to_safetensors(outputs, metadata), shards.training(folder, task.unit, name))


def _shot(plan: Plan, sample: Sample) -> Shot:
    shot = Shot(sample, CLEAN, sample.setting)
    try:
        return replace(shot, image=framed_image(plan.suite, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the image"))


def _add_outputs(
    plan: Plan,
    model: Model,
    chunk: Sequence[Shot],
    collected: _Collected,
    kind: str,
    looking: Mapping[str, Scorer],
) -> None:
    """Add the outputs of some images to ``collected``.

    Skip images that cannot be read or evaluated, images with a label the model lacks (unless they are OOD),
    and, with ``fit.only``, training images that the model does not classify correctly.
    """
    columns = plan.columns[model.name]
    column_of = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    answered = evaluate_shots(model, chunk, plan.is_framed, plan.width_of(model.name))
    only = plan.suite.fit is not None and plan.suite.fit.only == "right"
    for row, i in enumerate(answered.seen):
        sample = chunk[i].sample
        label = -1 if sample.label is None or kind == OOD else column_of.get(sample.label)
        right = None if kind == OOD else _is_correct(columns, sample, answered.outputs[row : row + 1].logits)
        if only and kind == NAME and right is not True and label is not None:
            collected.wrong += right is False
            collected.left += right is None
            continue
        inside = None if label is None else _inside(looking, model, chunk[i], plan.is_framed(chunk[i].sample))
        if inside is None or label is None:
            collected.left += 1
            continue
        collected.outputs.append(replace(answered.outputs[row : row + 1], inside=inside))
        collected.ids.append(sample.id)
        collected.labels.append(label)
        collected.right.append(right)
    collected.left += len(chunk) - len(answered.seen)


def _is_correct(columns: Columns, sample: Sample, logits: NDArray[np.float32] | None) -> bool | None:
    """Return whether a model classifies an image correctly among the suite's labels; None if unknown."""
    if logits is None or sample.right.isdisjoint(columns.known):
        return None
    return int(columns.labels[columns.of(logits)[0].argmax()]) in sample.right


def _inside(looking: Mapping[str, Scorer], model: Model, shot: Shot, framed: bool) -> Arrays | None:
    """Return the internal activations for the scorers that need them, or None if one fails."""
    activations: Arrays = {}
    for name, scorer in looking.items():
        if shot.image is not None:
            row, error = look_inside(scorer, name, model, shot.image, framed)
            if error is not None:
                return None
            activations[name] = row
    return activations


def _to_safetensors(collected: _Collected, more: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    joined = Outputs.join(collected.outputs)
    arrays: Arrays = {f"{INSIDE}{name}": rows for name, rows in joined.inside.items()}
    arrays |= {
        part: rows
        for part, rows in (("features", joined.features), ("logits", joined.logits))
        if rows is not None
    }
    about = {
        "sample_id": json.dumps(collected.ids),
        "label": json.dumps(collected.labels),
        "left": str(collected.left),
        **more,
    }
    return save(arrays, metadata=about)


# Fitting, and the record of it.


RECORD = "fits/fitted.json"


def ready(folder: Path, running: Running) -> Plan:
    """Return the plan with fitted scorers for each model; fitted once per process from ``fits/``."""

    def fitted(plan: Plan) -> Plan:
        own: dict[str, dict[str, Scorer]] = {name: {} for name in plan.models}
        searches: dict[str, dict[str, SearchResult]] = {name: {} for name in plan.models if searched(plan)}
        record = read_record(folder)
        for name, model in plan.models.items():
            fits = Fits(folder, name, model.head, plan.suite.fit, record.get(name, {}).get("search", {}))
            for spec, scorer in plan.scorers.items():
                own[name][spec], search = fits.scorer(spec, scorer)
                if search is not None:
                    searches[name][spec] = search
        return replace(plan, fitted=own, searches=searches)

    return running.once("fitted", fitted)


class UnfittedScorer(Scorer):
    """Replaces a scorer that could not be fitted: every score is missing, with the reason as error."""

    def __init__(self, scorer: Scorer, reason: str) -> None:
        self.name, self.note = scorer.name, reason

    def __call__(self, outputs: Outputs) -> NDArray[np.float32]:
        raise SoritesError(self.note)


@dataclass(frozen=True)
class Fits:
    """The files of one model in ``fits/``; ``before`` are earlier searches."""

    folder: Path
    model: str
    head: Head | None
    fit: Fit | None = None
    before: Mapping[str, SearchResult] = field(default_factory=dict)

    def scorer(self, spec: str, scorer: Scorer) -> tuple[Scorer, SearchResult | None]:
        """Return a scorer fitted for this model, and the result of its parameter search, if any."""
        if self.fit is None or not self.fit.search or not core.scorer_candidates(spec):
            return self._fitted(scorer), None
        search = self.before.get(spec)
        if search is not None:
            fitted = self._candidate(chosen_name(spec, search))
        else:
            fitted, search = best(spec, self.model, self._candidate, functools.cache(self._pools))
        fitted.name = spec
        return fitted, search

    def _candidate(self, name: str) -> Scorer:
        return self._fitted(core.scorer(name))

    def _fitted(self, scorer: Scorer) -> Scorer:
        ready = for_model(scorer, self.head)
        if "training" in scorer.needs:
            try:
                fit_on(ready, self.folder, kept_slices(self.folder, self.model), self.model, self.head)
            except TooFewImages as error:
                return UnfittedScorer(scorer, str(error))
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


def read_record(folder: Path) -> dict[str, Any]:
    """Return the record of fitted scorers by model; empty if none were fitted."""
    try:
        content = read_json(folder / RECORD)
    except SoritesError:
        return {}
    return (
        {name: about for name, about in content.items() if _is_record(about)}
        if isinstance(content, dict)
        else {}
    )


def _is_record(about: Any) -> bool:
    searches = about.get("search", {}) if isinstance(about, dict) else None
    return isinstance(searches, dict) and all(
        isinstance(search, dict) and "chosen" in search for search in searches.values()
    )


def chosen_parameters(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the parameters that searches chose, by model and scorer."""
    searches_by_model = {name: about.get("search", {}) for name, about in read_record(folder).items()}
    return {
        name: {spec: search["chosen"] for spec, search in searches.items()}
        for name, searches in searches_by_model.items()
        if searches
    }


def fit_notes(folder: Path) -> list[str]:
    """Return the remarks of fitted scorers, by model."""
    notes_by_model = {name: about.get("notes", {}) for name, about in read_record(folder).items()}
    return [f"{model}: {note}" for model, notes in notes_by_model.items() for note in notes.values()]


def refusals(folder: Path) -> list[str]:
    """Return why scorers of a run have no scores at all, by model."""
    records = read_record(folder)
    entries = ((model, about.get("notes", {}), about.get("scorers", {})) for model, about in records.items())
    return [
        f"{model}: {note}"
        for model, notes, fits in entries
        for name, note in notes.items()
        if name not in fits
    ]


def record(plan: Plan, folder: Path) -> None:
    """Write what the scorers were fitted on, how many training images were skipped, and what searches
    chose.
    """
    content = {name: _about(folder, name, scorers) for name, scorers in plan.fitted.items()}
    for name, searches in plan.searches.items():
        content[name]["search"] = dict(searches)
    write_bytes(json.dumps(content, indent=1).encode(), folder / RECORD)


def _about(folder: Path, model: str, scorers: Mapping[str, Scorer]) -> dict[str, Any]:
    metadata = [about for about, _ in kept_files(folder, kept_slices(folder, model), model, ())]
    fits = {
        name: scorer.fitted for name, scorer in scorers.items() if getattr(scorer, "fitted", None) is not None
    }
    wrong = (
        {"wrong": sum(about["wrong"] for about in metadata)}
        if any("wrong" in about for about in metadata)
        else {}
    )
    notes = {name: scorer.note for name, scorer in scorers.items() if getattr(scorer, "note", "")}
    note_entry = {"notes": notes} if notes else {}
    return {"left_out": sum(about["left"] for about in metadata), **wrong, "scorers": fits, **note_entry}
