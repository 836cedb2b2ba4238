"""Scorers that remember training pictures: the models see those once, what they gave is kept in ``fits/``, and each scorer
is fitted from these files, one after the other, for each model on its own. Validation pictures, on which a search chooses
parameters, are seen and kept in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Head, Model, Outputs, Sample, Scorer, split_spec
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline import shards
from sorites.pipeline.answers import answers
from sorites.pipeline.framing import framed_picture
from sorites.pipeline.pictures import Shot, reason
from sorites.pipeline.plan import Columns, Plan, Unit
from sorites.pipeline.predict import GREY, batches
from sorites.pipeline.running import Task, running_in
from sorites.pipeline.scoring import look_inside
from sorites.pipeline.search import every, searched
from sorites.pipeline.tensors import About, Arrays, read_tensors
from sorites.reading.places import resolved

SLICE = 128
"""Training pictures per file."""
NAME, VALIDATION, STRANGE = "fit", "validation", "strange"
"""Kinds of units: of training pictures, of familiar validation pictures, and of strange ones."""
INSIDE = "inside "


def refuse_unfitted(plan: Plan) -> None:
    """Refuse scorers by name that need training pictures where the suite has none for them, or too few."""
    unmet = [name for name, scorer in plan.scorers.items() if "training" in scorer.needs]
    if unmet and not plan.fit:
        raise SoritesError(
            f"{', '.join(unmet)}: must be fitted on training pictures. Add --fit SOURCE, such as --fit folder:PATH, or to the "
            'suite: [fit] source = "folder:PATH"'
        )
    for scorer in plan.scorers.values():
        if "training" in scorer.needs:
            scorer.enough(len(plan.fit))


def note_overlap(plan: Plan) -> str:
    """A warning where training or validation pictures of scorers are under test as well; empty where none is."""
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
    return f"note: {both} of the {len(plan.validation)} validation pictures are also judged, by parameters chosen on them"


def _judged(plan: Plan, others: Sequence[Sample]) -> int:
    """Return how many of other pictures are under test as well."""
    ids = {sample.id for sample in others}
    return len(ids.intersection(id_ for group in plan.groups.values() for id_ in group.ids())) if ids else 0


def _training_note(plan: Plan) -> str:
    fit = plan.suite.fit if any("training" in scorer.needs for scorer in plan.scorers.values()) else None
    both = _judged(plan, plan.fit)
    if fit is None or not both or _place(fit.source) != _place(plan.suite.source):
        return ""
    return f"note: {both} of the {len(plan.fit)} training pictures are also judged: their strangeness is too low"


def samples_of(plan: Plan, kind: str) -> Sequence[Sample]:
    """The pictures of a kind of unit, in order."""
    return {NAME: plan.fit, VALIDATION: plan.validation, STRANGE: plan.strange}[kind]


def _place(spec: str) -> tuple[str, Path | None]:
    """A source by its name and where it reads from, however that is spelled."""
    name, argument = split_spec(spec)
    return name, resolved(Path(argument)) if argument else None


def units(plan: Plan, kind: str = NAME) -> list[Unit]:
    """The slices of the training pictures, or of validation pictures."""
    count = len(samples_of(plan, kind))
    return [Unit(kind, start, min(start + SLICE, count)) for start in range(0, count, SLICE)]


def kept_slices(folder: Path, model: str, kind: str = NAME) -> list[Unit]:
    """The slices of training or validation pictures that a run folder keeps of a model."""
    found: list[Unit] = []
    while shards.training(folder, unit := Unit(kind, len(found) * SLICE, (len(found) + 1) * SLICE), model).exists():
        found.append(unit)
    held = len(list((folder / "fits").glob(f"{kind}-*--{shards.slug(model)}.safetensors")))
    if held > len(found):
        raise SoritesError(
            f"{folder / 'fits'} lacks the {kind} pictures from {len(found) * SLICE} on of {model}: type the run's command again"
        )
    return found


def gaps(plan: Plan, folder: Path, keep: bool = False) -> bool:
    """Return whether a run folder keeps some of the slices that ``tasks`` asks for and lacks others."""
    return (folder / "fits").is_dir() and bool(tasks(plan, folder, keep))


def tasks(plan: Plan, folder: Path, keep: bool = False) -> list[Task]:
    """The slices that some models have not seen yet, where scorers ask for them or ``keep`` says to keep them all."""
    kinds = [NAME] * (keep or wants_training(plan)) + [VALIDATION, STRANGE] * (keep or bool(searched(plan)))
    present = shards.Present(folder, ("fits",))
    every_unit = [unit for kind in kinds for unit in units(plan, kind)]
    found = {u: tuple(m for m in plan.models if shards.training(folder, u, m) not in present) for u in every_unit}
    return [Task(unit, names) for unit, names in found.items() if names]


def wants_training(plan: Plan) -> bool:
    return any("training" in scorer.needs for scorer in plan.scorers.values())


def inside_bytes(plan: Plan, kind: str = NAME) -> int:
    """Bytes that scorers keep of one training or validation picture from inside the models."""
    rows = (scorer.look(model, [GREY]) for scorer in _looking(plan, kind).values() for model in plan.models.values())
    return sum(row.nbytes for row in rows if row is not None)


def _looking(plan: Plan, kind: str) -> dict[str, Scorer]:
    """The scorers that look inside the models at the pictures of a kind of unit: to be fitted on them, or to be searched."""
    asked = every(plan) if kind == NAME else {n: core.scorer(n) for tried in searched(plan).values() for n in tried}
    return {n: scorer for n, scorer in asked.items() if scorer.looks and (kind != NAME or "training" in scorer.needs)}


def fit_on(scorer: Scorer, folder: Path, slices: Sequence[Unit], model: str, head: Head | None) -> Scorer:
    """Fit a scorer on the kept outputs of training pictures of a model."""
    return scorer.fit(training(folder, slices, model, scorer.name), head)


def training(folder: Path, slices: Sequence[Unit], model: str, inside: str = "") -> Iterator[tuple[Outputs, list[int]]]:
    """Yield the kept outputs of training pictures with their labels (columns of the logits; -1 is none), a file at a time."""
    for about, outputs in kept_outputs(folder, slices, model, inside):
        yield outputs, about["label"]


def kept_outputs(folder: Path, slices: Sequence[Unit], model: str, inside: str) -> Iterator[tuple[About, Outputs]]:
    """Yield what a file says of its pictures, and their outputs with what the scorer ``inside`` saw inside the model."""
    within = f"{INSIDE}{inside}"
    for about, arrays in kept_files(folder, slices, model, ("logits", "features", within)):
        seen = {inside: arrays[within]} if within in arrays else {}
        if arrays:
            yield about, Outputs(arrays.get("logits"), arrays.get("features"), inside=seen, ids=about["sample_id"])


def kept_files(folder: Path, slices: Sequence[Unit], model: str, parts: Sequence[str]) -> Iterator[tuple[About, Arrays]]:
    """Yield what each file of a model says of its pictures, and some of its arrays."""
    for unit in slices:
        yield read_tensors(shards.training(folder, unit, model), ("sample_id", "label"), parts)


@dataclass
class _Kept:
    """The outputs of a model for some training or validation pictures, with their ids and labels.

    ``right`` says of each whether the model has it right; ``left`` counts those left out, and ``wrong`` those left out because
    the model has them wrong.
    """

    outputs: list[Outputs] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    right: list[bool | None] = field(default_factory=list)
    left: int = 0
    wrong: int = 0


def collect(folder: Path, task: Task, *, batch: int) -> None:
    """A unit of work: show a slice of the training or validation pictures to the task's models and keep what each gave."""
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
        more = {"wrong": str(mine.wrong)} if only and kind == NAME else {"right": json.dumps(mine.right)} if kind != NAME else {}
        write_bytes(_packed(mine, more), shards.training(folder, task.unit, name))


def _shot(plan: Plan, sample: Sample) -> Shot:
    shot = Shot(sample, CLEAN, sample.setting)
    try:
        return replace(shot, picture=framed_picture(plan.suite, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the picture"))


def _see(plan: Plan, model: Model, some: Sequence[Shot], kept: _Kept, kind: str, looking: Mapping[str, Scorer]) -> None:
    """Leave out a picture that cannot be read or seen, one that is not strange and whose label the model does not know, and a
    training picture that the model has not right where the suite asks only for those."""
    columns = plan.columns[model.name]
    place = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    given = answers(model, some, plan.is_framed, plan.width_of(model.name))
    only = plan.suite.fit is not None and plan.suite.fit.only == "right"
    for row, i in enumerate(given.seen):
        sample = some[i].sample
        label = -1 if sample.label is None or kind == STRANGE else place.get(sample.label)
        right = None if kind == STRANGE else _right(columns, sample, given.outputs[row : row + 1].logits)
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
    """Return whether a model has a picture right among the suite's labels; None where that cannot be said."""
    if logits is None or sample.right.isdisjoint(columns.known):
        return None
    return int(columns.labels[columns.of(logits)[0].argmax()]) in sample.right


def _inside(looking: Mapping[str, Scorer], model: Model, shot: Shot, framed: bool) -> Arrays | None:
    """Return what the scorers that need it see inside the model, or None if one of them cannot look."""
    found: Arrays = {}
    for name, scorer in looking.items():
        if shot.picture is not None:
            row, error = look_inside(scorer, name, model, shot.picture, framed)
            if error is not None:
                return None
            found[name] = row
    return found


def _packed(kept: _Kept, more: Mapping[str, str]) -> bytes:
    from safetensors.numpy import save

    joined = Outputs.join(kept.outputs)
    arrays: Arrays = {f"{INSIDE}{name}": rows for name, rows in joined.inside.items()}
    arrays |= {part: rows for part, rows in (("features", joined.features), ("logits", joined.logits)) if rows is not None}
    about = {"sample_id": json.dumps(kept.ids), "label": json.dumps(kept.labels), "left": str(kept.left), **more}
    return save(arrays, metadata=about)
