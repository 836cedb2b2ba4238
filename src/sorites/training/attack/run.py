"""Run an attack like an evaluation: one shift per loss, whose severities are the attack sizes.

The run folder has the usual tasks and shards, so it can be resumed, and metrics and reports can read it.
Attacked images depend on the model and are not rounded, so other commands cannot recreate them.
"""

from __future__ import annotations

import contextlib
import functools
import math
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
from sorites.core.compute.arithmetic import reproducible
from sorites.core.compute.machine import cores
from sorites.core.compute.torch_tools import free_memory
from sorites.core.errors import BatchTooLarge, Notice, SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.messages import command, option
from sorites.core.progress import Bar
from sorites.core.rng import rng_for
from sorites.core.table import Table
from sorites.evaluation import plan as plans
from sorites.evaluation.images import Shot, captured_shot, reason, shots
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.plan import Columns, Plan, Unit
from sorites.evaluation.predict import out_of_memory, predict
from sorites.evaluation.resume import redo_errors
from sorites.evaluation.runner import prepare, warn
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.storage.schema import AttackRecord
from sorites.evaluation.worker import Running, Task, chosen_engine
from sorites.io.files import sweep_temporaries
from sorites.io.stores import to_path
from sorites.metrics import wilson_interval
from sorites.metrics.rows import SAMPLE_KEY
from sorites.models.torch_module import (
    in_passes,
    logits_of,
    module_device,
    module_of,
    without_weight_gradients,
)
from sorites.suites.suite import Suite
from sorites.training.attack.apgd import LEAST_CLASSES, LOSSES, Norm, apgd, start
from sorites.training.options import ATTACK_RESTARTS, ATTACK_STEPS, AttackOptions

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

    def recorded(self) -> AttackRecord:
        """Return the settings as stored in ``run.json``."""
        return AttackRecord(**asdict(self), version=VERSION)


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

        device = module_device(model.module)
        with torch.inference_mode(), reproducible(device):
            batch = torch.from_numpy(np.stack(images).astype(np.float32)).to(device)
            return Outputs(logits_of(model.module, batch).float().cpu().numpy())

    unrounded = replace(model, forward=forward, prepare=lambda image, framed: image)
    return unrounded if model.batch is None else unrounded.with_batch(model.batch)


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
    points, failed, memory = _attempt(plan, shift, name, how, eps, targets)
    if not failed:
        return points
    if memory:
        # The error is gone, and with it what its traceback kept alive.
        free_memory()
        if (batch := plan.models[name].batch) is not None:
            raise BatchTooLarge(name, batch)
    if len(targets) == 1:
        return [failed]
    return [point for target in targets for point in _points(plan, shift, name, how, eps, [target])]


def _attempt(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> tuple[list[Inputs | str], str, bool]:
    """Return attacked images, or why there are none and whether memory ran out, without the error itself."""
    try:
        return list(_attack_batch(plan, shift, name, how, eps, targets)), "", False
    except Exception as error:  # modules can raise anything
        return [], reason(error, shift), out_of_memory(error)


def _attack_batch(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> Inputs:
    """Attack correctly classified images, and restart those that stay correct from other starting points."""
    import torch

    module, batch = plan.models[name].module, plan.models[name].batch
    device = module_device(module)

    def logits(points: torch.Tensor) -> torch.Tensor:
        output = in_passes(functools.partial(logits_of, module), points * 255, batch)
        if not output.isfinite().all():
            raise SoritesError(f"model {name} returned non-finite logits")
        return output

    with reproducible(device):
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


SUITE_NAME = "attack"


def attack(
    models: str | Model | Sequence[str | Model],
    *,
    eps: str | Sequence[float],
    norm: str = "l2",
    losses: str | Sequence[str] | None = None,
    steps: int = ATTACK_STEPS,
    restarts: int = ATTACK_RESTARTS,
    source: str = "stamps",
    labels: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    workers: int | None = None,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Path:
    """Attack models with APGD on the clean images of a source. Finished tasks are not repeated.

    Args:
        models: Models to attack: lite0, timm:NAME@WEIGHTS, trained:DIR. Torch models only. Also ``Model``
            objects.
        eps: Perturbation sizes, for pixels in 0..1: 4/255,.1,.25.
        norm: Norm of the perturbation: l2 or linf.
        losses: APGD on the cross-entropy (ce), on the difference of logits ratio (dlr, needs three classes),
            or both; default: all that the models support.
        steps: Steps per restart.
        restarts: Number of restarts for images that stay correct.
        source: Source of labelled clean images.
        labels: A file of class names; default: the classes of the first model.
        limit: Use only the first N samples of a fixed random order.
        seed: Random seed.
        out: The run folder; default: runs/attack-ID.
        workers: Number of tasks to run in parallel; default: one per core.
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Creates a progress bar.

    Returns:
        The run folder.
    """
    options = AttackOptions(
        models=models,
        eps=eps,
        norm=norm,
        losses=losses,
        steps=steps,
        restarts=restarts,
        source=source,
        labels=labels,
        limit=limit,
        seed=seed,
        out=out,
        workers=workers,
        max_pixels=max_pixels,
    )
    with options.reading():
        return attack_models(options, bar)


def attack_models(options: AttackOptions, bar: Bar | None = None) -> Path:
    """Attack models, like ``attack``, with options as one object."""
    losses, workers, out = options.losses, options.workers, options.out
    kinds = tuple(LOSSES) if losses is None else losses
    how = settings(options.norm, options.eps, kinds, options.steps, options.restarts)
    if workers is not None and workers < 1:
        raise SoritesError(f"{option('workers', None)} must be at least 1, got {workers}")
    data = (options.source, options.labels, options.limit, options.seed)
    plan, how = _plan(options.models, how, losses is None, *data)
    prepared = prepare(plan).with_batch(DEFAULT_BATCH)
    plan, record = prepared.plan, prepared.record.having(attack=how.recorded())
    path = to_path(out) if out is not None else prepared.default_folder()
    plan, engine = folder.with_stored_slices(path, plan), chosen_engine("local", plan)
    with folder.open_run(path, plan, record, warn) as claimed:
        run = Running(path, plan, claimed.run_id)
        sweep_temporaries(path)
        redo_errors(path, plan)
        missing = shards.missing(path, plan.units(), plan.models)
        tasks = [Task(unit, (name,)) for unit, names in missing.items() for name in names]
        if bar and tasks:
            run.tick = bar("attacking", sum(plan.images_of(task.unit) for task in tasks))
        with _without_weight_gradients(plan):
            for _ in engine(tasks, run.work(engine, attack_unit, how=how), workers or cores()):
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
        warnings.warn(Notice(text, code="attack_loss_dropped"), stacklevel=3)
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


def attack_unit(run: Running, task: Task, *, how: Settings) -> None:
    """Run one task: attack images against one model, or evaluate them clean, and write the shard."""
    plan, (name,) = run.plan, task.models
    if task.unit.shift == CLEAN:
        predictions = predict(plan, shots(plan, task.unit), DEFAULT_BATCH, run.tick, (name,))
    else:
        images = attacked_images(plan, task.unit, name, how)
        predictions = predict(plan_for_model(plan, name, how), images, DEFAULT_BATCH, run.tick)
    rows = {name: predictions[name].rows}
    shards.write_rows(run.folder, run.run_id, task.unit, rows, plan.models)


# Robust accuracy over all losses, as in AutoAttack.


def worst_case(table: Table) -> pl.DataFrame:
    """Return the share of images that stay correct under every loss, per model, norm and epsilon.

    Images with an error under one of the losses are left out.
    """
    rows = table.lazy().filter(pl.col("family") == FAMILY, pl.col("correct").is_not_null())
    keyed = rows.with_columns(norm=pl.col("shift").str.extract(r"_([a-z0-9]+)$"), eps="severity")
    each = keyed.group_by("model", "norm", "eps", *SAMPLE_KEY).agg(
        pl.col("correct").all(), tried=pl.col("shift").n_unique()
    )
    complete = each.filter(pl.col("tried") == pl.col("tried").max().over("model", "norm", "eps"))
    shares = complete.group_by("model", "norm", "eps").agg(value=pl.col("correct").mean(), n=pl.len())
    return (
        shares.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
        .sort("model", "norm", "eps")
        .collect()
    )
