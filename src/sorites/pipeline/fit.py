"""Scorers that remember training pictures: the models see those once, what they gave is kept in ``fits/``, and each scorer
is fitted from these files, one after the other, for each model on its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import CLEAN, Head, Model, Outputs, Sample, Scorer, split_spec
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline import shards
from sorites.pipeline.answers import answers
from sorites.pipeline.pictures import Shot, reason
from sorites.pipeline.plan import Plan, Unit, framed_picture
from sorites.pipeline.predict import GREY, batches
from sorites.pipeline.running import Running, Task, running_in
from sorites.pipeline.scoring import for_model, look_inside

SLICE = 128
"""Training pictures per file."""
NAME, INSIDE, RECORD = "fit", "inside ", "fits/fitted.json"

Arrays = dict[str, NDArray[np.float32]]


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
    """A warning where training pictures that a scorer remembers are under test as well; empty where none is."""
    fit = plan.suite.fit if any("training" in scorer.needs for scorer in plan.scorers.values()) else None
    judged = {sample.id for group in plan.groups.values() for sample in group}
    both = sum(sample.id in judged for sample in plan.fit)
    if fit is None or not both or _place(fit.source) != _place(plan.suite.source):
        return ""
    return f"note: {both} of the {len(plan.fit)} training pictures are also judged: their strangeness is too low"


def _place(spec: str) -> tuple[str, Path | None]:
    """A source by its name and where it reads from, however that is spelled."""
    name, argument = split_spec(spec)
    return name, Path(argument).resolve() if argument else None


def units(plan: Plan) -> list[Unit]:
    """The slices of the training pictures."""
    return [Unit(NAME, start, min(start + SLICE, len(plan.fit))) for start in range(0, len(plan.fit), SLICE)]


def kept_slices(folder: Path, model: str) -> list[Unit]:
    """The slices of training pictures that a run folder keeps of a model."""
    found: list[Unit] = []
    while shards.training(folder, unit := Unit(NAME, len(found) * SLICE, (len(found) + 1) * SLICE), model).exists():
        found.append(unit)
    return found


def tasks(plan: Plan, folder: Path) -> list[Task]:
    """The slices that some models have not seen yet."""
    present = shards.Present(folder, ("fits",))
    found = {u: tuple(m for m in plan.models if shards.training(folder, u, m) not in present) for u in units(plan)}
    return [Task(unit, names) for unit, names in found.items() if names]


def wants_training(plan: Plan) -> bool:
    return any("training" in scorer.needs for scorer in plan.scorers.values())


def inside_bytes(plan: Plan) -> int:
    """Bytes that scorers keep of one training picture from inside the models."""
    looking = [scorer for scorer in plan.scorers.values() if scorer.looks and "training" in scorer.needs]
    rows = (scorer.look(model, [GREY]) for scorer in looking for model in plan.models.values())
    return sum(row.nbytes for row in rows if row is not None)


def ready(folder: Path, running: Running) -> Plan:
    """Return the plan with every model's own scorers, fitted once per process from what ``fits/`` keeps."""

    def fitted(plan: Plan) -> Plan:
        slices = units(plan)
        own = {name: {spec: for_model(s, model.head) for spec, s in plan.scorers.items()} for name, model in plan.models.items()}
        for name, scorers in own.items():
            for scorer in scorers.values():
                if "training" in scorer.needs:
                    fit_on(scorer, folder, slices, name, plan.models[name].head)
        return replace(plan, fitted=own)

    return running.once("fitted", fitted)


def record(plan: Plan, folder: Path) -> None:
    """Keep what a fitted plan's scorers were fitted on, and how many training pictures had to be left out."""
    slices = units(plan)
    found = {name: _about(folder, slices, name, scorers) for name, scorers in plan.fitted.items()}
    write_bytes(json.dumps(found, indent=1).encode(), folder / RECORD)


def _about(folder: Path, slices: Sequence[Unit], model: str, scorers: Mapping[str, Scorer]) -> dict[str, Any]:
    left = sum(int(told["left"]) for told, _ in _files(folder, slices, model, ()))
    fits = {name: scorer.fitted for name, scorer in scorers.items() if getattr(scorer, "fitted", None) is not None}
    return {"left_out": left, "scorers": fits}


def fit_on(scorer: Scorer, folder: Path, slices: Sequence[Unit], model: str, head: Head | None) -> Scorer:
    """Fit a scorer on the kept outputs of training pictures of a model."""
    return scorer.fit(training(folder, slices, model, scorer.name), head)


def training(folder: Path, slices: Sequence[Unit], model: str, inside: str = "") -> Iterator[tuple[Outputs, list[int]]]:
    """Yield the kept outputs of training pictures with their labels (columns of the logits; -1 is none), a file at a time."""
    within = f"{INSIDE}{inside}"
    for about, arrays in _files(folder, slices, model, ("logits", "features", within)):
        seen = {inside: arrays[within]} if within in arrays else {}
        if arrays:
            outputs = Outputs(arrays.get("logits"), arrays.get("features"), inside=seen, ids=json.loads(about["sample_id"]))
            yield outputs, json.loads(about["label"])


def _files(folder: Path, slices: Sequence[Unit], model: str, parts: Sequence[str]) -> Iterator[tuple[dict[str, str], Arrays]]:
    from safetensors import safe_open

    for unit in slices:
        with safe_open(shards.training(folder, unit, model), "numpy") as file:
            here = set(file.keys())
            yield file.metadata(), {part: file.get_tensor(part) for part in parts if part in here}


@dataclass
class _Kept:
    """The outputs of a model for some training pictures, with their ids and labels; ``left`` counts those left out."""

    outputs: list[Outputs] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    left: int = 0


def collect(folder: Path, task: Task, *, batch: int) -> None:
    """A unit of work: show a slice of the training pictures to the task's models and keep what each gave."""
    running = running_in(folder)
    plan = running.plan
    kept = {name: _Kept() for name in task.models}
    shots = (_shot(plan, sample) for sample in plan.fit[task.unit.start : task.unit.stop])
    for some in batches(shots, batch):
        for name, mine in kept.items():
            leave_if_asked()
            _see(plan, plan.models[name], some, mine)
        running.tick(len(some) * len(kept))
    for name, mine in kept.items():
        write_bytes(_packed(mine), shards.training(folder, task.unit, name))


def _shot(plan: Plan, sample: Sample) -> Shot:
    shot = Shot(sample, CLEAN, sample.setting)
    try:
        return replace(shot, picture=framed_picture(plan.suite, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the picture"))


def _see(plan: Plan, model: Model, some: Sequence[Shot], kept: _Kept) -> None:
    """Leave out a picture that cannot be read or seen, and one whose label the model does not know."""
    columns = plan.columns[model.name]
    place = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    given = answers(model, some, plan.is_framed)
    for row, i in enumerate(given.seen):
        sample = some[i].sample
        label = -1 if sample.label is None else place.get(sample.label)
        inside = None if label is None else _inside(plan, model, some[i])
        if inside is None or label is None:
            kept.left += 1
            continue
        kept.outputs.append(replace(given.outputs[row : row + 1], inside=inside))
        kept.ids.append(sample.id)
        kept.labels.append(label)
    kept.left += len(some) - len(given.seen)


def _inside(plan: Plan, model: Model, shot: Shot) -> Arrays | None:
    """Return what the scorers to be fitted see inside the model, or None if one of them cannot look."""
    found: Arrays = {}
    for name, scorer in plan.scorers.items():
        if shot.picture is not None and scorer.looks and "training" in scorer.needs:
            row, error = look_inside(scorer, name, model, shot.picture, plan.is_framed(shot.sample))
            if error is not None:
                return None
            found[name] = row
    return found


def _packed(kept: _Kept) -> bytes:
    from safetensors.numpy import save

    joined = Outputs.join(kept.outputs)
    arrays: Arrays = {f"{INSIDE}{name}": rows for name, rows in joined.inside.items()}
    arrays |= {part: rows for part, rows in (("features", joined.features), ("logits", joined.logits)) if rows is not None}
    about = {"sample_id": json.dumps(kept.ids), "label": json.dumps(kept.labels), "left": str(kept.left)}
    return save(arrays, metadata=about)
