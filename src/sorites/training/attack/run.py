"""Run an attack like an evaluation: one shift per loss, whose severities are the attack sizes.

The run folder has the usual tasks and shards, so it can be resumed, and metrics and reports can read it.
Attacked images depend on the model and are not rounded, so other commands cannot recreate them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Model, Outputs, Sample, Setting, Shift
from sorites.core.errors import Notice, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.messages import command, option
from sorites.core.progress import Bar
from sorites.core.rng import rng_for
from sorites.core.table import SCHEMA, Table, write
from sorites.core.torch_tools import one_thread
from sorites.evaluation import plan as plans
from sorites.evaluation.images import Shot, captured_shot, reason, shots
from sorites.evaluation.plan import Columns, Plan, Unit
from sorites.evaluation.predict import predict
from sorites.evaluation.reopen import ATTACK
from sorites.evaluation.resume import redo_errors
from sorites.evaluation.runner import DEFAULT_BATCH, prepare, warn
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.worker import Task, chosen_engine, running_in, share_plan
from sorites.io.files import sweep_temporaries
from sorites.io.stores import to_path
from sorites.metrics import wilson_interval
from sorites.models.torch_module import logits_of, module_of, without_weight_gradients
from sorites.models.torch_module import module_device as device_of
from sorites.suites.suite import Suite
from sorites.training.attack.apgd import LEAST_CLASSES, LOSSES, Norm, apgd, start

# Settings of an attack.


# Increment when the same settings would produce different images.
VERSION = 1
FAMILY = "attack"
UNITS: dict[Norm, str] = {"l2": "l2 distance, pixels in 0..1", "linf": "largest change, pixels in 0..1"}


@dataclass(frozen=True)
class Settings:
    """Settings of an attack: norm, sizes, losses, number of steps and of restarts."""

    norm: Norm
    eps: tuple[float, ...]
    losses: tuple[str, ...]
    steps: int
    restarts: int

    @property
    def shifts(self) -> dict[str, str]:
        """The shift names of the attack with their losses, such as ``apgd_ce_l2``."""
        return {f"apgd_{loss}_{self.norm}": loss for loss in self.losses}

    def shift(self, name: str, model: str = "") -> Shift:
        """Return the attack as a shift; ``model`` becomes part of the version, and so of the image ids."""
        version = f"{VERSION} steps={self.steps} restarts={self.restarts}" + (f" {model}" if model else "")
        return Shift(name, _refuse, FAMILY, UNITS[self.norm], version=version)

    def recorded(self) -> dict[str, Any]:
        """Return the settings as stored in ``run.json``."""
        return {**asdict(self), "eps": list(self.eps), "losses": list(self.losses), "version": VERSION}


def settings(
    norm: str, eps: str | Sequence[float], losses: str | Sequence[str], steps: int, restarts: int
) -> Settings:
    """Validate and return the settings of an attack."""
    if norm not in get_args(Norm):
        raise UnknownName("norm", norm, get_args(Norm), f"{option('norm', None)} is l2 or linf.")
    names = [name.strip() for name in losses.split(",")] if isinstance(losses, str) else list(losses)
    for loss in names or [""]:
        if loss not in LOSSES:
            raise UnknownName("attack", loss, LOSSES, f"{option('attack', None)} is ce, dlr or both: ce,dlr.")
    for name, value in (("steps", steps), ("restarts", restarts)):
        if value < 1:
            raise SoritesError(f"{option(name, None)} must be at least 1, got {value}")
    checked_norm: Norm = "l2" if norm == "l2" else "linf"
    return Settings(checked_norm, epsilons(eps, checked_norm), tuple(dict.fromkeys(names)), steps, restarts)


def epsilons(eps: str | Sequence[float], norm: Norm = "l2") -> tuple[float, ...]:
    """Parse attack sizes such as ``"4/255,.1,.25"`` and return them in ascending order."""
    texts = [text.strip() for text in eps.split(",")] if isinstance(eps, str) else list(eps)
    sizes = [_epsilon(text) for text in texts]
    if not sizes:
        raise SoritesError(f"{option('eps', None)} needs at least one number above 0, such as 4/255,.1,.25")
    too_large = next(
        (text for text, size in zip(texts, sizes, strict=True) if norm == "linf" and size > 1), None
    )
    if too_large is not None:
        raise SoritesError(
            f"{option('eps', None)} {too_large}: pixels are in 0..1, so a change in the linf norm "
            f"is at most 1. Did you mean {too_large}/255?"
        )
    return tuple(sorted(set(sizes)))


def _epsilon(text: str | float) -> float:
    top, slash, bottom = str(text).partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise SoritesError(
            f"{option('eps', None)} needs finite numbers above 0, such as 4/255,.1,.25; got {str(text)!r}"
        )
    return value


def _refuse(image: Any, setting: Any, rng: Any) -> Any:
    raise SoritesError(
        "An attack depends on a model, so it cannot be applied to an image alone; use "
        f"{command('attack', 'MODEL')}"
    )


# Attacked images of a task.


# Images at a model's input, N x H x W x 3 in 0..1.
Inputs = NDArray[np.float32]


@dataclass(frozen=True)
class Target:
    """An image to attack: its sample, the image at the model's input, and a mask of the correct classes."""

    sample: Sample
    x: Inputs
    right: NDArray[np.bool_]


def plan_for_model(plan: Plan, name: str, how: Settings) -> Plan:
    """Return the plan for one model on unprocessed attacked images; the model is part of their ids."""
    model = plan.models[name]
    label = f"{name} {model.version}"
    shifts = {shift: how.shift(shift, label) for shift in plan.shifts}
    return replace(plan, models={name: _unrounded(model)}, shifts=shifts)


def _unrounded(model: Model) -> Model:
    """Return the model with a forward pass for unrounded images in 0..255 at its input size."""

    def forward(images: list[NDArray[Any]]) -> Outputs:
        import torch

        with torch.inference_mode(), one_thread():
            batch = torch.from_numpy(np.stack(images).astype(np.float32)).to(device_of(model.module))
            return Outputs(logits_of(model.module, batch).float().cpu().numpy())

    return replace(model, forward=forward, prepare=lambda image, framed: image)


def attacked_images(plan: Plan, unit: Unit, name: str, how: Settings) -> Iterator[Shot]:
    """Yield the attacked images of a task; images that cannot be attacked carry an error."""
    shots = [captured_shot(plan, sample) for sample in plan.groups[unit.shift][unit.start : unit.stop]]
    targets_or_errors = [_target(plan, name, shot) for shot in shots]
    targets = [target for target in targets_or_errors if isinstance(target, Target)]
    for eps in how.eps:
        points = iter(_points(plan, unit.shift, name, how, eps, targets))
        for shot, target in zip(shots, targets_or_errors, strict=True):
            point: Any = next(points) if isinstance(target, Target) else target
            image = replace(shot, shift=unit.shift, setting=Setting(eps))
            if isinstance(point, str):
                yield replace(image, image=None, error=point)
            else:
                yield replace(image, image=point * np.float32(255))


def _target(plan: Plan, name: str, shot: Shot) -> Target | str:
    """Return an image prepared for the attack, or the reason why it cannot be attacked."""
    if shot.image is None:
        return shot.error or "no image"
    right = right_columns(plan.columns[name], plan.width_of(name), shot.sample)
    if not right.any() or right.all():
        return f"cannot be attacked: {name} has no output for its label, or no other output"
    try:
        prepared = plan.models[name].prepare(np.array(shot.image), plan.is_framed(shot.sample))
    except Exception as error:
        return reason(error, f"model {name}")
    return Target(shot.sample, np.asarray(prepared, np.float32) / np.float32(255), right)


def right_columns(columns: Columns, width: int, sample: Sample) -> NDArray[np.bool_]:
    """Return a mask of a model's logits that are correct for the sample."""
    right = np.zeros(width, bool)
    right[columns.places[np.isin(columns.labels, sorted(sample.right))]] = True
    return right


def _points(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> list[Inputs | str]:
    """Return an attacked image or an error per target.

    If a batch fails, its images are attacked one by one.
    """
    if not targets:
        return []
    try:
        return list(_attack_batch(plan, shift, name, how, eps, targets))
    except Exception as error:  # modules can raise anything
        if len(targets) == 1:
            return [reason(error, shift)]
        return [point for target in targets for point in _points(plan, shift, name, how, eps, [target])]


def _attack_batch(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> Inputs:
    """Attack correctly classified images, and restart those that stay correct from other starting points."""
    import torch

    module = plan.models[name].module
    device = device_of(module)

    def logits(points: torch.Tensor) -> torch.Tensor:
        output = logits_of(module, points * 255)
        if not output.isfinite().all():
            raise SoritesError(f"model {name} returned non-finite logits")
        return output

    with one_thread():
        x = torch.from_numpy(np.stack([target.x for target in targets])).to(device)
        right = torch.from_numpy(np.stack([target.right for target in targets])).to(device)
        with torch.no_grad():
            still_correct = right.gather(1, logits(x).argmax(1, keepdim=True)).squeeze(1)
        result = x.clone()
        for restart in range(how.restarts):
            indices = still_correct.nonzero().squeeze(1)
            if not len(indices):
                break
            starts = [_start(plan, shift, restart, targets[int(i)], eps, how) for i in indices.cpu()]
            begin = torch.from_numpy(np.stack(starts)).to(device)
            point, wrong = apgd(
                logits, x[indices], right[indices], begin, eps, how.norm, how.shifts[shift], how.steps
            )
            replaced = wrong if restart else torch.ones_like(wrong)
            result[indices[replaced]] = point[replaced]
            still_correct[indices[wrong]] = False
        return np.asarray(result.cpu().numpy())


def _start(plan: Plan, shift: str, restart: int, target: Target, eps: float, how: Settings) -> Inputs:
    """Return a starting point that depends only on the seed, the sample and the restart."""
    suffix = f" restart {restart}" if restart else ""
    return start(target.x, eps, how.norm, rng_for(plan.suite.seed, target.sample.id, f"{shift}{suffix}"))


DEFAULT_STEPS, DEFAULT_RESTARTS = 100, 1
SUITE_NAME = "attack"


def attack(
    models: str | Model | Sequence[str | Model],
    *,
    norm: str = "l2",
    eps: str | Sequence[float],
    losses: str | Sequence[str] | None = None,
    steps: int = DEFAULT_STEPS,
    restarts: int = DEFAULT_RESTARTS,
    source: str = "stamps",
    labels: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Attack models with APGD on the clean images of a source. Finished tasks are not repeated.

    Args:
        models: Models or their specs.
        norm: ``"l2"`` or ``"linf"``.
        eps: Attack sizes in 0..1, such as ``"4/255,.1"``.
        losses: ``"ce"``, ``"dlr"`` or both; by default both, without dlr if a model has too few classes for
            it.
        steps: Steps per attack.
        restarts: Number of starting points.
        source: Source of the images.
        labels: Classes of the images; by default those of the first model.
        limit: Attack only this many images.
        seed: Seed of the image order and the starting points.
        out: Run folder; by default named after the content of the run.
        workers: Number of parallel workers.
        bar: Creates a progress bar.

    Returns:
        The run folder.
    """
    how = settings(norm, eps, tuple(LOSSES) if losses is None else losses, steps, restarts)
    if workers is not None and workers < 1:
        raise SoritesError(f"{option('workers', None)} must be at least 1, got {workers}")
    plan, how = _plan(models, how, losses is None, source, labels, limit, seed)
    prepared = prepare(plan)
    info = {**prepared.info, ATTACK: how.recorded()}
    path = to_path(out) if out is not None else prepared.default_folder()
    plan, engine = folder.with_stored_slices(path, plan), chosen_engine("local", plan)
    with (
        folder.open_run(path, plan, info, warn) as claimed,
        share_plan(path, plan, claimed["run_id"]) as running,
    ):
        sweep_temporaries(path)
        redo_errors(path, plan)
        missing = shards.missing(path, plan.units(), plan.models)
        tasks = [Task(unit, (name,)) for unit, names in missing.items() for name in names]
        if bar and tasks:
            running.tick = bar("attacking", sum(plan.images_of(task.unit) for task in tasks))
        work = functools.partial(attack_unit, path, how=how)
        with _without_weight_gradients(plan):
            for _ in engine(tasks, work, workers or os.cpu_count() or 1):
                pass
    return path


def _plan(
    models: str | Model | Sequence[str | Model],
    how: Settings,
    default_losses: bool,
    source: str,
    labels: str | Sequence[str] | None,
    limit: int | None,
    seed: int,
) -> tuple[Plan, Settings]:
    """Load the models and return the plan of the attack, and its settings without unusable default losses."""
    specs = [models] if isinstance(models, str | Model) else list(models)
    loaded = [core.model(model) if isinstance(model, str) else model for model in specs]
    for model in loaded:
        module_of(model, "an attack")
    suite = Suite(
        name=SUITE_NAME,
        source=source,
        labels=_labels(labels, loaded),
        models=tuple(spec if isinstance(spec, str) else spec.name for spec in specs),
        limit=limit,
        seed=seed,
    )
    plan = plans.make(suite, models={model.name: model for model in loaded})
    few = _too_few(plan, how) if default_losses else None
    if few is not None:
        how = replace(how, losses=tuple(loss for loss in how.losses if loss != few[0]))
        text = f"{_needs_classes(*few)}. Using {' and '.join(how.losses)} only."
        warnings.warn(Notice(text, code="attack-loss-dropped"), stacklevel=3)
    return attack_plan(plan, how), how


def _without_weight_gradients(plan: Plan) -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for model in plan.models.values():
        stack.enter_context(without_weight_gradients(model.module))
    return stack


def _labels(labels: str | Sequence[str] | None, models: Sequence[Model]) -> str | tuple[str, ...]:
    """Return the passed classes, or else those of the first model unless it is an ImageNet model."""
    if labels is not None:
        return labels if isinstance(labels, str) else tuple(labels)
    model_labels = models[0].labels
    return "imagenet" if model_labels is None or set(model_labels) <= set(imagenet().ids) else model_labels


def _too_few(plan: Plan, how: Settings) -> tuple[str, str, int] | None:
    """Return the first loss that needs more classes than a model has, the model, and its classes."""
    widths = {name: plan.width_of(name) for name in plan.models}
    candidates = (
        (loss, name, n)
        for loss in reversed(how.losses)
        for name, n in widths.items()
        if n < LEAST_CLASSES[loss]
    )
    return next(candidates, None)


def _needs_classes(loss: str, name: str, width: int) -> str:
    return f"the attack {loss} needs at least {LEAST_CLASSES[loss]} classes, but {name} has {width}"


def attack_plan(plan: Plan, how: Settings) -> Plan:
    """Return a plan with the clean images only, the attacks as shifts and their sizes as severities."""
    clean = plan.groups[CLEAN]
    if not clean:
        raise SoritesError(f"source {plan.suite.source} has no clean images, and an attack starts from those")
    few = _too_few(plan, how)
    if few is not None:
        others = ",".join(loss for loss in LOSSES if LEAST_CLASSES[loss] <= few[2])
        raise SoritesError(_needs_classes(*few) + (f". Use {option('attack', others)}" if others else ""))
    for name in plan.models:
        width = plan.width_of(name)
        if not any(right_columns(plan.columns[name], width, sample).any() for sample in clean):
            raise SoritesError(
                f"None of the {len(clean)} clean images of {plan.suite.source} has a label that "
                f"{name} knows, so nothing can be correct or misclassified. Use another "
                f"{option('source', 'SOURCE')}, or pass its classes: {option('labels', 'FILE')}."
            )
    shifts = {name: how.shift(name) for name in how.shifts}
    return replace(
        plan,
        groups={CLEAN: clean, **dict.fromkeys(shifts, clean)},
        shifts=shifts,
        settings=dict.fromkeys(shifts, how.eps),
    )


def attack_unit(path: Path, task: Task, *, how: Settings) -> None:
    """Run one task: attack images against one model, or evaluate them clean, and write the shard."""
    running, (name,) = running_in(path), task.models
    if task.unit.shift == CLEAN:
        predictions = predict(
            running.plan, shots(running.plan, task.unit), DEFAULT_BATCH, running.tick, (name,)
        )
    else:
        predictions = predict(
            plan_for_model(running.plan, name, how),
            attacked_images(running.plan, task.unit, name, how),
            DEFAULT_BATCH,
            running.tick,
        )
    rows = predictions[name].rows.with_columns(run_id=pl.lit(running.run_id)).select(SCHEMA.names())
    write(rows, shards.shard(path, task.unit, name))


# Robust accuracy over all losses, as in AutoAttack.


def worst_case(table: Table) -> pl.DataFrame:
    """Return the share of images that stay correct under every loss, per model, norm and epsilon.

    Images with an error under one of the losses are left out.
    """
    rows = table.lazy().filter(pl.col("family") == FAMILY, pl.col("correct").is_not_null())
    keyed = rows.with_columns(norm=pl.col("shift").str.extract(r"_([a-z0-9]+)$"), eps="severity")
    each = keyed.group_by("model", "norm", "eps", "sample_id").agg(
        pl.col("correct").all(), tried=pl.col("shift").n_unique()
    )
    complete = each.filter(pl.col("tried") == pl.col("tried").max().over("model", "norm", "eps"))
    shares = complete.group_by("model", "norm", "eps").agg(value=pl.col("correct").mean(), n=pl.len())
    return (
        shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
        .sort("model", "norm", "eps")
        .collect()
    )
