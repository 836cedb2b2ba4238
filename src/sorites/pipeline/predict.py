"""Show images to models and keep what each said as rows of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from sorites.core import Box, Model, Outputs, Picture, Scorer
from sorites.engines.interrupts import leave_if_asked
from sorites.errors import SoritesError
from sorites.pipeline.pictures import Shot, reason
from sorites.pipeline.plan import Plan
from sorites.pipeline.scoring import Scored, looked, needs, own, refuse, scored

Record = dict[str, object]
GREY: Picture = np.full((96, 128, 3), 128, dtype=np.uint8)
"""What every model and scorer is tried on before any work is done."""
T = TypeVar("T")


@dataclass
class Seen:
    """What one model made of some images: rows, and the raw outputs of those it could see."""

    records: list[Record] = field(default_factory=list)
    outputs: list[Outputs] = field(default_factory=list)
    image_ids: list[str] = field(default_factory=list)


def look(
    plan: Plan, images: Iterable[Shot], batch: int, tick: Callable[[int], None] = lambda n: None, models: Sequence[str] = ()
) -> dict[str, Seen]:
    """Show the images to the models, a batch at a time; a batch is the most that is held in memory."""
    seen = {name: Seen() for name in models or plan.models}
    for some in batches(images, batch):
        for name, kept in seen.items():
            leave_if_asked()
            _look(plan, plan.models[name], some, kept)
        tick(len(some) * len(seen))
    return seen


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while some := list(islice(source, size)):
        yield some


def _look(plan: Plan, model: Model, some: Sequence[Shot], kept: Seen) -> None:
    ids = [plan.image_id(shot.sample, shot.shift, shot.setting) for shot in some]
    found = [shot.error or "no picture" if shot.picture is None else None for shot in some]
    given = verdicts(plan, model, some, found)
    scores = _scores(plan, model, some, [one for one, _ in given])
    for i, (shot, image_id, (one, error)) in enumerate(zip(some, ids, given, strict=True)):
        base = {"image_id": image_id, **_about(plan, shot, model)}
        mine = {name: column[i] for name, column in scores.items()}
        kept.records += _error_rows(plan, base, error) if one is None else _judged(plan, model, shot, one, base, mine)
        if one is not None:
            kept.outputs.append(one)
            kept.image_ids.append(image_id)


def is_framed(plan: Plan, shot: Shot) -> bool:
    return shot.sample.framed or plan.suite.frame is not None


def verdicts(plan: Plan, model: Model, some: Sequence[Shot], errors: Sequence[str | None]) -> list[tuple[Outputs | None, str]]:
    """For each shot its outputs, or none and why."""
    found: list[tuple[Outputs | None, str]] = [(None, error or "") for error in errors]
    for framed in (True, False):
        places = [i for i, s in enumerate(some) if s.picture is not None and is_framed(plan, s) is framed]
        pictures = [picture for i in places if (picture := some[i].picture) is not None]
        for place, verdict in zip(places, outputs_of(model, pictures, framed), strict=True):
            found[place] = verdict
    return found


def outputs_of(model: Model, pictures: Sequence[Picture], framed: bool) -> list[tuple[Outputs | None, str]]:
    """One entry a picture: what the model gave, or none and why. A batch that fails is tried one by one."""
    if not pictures:
        return []
    try:
        together = model(pictures, framed)
        if len(together) != len(pictures):
            raise SoritesError(f"model {model.name} gave {len(together)} outputs for {len(pictures)} pictures")
        return [_row(model, together, i) for i in range(len(pictures))]
    except Exception as error:
        if len(pictures) > 1:
            return [outputs_of(model, [picture], framed)[0] for picture in pictures]
        return [(None, reason(error, f"model {model.name}"))]


def _row(model: Model, together: Outputs, i: int) -> tuple[Outputs | None, str]:
    def part(array: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return None if array is None else np.asarray(array[i : i + 1], dtype=np.float32)

    one = Outputs(part(together.logits), part(together.features), together.boxes and together.boxes[i : i + 1])
    if one.logits is not None and not np.isfinite(one.logits).all():
        return None, f"model {model.name} gave logits that are not finite"
    return one, ""


def _about(plan: Plan, shot: Shot, model: Model) -> Record:
    """The columns that say what was seen and by whom."""
    sample = shot.sample
    return {
        "source": plan.source,
        "split": sample.split,
        "sample_id": sample.id,
        "probe": shot.probe,
        "label": sample.label,
        "accept": sorted(sample.right),
        "known": not sample.right.isdisjoint(plan.columns[model.name].known) if sample.right else None,
        "truth": None if sample.truth is None else [_box(box) for box in sample.truth],
        "attrs": [vars(attr) for attr in sample.attrs],
        "family": plan.family(shot.shift),
        "shift": shot.shift,
        "severity": shot.setting.severity,
        "level": shot.setting.level,
        "params": json.dumps({**shot.setting.params, **shot.chosen_params}, sort_keys=True),
        "seed": plan.suite.seed,
        "model": model.name,
    }


def _box(box: Box) -> Record:
    return dict(zip(("x0", "y0", "x1", "y1"), box.xyxy, strict=True)) | {"label": box.label, "conf": box.conf}


def _error_rows(plan: Plan, base: Record, error: str) -> list[Record]:
    rows: list[Record] = [{"output": "label"}]
    rows += [{"output": "ood", "scorer": name} for name in plan.scorers]
    return [{**base, **row, "error": error} for row in rows]


def _judged(plan: Plan, model: Model, shot: Shot, one: Outputs, base: Record, scores: Mapping[str, Scored]) -> list[Record]:
    """The label row, and one more a scorer; ``correct`` stands on all of them."""
    verdict = _verdict(plan, model, shot, one)
    records = [{**base, "output": "label", **verdict}]
    for name, (score, error) in scores.items():
        bad = {} if error is None else {"correct": None, "error": error}
        records.append({**base, "output": "ood", "scorer": name, **verdict, "score": score, **bad})
    return records


def _scores(plan: Plan, model: Model, some: Sequence[Shot], ones: Sequence[Outputs | None]) -> dict[str, list[Scored]]:
    """Scorer to one entry a shot; those that the model could not see have none."""
    return {name: _score(plan, model, name, scorer, some, ones) for name, scorer in plan.scorers_of(model.name).items()}


def _score(
    plan: Plan, model: Model, name: str, scorer: Scorer, some: Sequence[Shot], ones: Sequence[Outputs | None]
) -> list[Scored]:
    found: list[Scored] = [(None, None)] * len(some)
    seen: dict[int, Outputs] = {}
    for i, (shot, one) in enumerate(zip(some, ones, strict=True)):
        if one is None or shot.picture is None:
            continue
        inside, error = looked(scorer, name, model, one, shot.picture, is_framed(plan, shot))
        if inside is None:
            found[i] = (None, error)
        else:
            seen[i] = inside
    for i, score in zip(seen, scored(name, scorer, list(seen.values())), strict=True):
        found[i] = score
    return found


def _verdict(plan: Plan, model: Model, shot: Shot, one: Outputs) -> Record:
    if one.logits is None:
        return {}
    columns = plan.columns[model.name]
    logits = one.logits[0, columns.places]
    order = np.argsort(-logits, kind="stable")[:5]
    pred, right = int(columns.labels[order[0]]), shot.sample.right
    return {
        "pred": pred,
        "conf": float(softmax(logits.astype(np.float64))[order[0]]),
        "top5": columns.labels[order].tolist(),
        "correct": None if right.isdisjoint(columns.known) else pred in right,
    }


def try_models(plan: Plan) -> dict[str, Outputs]:
    """One plain grey picture through every model and scorer: a broken one is an error before any work is done."""
    tried: dict[str, Outputs] = {}
    for name, model in plan.models.items():
        one, error = outputs_of(model, [GREY], False)[0]
        if one is None:
            raise SoritesError(f"{name} fails on a plain grey picture: {error}")
        wide = 0 if one.logits is None else one.logits.shape[1]
        wanted = len(plan.labels) if model.labels is None else len(model.labels)
        if wide != wanted:
            raise SoritesError(f"{name} gives {wide} logits for {wanted} labels; name its classes with --labels FILE")
        for scorer, score_of in plan.scorers.items():
            _try_scorer(scorer, score_of, model, one)
        tried[name] = one
    return tried


def _try_scorer(name: str, scorer: Scorer, model: Model, one: Outputs) -> None:
    """What it needs must be there; one that is to be fitted is not asked for a score before it is."""
    refuse(name, scorer, model, one)
    mine = own(scorer, model)
    inside, failed = looked(mine, name, model, one, GREY, False)
    if inside is not None and "training" not in needs(scorer):
        failed = scored(name, mine, [inside])[0][1] or ""
    if failed:
        raise SoritesError(f"{name} cannot score what {model.name} gives for a plain grey picture: {failed}")
