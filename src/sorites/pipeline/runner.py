"""From a plan to shards: every unit that is not yet done, on an engine, with progress; then what is learnt of the images."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.core import Outputs
from sorites.engines import Engine
from sorites.errors import SoritesError
from sorites.files import sweep_temporaries
from sorites.pipeline import fit, fitted, folder, shards, work
from sorites.pipeline.after import learn
from sorites.pipeline.choosing import device_used
from sorites.pipeline.compact import expand
from sorites.pipeline.heads import keep_heads
from sorites.pipeline.identity import Info, describe
from sorites.pipeline.plan import Plan
from sorites.pipeline.predict import try_models
from sorites.pipeline.renew import Say
from sorites.pipeline.running import Running, Task, chosen_engine, lent
from sorites.pipeline.stale import kept_features_before, redo_errors
from sorites.progress import Bar
from sorites.stores import place

BATCH = 8


@dataclass(frozen=True)
class Prepared:
    """A plan whose models and scorers were tried on a picture, with what its run's id follows from."""

    plan: Plan
    info: Info
    tried: dict[str, Outputs]

    def feature_bytes(self) -> int:
        """Return the bytes that ``keep_features`` takes on disk, training pictures and last layers included."""
        heads = sum(sum(part.nbytes for part in model.head) for model in self.plan.models.values() if model.head)
        return self.plan.images() * self._wide + self.training_bytes() + heads

    def training_bytes(self) -> int:
        """Return the bytes that outputs of training and validation pictures take on disk, and what scorers see inside models."""
        kinds = ((kind, len(fit.samples_of(self.plan, kind))) for kind in (fit.NAME, fit.VALIDATION, fit.STRANGE))
        return sum(count * (self._wide + fit.inside_bytes(self.plan, kind)) for kind, count in kinds if count)

    @property
    def _wide(self) -> int:
        """Bytes of one picture's outputs, all models together."""
        return sum(part.nbytes for one in self.tried.values() for part in (one.features, one.logits) if part is not None)

    def default_folder(self) -> Path:
        """Named by the run's id, so that the same command finds its own work and another command does not."""
        return Path("runs") / f"{self.plan.suite.name}-{self.info['run_id'][:8]}"


def warn(text: str) -> None:
    """Say something to a user of the library."""
    warnings.warn(text, stacklevel=3)


def prepare(plan: Plan) -> Prepared:
    """Try every model and scorer of a plan; a broken one is an error before any work is done."""
    if not plan.models:
        raise SoritesError(f'suite {plan.suite.name} names no model: add --model NAME. See "sorites list models".')
    fit.refuse_unfitted(plan)
    return Prepared(plan, describe(plan), try_models(plan))


def execute(
    prepared: Prepared,
    out: str | Path | None = None,
    *,
    batch: int = BATCH,
    keep_features: bool = False,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
    say: Say = warn,
) -> Path:
    """Do what is missing of a plan and return the run folder.

    Pictures that changed since are done again, and so are errors, once. ``say`` is told what a user should know.
    """
    for option, value in (("--batch", batch), ("--workers", workers)):
        if value is not None and value < 1:
            raise SoritesError(f"{option} wants a whole number above 0, got {value}")
    path = place(out) if out is not None else prepared.default_folder()
    plan, start = folder.as_begun(path, prepared.plan), chosen_engine(engine, prepared.plan)
    for name in (name for name, model in plan.models.items() if not model.repeats):
        say(f"model {name} is not deterministic: shown the same pictures again, it gave other answers. So will another run.")
    described = {**prepared.info, "ran_on": _ran_on(plan, start, batch)}
    with folder.opened(path, plan, described, say) as info, lent(path, plan, info["run_id"]) as running:
        sweep_temporaries(path)
        expand(path)
        redo_errors(path, plan)
        keep_features = keep_features or kept_features_before(path)
        stage = _Stage(path, start, workers or start.cores(), running, bar)
        refine = info["suite"]["refine"]
        grid = _tasks(path, plan, plan.units(), keep_features)
        if grid or (refine and _tasks(path, plan, plan.probes())) or fit.gaps(plan, path, keep_features):
            _fit(stage, plan, keep_features, batch)
        if keep_features:
            keep_heads(plan, path)
        stage.run("evaluating", grid, functools.partial(work.evaluate, path, batch=batch, keep_features=keep_features), _images)
        if refine:
            probes = _tasks(path, plan, plan.probes())
            stage.run("refining", probes, functools.partial(work.probe, path, batch=batch, tolerance=refine))
        learn(plan, path, engine=start, workers=stage.workers, bar=bar)
    return path


def _ran_on(plan: Plan, engine: Engine, batch: int) -> Info:
    """Return where and how the models computed last; no number but those of precision and device depends on it."""
    return {"engine": engine.name, "device": device_used(plan), "precision": plan.suite.precision or "float32", "batch": batch}


def _tasks(path: Path, plan: Plan, units: Sequence[Any], keep_features: bool = False) -> list[Task]:
    found = shards.missing(path, units, plan.models, keep_features)
    return [Task(unit, names) for unit, names in found.items()]


def _images(plan: Plan, task: Task) -> int:
    return plan.images_of(task.unit) * len(task.models)


def _pictures(plan: Plan, task: Task) -> int:
    return len(task.unit) * len(task.models)


def _fit(stage: _Stage, plan: Plan, keep_features: bool, batch: int) -> None:
    """Show training pictures to the models where scorers or kept features ask for it, and fit the scorers."""
    tasks = fit.tasks(plan, stage.folder, keep_features)
    stage.run("fitting", tasks, functools.partial(fit.collect, stage.folder, batch=batch), _pictures)
    ready = fitted.ready(stage.folder, stage.running)
    if fit.wants_training(plan) or ready.searches:
        fitted.record(ready, stage.folder)


@dataclass
class _Stage:
    """Runs tasks of one kind after another on an engine, and advances a bar."""

    folder: Path
    engine: Engine
    workers: int
    running: Running
    bar: Bar | None

    def run(
        self,
        what: str,
        tasks: Sequence[Task],
        do: Callable[[Task], None],
        steps: Callable[[Plan, Task], int] | None = None,
    ) -> None:
        """Units in this process advance the bar picture by picture; elsewhere, or without ``steps``, task by task."""
        if not tasks:
            return
        plan = self.running.plan
        sizes = {task: 1 if steps is None else steps(plan, task) for task in tasks}
        tick = _locked(self.bar(what, sum(sizes.values()))) if self.bar else lambda n: None
        inside = steps is not None and self.engine.one_process
        self.running.tick = tick if inside else lambda n: None
        for task, _ in self.engine(tasks, do, self.workers):
            if not inside:
                tick(sizes[task])


def _locked(tick: Callable[[int], None]) -> Callable[[int], None]:
    lock = threading.Lock()

    def advance(n: int) -> None:
        with lock:
            tick(n)

    return advance
