"""An attack as a run: one dial per loss, whose severity is the size of the attack, beside the clean pictures.

The run folder is that of any run: the same slices and shards, so that it goes on where it stopped, and every metric and the
report read it. Its pictures belong to a model and are not rounded, so that no other verb can make them again.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from sorites import core
from sorites.core import CLEAN, Model
from sorites.errors import SoritesError
from sorites.files import sweep_temporaries
from sorites.labels import imagenet
from sorites.pipeline import folder, shards
from sorites.pipeline import plan as plans
from sorites.pipeline.pictures import shots
from sorites.pipeline.plan import Plan
from sorites.pipeline.predict import predict
from sorites.pipeline.reopen import ATTACK
from sorites.pipeline.runner import BATCH, prepare, warn
from sorites.pipeline.running import Task, chosen_engine, lent, running_in
from sorites.pipeline.stale import redo_errors
from sorites.progress import Bar
from sorites.stores import place
from sorites.suite import Suite
from sorites.table import SCHEMA, write
from sorites.training.attack.losses import LEAST_CLASSES, LOSSES
from sorites.training.attack.settings import Settings, settings
from sorites.training.attack.unit import attacked, right_columns, seen_by
from sorites.training.inside import module_of, without_weight_gradients

STEPS, RESTARTS = 100, 1
NAME = "attack"


def attack(
    models: str | Model | Sequence[str | Model],
    *,
    norm: str = "l2",
    eps: str | Sequence[float],
    losses: str | Sequence[str] | None = None,
    steps: int = STEPS,
    restarts: int = RESTARTS,
    source: str = "stamps",
    labels: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Attack models with APGD on the clean pictures of a source and return the run folder; what is done is not done again.

    ``eps`` are sizes in 0..1 such as ``"4/255,.1"``. Without ``labels`` the classes are those of the first model. Without
    ``losses`` they are ce and dlr, and ce alone where a model has too few classes for dlr.
    """
    how = settings(norm, eps, tuple(LOSSES) if losses is None else losses, steps, restarts)
    if workers is not None and workers < 1:
        raise SoritesError(f"--workers wants a whole number above 0, got {workers}")
    named = [models] if isinstance(models, str | Model) else list(models)
    loaded = [core.model(model) if isinstance(model, str) else model for model in named]
    for model in loaded:
        module_of(model, "an attack")
    specs = [model if isinstance(model, str) else model.name for model in named]
    suite = Suite(name=NAME, source=source, labels=_labels(labels, loaded), models=tuple(specs), limit=limit, seed=seed)
    plan = plans.make(suite, models={model.name: model for model in loaded})
    few = _too_few(plan, how) if losses is None else None
    if few is not None:
        how = replace(how, losses=tuple(loss for loss in how.losses if loss != few[0]))
        warn(f"{_needs(*few)}: it is left out, and the attack is {' and '.join(how.losses)} alone")
    plan = attack_plan(plan, how)
    prepared = prepare(plan)
    info = {**prepared.info, ATTACK: how.recorded()}
    path = place(out) if out is not None else prepared.default_folder()
    plan, engine = folder.as_begun(path, plan), chosen_engine("local", plan)
    with folder.opened(path, plan, info, warn) as claimed, lent(path, plan, claimed["run_id"]) as running:
        sweep_temporaries(path)
        redo_errors(path, plan)
        found = shards.missing(path, plan.units(), plan.models)
        tasks = [Task(unit, (name,)) for unit, names in found.items() for name in names]
        running.tick = bar("attacking", sum(plan.images_of(task.unit) for task in tasks)) if bar and tasks else running.tick
        work = functools.partial(attack_unit, path, how=how)
        with _without_weight_gradients(plan):
            for _ in engine(tasks, work, workers or os.cpu_count() or 1):
                pass
    return path


def _without_weight_gradients(plan: Plan) -> contextlib.ExitStack:
    """Switch off the gradients of the weights of all models of a plan."""
    stack = contextlib.ExitStack()
    for model in plan.models.values():
        stack.enter_context(without_weight_gradients(model.module))
    return stack


def _labels(given: str | Sequence[str] | None, models: Sequence[Model]) -> str | tuple[str, ...]:
    """Return the classes of the pictures: those named, else the first model's own unless they are ImageNet's."""
    if given is not None:
        return given if isinstance(given, str) else tuple(given)
    own = models[0].labels
    return "imagenet" if own is None or set(own) <= set(imagenet().ids) else own


def _too_few(plan: Plan, how: Settings) -> tuple[str, str, int] | None:
    """Return the first loss for which a model has too few classes, that model and their number, or None."""
    widths = {name: plan.width_of(name) for name in plan.models}
    found = ((loss, name, n) for loss in reversed(how.losses) for name, n in widths.items() if n < LEAST_CLASSES[loss])
    return next(found, None)


def _needs(loss: str, name: str, width: int) -> str:
    return f"the attack {loss} needs at least {LEAST_CLASSES[loss]} classes, and {name} has {width}"


def attack_plan(plan: Plan, how: Settings) -> Plan:
    """Return the plan with its clean pictures alone, the attacks as its shifts and their sizes as the stops."""
    clean = plan.groups[CLEAN]
    if not clean:
        raise SoritesError(f"source {plan.suite.source} has no clean picture, and an attack starts from those")
    few = _too_few(plan, how)
    if few is not None:
        others = ",".join(loss for loss in LOSSES if LEAST_CLASSES[loss] <= few[2])
        raise SoritesError(_needs(*few) + (f". Type --attack {others}" if others else ""))
    for name in plan.models:
        width = plan.width_of(name)
        if not any(right_columns(plan.columns[name], width, sample).any() for sample in clean):
            raise SoritesError(
                f"none of the {len(clean)} clean pictures of {plan.suite.source} has a label that {name} knows, and without "
                "one nothing is right or wrong. Name another --source, or its classes with --labels FILE."
            )
    shifts = {name: how.shift(name) for name in how.shifts}
    return replace(
        plan, groups={CLEAN: clean, **dict.fromkeys(shifts, clean)}, shifts=shifts, stops=dict.fromkeys(shifts, how.eps)
    )


def attack_unit(path: Path, task: Task, *, how: Settings) -> None:
    """A unit of work: attack a slice of the pictures against one model, or show them to it clean, and write its shard."""
    running, (name,) = running_in(path), task.models
    if task.unit.shift == CLEAN:
        found = predict(running.plan, shots(running.plan, task.unit), BATCH, running.tick, (name,))
    else:
        found = predict(seen_by(running.plan, name, how), attacked(running.plan, task.unit, name, how), BATCH, running.tick)
    rows = found[name].rows.with_columns(run_id=pl.lit(running.run_id)).select(SCHEMA.names())
    write(rows, shards.shard(path, task.unit, name))
