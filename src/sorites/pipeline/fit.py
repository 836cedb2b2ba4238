"""Scorers that remember training pictures: the models see those once, what they gave is kept in ``fits/``, and each scorer
is fitted from these files, one after the other, for each model on its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import CLEAN, Model, Outputs, Sample, Scorer, split_spec
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.files import write_bytes
from sorites.pipeline import folder as folders
from sorites.pipeline.pictures import Shot, reason
from sorites.pipeline.plan import Plan, Unit, frame_of
from sorites.pipeline.predict import GREY, batches, is_framed, verdicts
from sorites.pipeline.scoring import looked, needs, own
from sorites.progress import Bar

SLICE = 128
"""Training pictures in a file."""
NAME, INSIDE, TOLD = "fit", "inside ", "fits/fitted.json"

Job = Callable[[Sequence[Unit], Callable[[Unit], None]], Iterator[Unit]]
Head = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass
class _Kept:
    """What a model gave for some training pictures, and of which; ``left`` counts those left out."""

    outputs: list[Outputs] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    left: int = 0


def refuse_unfitted(plan: Plan) -> None:
    """Scorers that need training pictures are refused by name where the suite has none for them, or too few."""
    unmet = [name for name, scorer in plan.scorers.items() if "training" in needs(scorer)]
    if unmet and not plan.fit:
        raise SoritesError(
            f"{', '.join(unmet)}: must be fitted on training pictures. Add --fit SOURCE, such as --fit folder:PATH, or to the "
            'suite: [fit] source = "folder:PATH"'
        )
    for scorer in plan.scorers.values():
        if "training" in needs(scorer) and hasattr(scorer, "enough"):
            scorer.enough(len(plan.fit))


def judged_too(plan: Plan) -> str:
    """A warning in words where training pictures that a scorer remembers are under test as well; empty where none is."""
    fit = plan.suite.fit if any("training" in needs(scorer) for scorer in plan.scorers.values()) else None
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
    return [Unit(NAME, start, min(start + SLICE, len(plan.fit))) for start in range(0, len(plan.fit), SLICE)]


def inside_bytes(plan: Plan) -> int:
    """Of one training picture, what scorers keep that look inside the models."""
    looking: list[Any] = [s for s in plan.scorers.values() if hasattr(s, "look") and "training" in needs(s)]
    return sum(scorer.look(model, [GREY]).nbytes for scorer in looking for model in plan.models.values())


def fitted(plan: Plan, folder: Path, batch: int, job: Job, keep: bool, bar: Bar | None = None) -> Plan:
    """The plan with every model's own scorers, fitted; ``keep`` the training outputs even if no scorer asks for them now."""
    trained = any("training" in needs(scorer) for scorer in plan.scorers.values())
    if plan.fit and (trained or keep):
        _collect(plan, folder, batch, job, bar)
    if keep:
        keep_heads(plan, folder)
    ready = {
        name: {said: fit(own(made, model), folder, name, model.head) for said, made in plan.scorers.items()}
        for name, model in plan.models.items()
    }
    if trained:
        write_bytes(
            json.dumps({name: _told(folder, name, mine) for name, mine in ready.items()}, indent=1).encode(), folder / TOLD
        )
    return replace(plan, fitted=ready)


def _told(folder: Path, model: str, scorers: Mapping[str, Scorer]) -> dict[str, Any]:
    """What a model's scorers were fitted on, and how many training pictures had to be left out."""
    left = sum(int(told["left"]) for told, _ in _files(folder, model, ()))
    return {"left_out": left, "scorers": {name: made.fitted for name, made in scorers.items() if hasattr(made, "fitted")}}


def fit(scorer: Any, folder: Path, model: str, head: Head | None) -> Scorer:
    """A scorer that needs training pictures, fitted on those kept of a model; any other as it is."""
    if "training" in needs(scorer):
        scorer.fit(training(folder, model, getattr(scorer, "name", "")), head)
    made: Scorer = scorer
    return made


def training(folder: Path, model: str, inside: str = "") -> Iterator[tuple[Outputs, list[int]]]:
    """The kept outputs of training pictures with their labels (places in the logits; -1 is none), a file at a time."""
    within = f"{INSIDE}{inside}"
    for told, held in _files(folder, model, ("logits", "features", within)):
        seen = {inside: held[within]} if within in held else {}
        if held:
            outputs = Outputs(held.get("logits"), held.get("features"), inside=seen, ids=json.loads(told["sample_id"]))
            yield outputs, json.loads(told["label"])


def _files(folder: Path, model: str, parts: Sequence[str]) -> Iterator[tuple[dict[str, str], dict[str, NDArray[np.float32]]]]:
    from safetensors import safe_open

    for path in sorted((folder / "fits").glob(f"{NAME}-*--{folders.slug(model)}.safetensors")):
        with safe_open(path, "numpy") as file:
            here = set(file.keys())
            yield file.metadata(), {part: file.get_tensor(part) for part in parts if part in here}


def _collect(plan: Plan, folder: Path, batch: int, job: Job, bar: Bar | None) -> None:
    todo = {u: [name for name in plan.models if not folders.fits(folder, u, name).exists()] for u in units(plan)}
    todo = {unit: names for unit, names in todo.items() if names}
    if not todo:
        return
    tick = bar("fitting", sum((u.stop - u.start) * len(names) for u, names in todo.items())) if bar else lambda n: None
    for unit in job(list(todo), lambda unit: _slice(plan, folder, batch, unit, todo[unit])):
        tick((unit.stop - unit.start) * len(todo[unit]))


def _slice(plan: Plan, folder: Path, batch: int, unit: Unit, names: Sequence[str]) -> None:
    kept = {name: _Kept() for name in names}
    shots = (_shot(plan, sample) for sample in plan.fit[unit.start : unit.stop])
    for some in batches(shots, batch):
        for name in names:
            leave_if_asked()
            _see(plan, plan.models[name], some, kept[name])
    for name in names:
        write_bytes(_packed(kept[name]), folders.fits(folder, unit, name))


def _shot(plan: Plan, sample: Sample) -> Shot:
    shot = Shot(sample, CLEAN, sample.setting)
    try:
        return replace(shot, picture=frame_of(plan.suite.frame, sample))
    except Exception as error:
        return replace(shot, error=reason(error, "reading the picture"))


def _see(plan: Plan, model: Model, some: Sequence[Shot], kept: _Kept) -> None:
    """A picture that cannot be read or seen is left out, and so is one whose label the model does not know."""
    columns = plan.columns[model.name]
    place = dict(zip(columns.labels.tolist(), columns.places.tolist(), strict=True))
    for shot, (one, _) in zip(some, verdicts(plan, model, some, [shot.error for shot in some]), strict=True):
        label = -1 if shot.sample.label is None else place.get(shot.sample.label)
        whole = None if one is None or label is None else _inside(plan, model, shot, one)
        if whole is None or label is None:
            kept.left += 1
            continue
        kept.outputs.append(whole)
        kept.ids.append(shot.sample.id)
        kept.labels.append(label)


def _inside(plan: Plan, model: Model, shot: Shot, one: Outputs) -> Outputs | None:
    """With what the scorers that are fitted on it see inside the model; none if one of them cannot."""
    found = dict[str, Any]()
    for name, scorer in plan.scorers.items():
        if shot.picture is not None and hasattr(scorer, "look") and "training" in needs(scorer):
            seen, _ = looked(scorer, name, model, one, shot.picture, is_framed(plan, shot))
            if seen is None:
                return None
            found |= seen.inside
    return replace(one, inside=found)


def _packed(kept: _Kept) -> bytes:
    from safetensors.numpy import save

    tensors: dict[str, NDArray[np.float32]] = {}
    for part in ("features", "logits"):
        held = [getattr(one, part) for one in kept.outputs]
        if held and held[0] is not None:
            tensors[part] = np.concatenate(held)
    for name in kept.outputs[0].inside if kept.outputs else ():
        tensors[f"{INSIDE}{name}"] = np.concatenate([one.inside[name] for one in kept.outputs])
    told = {"sample_id": json.dumps(kept.ids), "label": json.dumps(kept.labels), "left": str(kept.left)}
    return save(tensors, metadata=told)


def keep_heads(plan: Plan, folder: Path) -> None:
    """Beside kept features, the last layers that scorers added later will ask for."""
    from safetensors.numpy import save

    for name, model in plan.models.items():
        if model.head is not None and not folders.head(folder, name).exists():
            weight, bias = (np.ascontiguousarray(part, np.float32) for part in model.head)
            write_bytes(save({"weight": weight, "bias": bias}), folders.head(folder, name))


def read_head(folder: Path, model: str) -> Head | None:
    from safetensors.numpy import load_file

    path = folders.head(folder, model)
    if not path.exists():
        return None
    held = load_file(path)
    return held["weight"], held["bias"]
