"""An attack as a run: one dial per loss, whose severity is the size of the attack, beside the clean images.

The run folder is that of any run: the same slices and shards, so that it goes on where it stopped,
and every metric and the report read it. Its images belong to a model and are not rounded, so that
no other verb can make them again.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from sorites import core
from sorites.core import CLEAN, Model, Outputs, Sample, Setting, Shift
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import imagenet
from sorites.core.progress import Bar
from sorites.core.rng import rng_for
from sorites.core.table import SCHEMA, Table, write
from sorites.core.torch_tools import one_thread
from sorites.evaluation import plan as plans
from sorites.evaluation.images import Shot, captured, reason, shots
from sorites.evaluation.plan import Columns, Plan, Unit
from sorites.evaluation.predict import predict
from sorites.evaluation.reopen import ATTACK
from sorites.evaluation.resume import redo_errors
from sorites.evaluation.runner import BATCH, prepare, warn
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.worker import Task, chosen_engine, lent, running_in
from sorites.io.files import sweep_temporaries
from sorites.io.stores import place
from sorites.metrics import wilson_interval
from sorites.models.torch_module import logits_of, module_of, without_weight_gradients
from sorites.models.torch_module import module_device as device_of
from sorites.suites.suite import Suite
from sorites.training.attack.apgd import LEAST_CLASSES, LOSSES, Norm, apgd, start

# The settings of an attack: its norm, sizes, losses, steps and restarts, checked before any work is done.


# Rises when the same settings would give other points.
VERSION = 1
FAMILY = "attack"
UNITS: dict[Norm, str] = {"l2": "l2 distance, pixels in 0..1", "linf": "largest change, pixels in 0..1"}


@dataclass(frozen=True)
class Settings:
    """An attack: how far it may go, by which losses, and how long it tries."""

    norm: Norm
    eps: tuple[float, ...]
    losses: tuple[str, ...]
    steps: int
    restarts: int

    @property
    def shifts(self) -> dict[str, str]:
        """The names of the attack in the table, each with its loss: ``apgd_ce_l2``."""
        return {f"apgd_{loss}_{self.norm}": loss for loss in self.losses}

    def shift(self, name: str, model: str = "") -> Shift:
        """Return the attack as a shift of a plan; ``model`` says against which model, and stands in
        the ids of its images.
        """
        version = f"{VERSION} steps={self.steps} restarts={self.restarts}" + (f" {model}" if model else "")
        return Shift(name, _refuse, FAMILY, UNITS[self.norm], version=version)

    def recorded(self) -> dict[str, Any]:
        """Return the settings as ``run.json`` keeps them."""
        return {**asdict(self), "eps": list(self.eps), "losses": list(self.losses), "version": VERSION}


def settings(
    norm: str, eps: str | Sequence[float], losses: str | Sequence[str], steps: int, restarts: int
) -> Settings:
    """Return checked settings; each mistake is an error that says what was wanted."""
    if norm not in get_args(Norm):
        raise UnknownName("norm", norm, get_args(Norm), "--norm is l2 or linf.")
    named = [one.strip() for one in losses.split(",")] if isinstance(losses, str) else list(losses)
    for loss in named or [""]:
        if loss not in LOSSES:
            raise UnknownName("attack", loss, LOSSES, "--attack is ce, dlr or both: ce,dlr.")
    for option, value in (("--steps", steps), ("--restarts", restarts)):
        if value < 1:
            raise SoritesError(f"{option} wants a whole number above 0, got {value}")
    known: Norm = "l2" if norm == "l2" else "linf"
    return Settings(known, epsilons(eps, known), tuple(dict.fromkeys(named)), steps, restarts)


def epsilons(given: str | Sequence[float], norm: Norm = "l2") -> tuple[float, ...]:
    """Return the sizes of an attack from the least to the greatest: ``"4/255,.1,.25"`` or numbers."""
    texts = [one.strip() for one in given.split(",")] if isinstance(given, str) else list(given)
    found = [_epsilon(text) for text in texts]
    if not found:
        raise SoritesError("--eps wants at least one number above 0, such as 4/255,.1,.25")
    over = next((text for text, eps in zip(texts, found, strict=True) if norm == "linf" and eps > 1), None)
    if over is not None:
        raise SoritesError(
            f"--eps {over}: pixels are in 0..1, so with --norm linf nothing changes by more than 1. Is it"
            f" {over}/255?"
        )
    return tuple(sorted(set(found)))


def _epsilon(text: str | float) -> float:
    top, slash, bottom = str(text).partition("/")
    try:
        value = float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise SoritesError(f"--eps wants finite numbers above 0, such as 4/255,.1,.25; got {str(text)!r}")
    return value


def _refuse(image: Any, setting: Any, rng: Any) -> Any:
    raise SoritesError("an attack is made against a model, not of an image alone; type: sorites attack MODEL")


# The attacked images of a unit of work: found against one model, shown to it as they are, and kept as
# rows of the table.


# Images at a model's input, N x H x W x 3 in 0..1.
Inputs = NDArray[np.float32]


@dataclass(frozen=True)
class Target:
    """An image to attack: its sample, itself at the model's input, and which of the model's
    classes are right.
    """

    sample: Sample
    x: Inputs
    right: NDArray[np.bool_]


def seen_by(plan: Plan, name: str, how: Settings) -> Plan:
    """Return the plan for one model alone, which takes attacked images as they are, and is held
    in the ids of its images.
    """
    model = plan.models[name]
    known = f"{name} {model.version}"
    shifts = {shift: how.shift(shift, known) for shift in plan.shifts}
    return replace(plan, models={name: _unrounded(model)}, shifts=shifts)


def _unrounded(model: Model) -> Model:
    """Return the model with a pass by torch over images in 0..255 that stand at its input and are
    not rounded.
    """

    def forward(images: list[NDArray[Any]]) -> Outputs:
        import torch

        with torch.inference_mode(), one_thread():
            together = torch.from_numpy(np.stack(images).astype(np.float32)).to(device_of(model.module))
            return Outputs(logits_of(model.module, together).float().cpu().numpy())

    return replace(model, forward=forward, prepare=lambda image, framed: image)


def attacked(plan: Plan, unit: Unit, name: str, how: Settings) -> Iterator[Shot]:
    """Yield the attacked images of a unit; what cannot be attacked is an image with an error."""
    shots = [captured(plan, sample) for sample in plan.groups[unit.shift][unit.start : unit.stop]]
    ready = [_target(plan, name, shot) for shot in shots]
    targets = [target for target in ready if isinstance(target, Target)]
    for eps in how.eps:
        found = iter(_points(plan, unit.shift, name, how, eps, targets))
        for shot, target in zip(shots, ready, strict=True):
            point: Any = next(found) if isinstance(target, Target) else target
            image = replace(shot, shift=unit.shift, setting=Setting(eps))
            if isinstance(point, str):
                yield replace(image, image=None, error=point)
            else:
                yield replace(image, image=point * np.float32(255))


def _target(plan: Plan, name: str, shot: Shot) -> Target | str:
    """Return an image as it is attacked, or why it cannot be."""
    if shot.image is None:
        return shot.error or "no image"
    right = right_columns(plan.columns[name], plan.width_of(name), shot.sample)
    if not right.any() or right.all():
        return f"nothing to attack: {name} has no output for its label, or no other output"
    try:
        prepared = plan.models[name].prepare(np.array(shot.image), plan.is_framed(shot.sample))
    except Exception as error:
        return reason(error, f"model {name}")
    return Target(shot.sample, np.asarray(prepared, np.float32) / np.float32(255), right)


def right_columns(columns: Columns, width: int, sample: Sample) -> NDArray[np.bool_]:
    """Return which of a model's logits stand for a right label of the sample."""
    right = np.zeros(width, bool)
    right[columns.places[np.isin(columns.labels, sorted(sample.right))]] = True
    return right


def _points(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> list[Inputs | str]:
    """Return an attacked image per target, or why there is none; an image that fails spoils no other."""
    if not targets:
        return []
    try:
        return list(_together(plan, shift, name, how, eps, targets))
    except Exception as error:  # a module raises whatever it likes
        if len(targets) == 1:
            return [reason(error, shift)]
        return [point for target in targets for point in _points(plan, shift, name, how, eps, [target])]


def _together(
    plan: Plan, shift: str, name: str, how: Settings, eps: float, targets: Sequence[Target]
) -> Inputs:
    """Attack images that are right when clean, and again from other starts those that stay right."""
    import torch

    module = plan.models[name].module
    device = device_of(module)

    def logits(at: torch.Tensor) -> torch.Tensor:
        given = logits_of(module, at * 255)
        if not given.isfinite().all():
            raise SoritesError(f"model {name} gave logits that are not finite")
        return given

    with one_thread():
        x = torch.from_numpy(np.stack([target.x for target in targets])).to(device)
        right = torch.from_numpy(np.stack([target.right for target in targets])).to(device)
        with torch.no_grad():
            left = right.gather(1, logits(x).argmax(1, keepdim=True)).squeeze(1)
        found = x.clone()
        for restart in range(how.restarts):
            places = left.nonzero().squeeze(1)
            if not len(places):
                break
            starts = [_start(plan, shift, restart, targets[int(i)], eps, how) for i in places.cpu()]
            begin = torch.from_numpy(np.stack(starts)).to(device)
            point, wrong = apgd(
                logits, x[places], right[places], begin, eps, how.norm, how.shifts[shift], how.steps
            )
            taken = wrong if restart else torch.ones_like(wrong)
            found[places[taken]] = point[taken]
            left[places[wrong]] = False
        return np.asarray(found.cpu().numpy())


def _start(plan: Plan, shift: str, restart: int, target: Target, eps: float, how: Settings) -> Inputs:
    """Return where the attack of an image starts: it follows from the seed, the sample and the
    restart, not from the batch.
    """
    again = f" restart {restart}" if restart else ""
    return start(target.x, eps, how.norm, rng_for(plan.suite.seed, target.sample.id, f"{shift}{again}"))


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
    """Attack models with APGD on the clean images of a source and return the run folder; what is
    done is not done again.

    ``eps`` are sizes in 0..1 such as ``"4/255,.1"``. Without ``labels`` the classes are those of
    the first model. Without ``losses`` they are ce and dlr, and ce alone where a model has too few
    classes for dlr.
    """
    how = settings(norm, eps, tuple(LOSSES) if losses is None else losses, steps, restarts)
    if workers is not None and workers < 1:
        raise SoritesError(f"--workers wants a whole number above 0, got {workers}")
    named = [models] if isinstance(models, str | Model) else list(models)
    loaded = [core.model(model) if isinstance(model, str) else model for model in named]
    for model in loaded:
        module_of(model, "an attack")
    specs = [model if isinstance(model, str) else model.name for model in named]
    suite = Suite(
        name=NAME, source=source, labels=_labels(labels, loaded), models=tuple(specs), limit=limit, seed=seed
    )
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
        running.tick = (
            bar("attacking", sum(plan.images_of(task.unit) for task in tasks))
            if bar and tasks
            else running.tick
        )
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
    """Return the classes of the images: those named, else the first model's own unless they are
    ImageNet's.
    """
    if given is not None:
        return given if isinstance(given, str) else tuple(given)
    own = models[0].labels
    return "imagenet" if own is None or set(own) <= set(imagenet().ids) else own


def _too_few(plan: Plan, how: Settings) -> tuple[str, str, int] | None:
    """Return the first loss for which a model has too few classes, that model and their number, or None."""
    widths = {name: plan.width_of(name) for name in plan.models}
    found = (
        (loss, name, n)
        for loss in reversed(how.losses)
        for name, n in widths.items()
        if n < LEAST_CLASSES[loss]
    )
    return next(found, None)


def _needs(loss: str, name: str, width: int) -> str:
    return f"the attack {loss} needs at least {LEAST_CLASSES[loss]} classes, and {name} has {width}"


def attack_plan(plan: Plan, how: Settings) -> Plan:
    """Return the plan with its clean images alone, the attacks as its shifts and their sizes as
    the settings.
    """
    clean = plan.groups[CLEAN]
    if not clean:
        raise SoritesError(f"source {plan.suite.source} has no clean image, and an attack starts from those")
    few = _too_few(plan, how)
    if few is not None:
        others = ",".join(loss for loss in LOSSES if LEAST_CLASSES[loss] <= few[2])
        raise SoritesError(_needs(*few) + (f". Type --attack {others}" if others else ""))
    for name in plan.models:
        width = plan.width_of(name)
        if not any(right_columns(plan.columns[name], width, sample).any() for sample in clean):
            raise SoritesError(
                f"none of the {len(clean)} clean images of {plan.suite.source} has a label that {name}"
                " knows, and without one nothing is right or wrong. Name another --source, or its classes"
                " with --labels FILE."
            )
    shifts = {name: how.shift(name) for name in how.shifts}
    return replace(
        plan,
        groups={CLEAN: clean, **dict.fromkeys(shifts, clean)},
        shifts=shifts,
        settings=dict.fromkeys(shifts, how.eps),
    )


def attack_unit(path: Path, task: Task, *, how: Settings) -> None:
    """A unit of work: attack a slice of the images against one model, or show them to it clean,
    and write its shard.
    """
    running, (name,) = running_in(path), task.models
    if task.unit.shift == CLEAN:
        found = predict(running.plan, shots(running.plan, task.unit), BATCH, running.tick, (name,))
    else:
        found = predict(
            seen_by(running.plan, name, how),
            attacked(running.plan, task.unit, name, how),
            BATCH,
            running.tick,
        )
    rows = found[name].rows.with_columns(run_id=pl.lit(running.run_id)).select(SCHEMA.names())
    write(rows, shards.shard(path, task.unit, name))


# Measure what a model keeps right whatever the attack: AutoAttack's robust accuracy.


def worst_case(table: Table) -> pl.DataFrame:
    """Return the share of images that stay right under every loss, per model, norm and epsilon,
    with n and its interval.

    An image with an error under one of the losses is left out.
    """
    rows = table.lazy().filter(pl.col("family") == FAMILY, pl.col("correct").is_not_null())
    named = rows.with_columns(norm=pl.col("shift").str.extract(r"_([a-z0-9]+)$"), eps="severity")
    each = named.group_by("model", "norm", "eps", "sample_id").agg(
        pl.col("correct").all(), tried=pl.col("shift").n_unique()
    )
    whole = each.filter(pl.col("tried") == pl.col("tried").max().over("model", "norm", "eps"))
    found = whole.group_by("model", "norm", "eps").agg(value=pl.col("correct").mean(), n=pl.len())
    return (
        found.with_columns(**wilson_interval(pl.col("value"), pl.col("n")))
        .sort("model", "norm", "eps")
        .collect()
    )
