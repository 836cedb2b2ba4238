"""From a plan to shards: every unit that is not yet done, on an engine, with progress; then what is
learnt of the images.
"""

from __future__ import annotations

import functools
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sorites.core import Model, Outputs
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar
from sorites.core.torch_tools import device_of
from sorites.evaluation import fit
from sorites.evaluation import tasks as work
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.facts.distance import distance_of_run, write_published_levels
from sorites.evaluation.facts.similarity import measure_images
from sorites.evaluation.plan import Plan
from sorites.evaluation.predict import GREY, out_of_memory, try_models
from sorites.evaluation.resume import Say, kept_features_before, redo_errors
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.storage.compact import expand
from sorites.evaluation.storage.record import Info, describe
from sorites.evaluation.storage.tensors import keep_heads
from sorites.evaluation.worker import Running, Task, chosen_engine, lent
from sorites.io.files import sweep_temporaries
from sorites.io.stores import place

# Choose what a command leaves open: threads unless a model lets only one of them work, and the batch.


# Passes of an image through a model below which starting processes is not worth a thought.
FEW = 5_000
# The largest batch that is tried.
MOST = 1024
# Seconds that a thread wakes late if another holds the interpreter's lock; the holder gives it up
# every 5 ms, or never.
LATE = 0.003
# The share of the time below which a model that works alone only waits; a busy machine leaves a
# model that computes more.
WAITS = 0.02
# Seconds for which a model is watched.
LOOK = 0.25


@dataclass(frozen=True)
class Chosen:
    """An engine, and one line that says what was chosen and why."""

    engine: Engine
    said: str


def choose(plan: Plan, workers: int | None) -> Chosen:
    """Choose an engine for a plan by its size and by whether its models let other threads work meanwhile."""
    local = ENGINES.get("local")
    count = workers or local.cores()
    here = f"local, {count} thread{'s' if count > 1 else ''}"
    if count == 1 or plan.images() * len(plan.models) < FEW:
        return Chosen(local, f"{here}: the run is {'for one worker' if count == 1 else 'small'}")
    alone = [f"{name} {why}" for name, model in plan.models.items() if (why := works_alone(model))]
    if device_used(plan) != "cpu" or _on_gpu():
        return Chosen(local, f"{here}: the models share a GPU")
    if not alone:
        return Chosen(local, f"{here}: while a model works, other threads can too")
    if plan.objects:
        return Chosen(
            local, f"{here}: {'; '.join(alone)}, but {', '.join(plan.objects)} is an object of this process"
        )
    return Chosen(ENGINES.get("processes"), f"processes, {count}: {'; '.join(alone)}")


def choose_batch(plan: Plan, smallest: int) -> tuple[int, str]:
    """Return the largest batch that all models take on their device, and one line that says so.

    On a CPU the smallest: larger ones are not faster there.
    """
    device = device_used(plan)
    if device == "cpu":
        return smallest, f"{smallest} images: on a CPU larger batches are not faster"
    size = min((largest_batch(model, smallest) for model in plan.models.values()), default=smallest)
    return size, f"{size} images: the largest that fits on {device}"


def largest_batch(model: Model, smallest: int, most: int = MOST) -> int:
    """Return the largest power of two, from ``smallest`` on, of images that a model takes at once."""
    size = smallest
    while size < most:
        try:
            model([GREY] * (2 * size), False)
        except Exception as error:
            if not out_of_memory(error):
                raise
            return size
        size *= 2
    return size


def device_used(plan: Plan) -> str:
    """Return where the models of a plan compute: torch's device where one is a torch model, else
    the CPU unless one is asked.
    """
    if plan.suite.device is not None:
        return plan.suite.device
    return device_of(None) if any(model.module is not None for model in plan.models.values()) else "cpu"


def works_alone(model: Model) -> str:
    """Say why other threads cannot work while the model does; empty where they can, or where it
    keeps the cores busy itself.
    """
    if holds_lock(model):
        return "holds the interpreter's lock while it works"
    return (
        "takes one caller at a time, and computes on one core"
        if model.one_caller and on_one_core(model)
        else ""
    )


def on_one_core(model: Model) -> bool:
    """Return whether the model computes, and on the core of its caller: other threads of the
    process then have little to do.
    """
    clock, whole, own = time.perf_counter(), time.process_time(), time.thread_time()
    while time.perf_counter() < clock + LOOK:
        model([GREY] * 4, False)
    own = time.thread_time() - own
    return own > WAITS * (time.perf_counter() - clock) and time.process_time() - whole < 1.5 * own


def _on_gpu() -> bool:
    """Return whether a model of this process computes on a GPU, of which every process would take a part."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def holds_lock(model: Model) -> bool:
    """Return whether another thread wakes late while the model works, later than while nothing does."""
    model([GREY], False)  # what is only done once must not be timed
    busy = _late(lambda: model([GREY] * 4, False))
    return busy > LATE and busy > 3 * _late(lambda: time.sleep(LOOK))


def _late(do: Callable[[], object]) -> float:
    """Return by how much a thread that sleeps for a moment wakes late, in the median, while ``do``
    is called again and again.
    """
    late: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            late.append(time.perf_counter() - start - 0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    until = time.perf_counter() + LOOK
    while time.perf_counter() < until:
        do()
    ended.set()
    thread.join()
    return statistics.median(late) if late else LOOK


# Write the facts that are learnt of a run's images once all are seen: levels from the source, degrees
# that the suite wants.


def learn(plan: Plan, folder: Path, *, engine: Engine, workers: int, bar: Bar | None = None) -> None:
    """Write the facts of a finished run that its suite asks for; what is there already is not
    measured again.
    """
    write_published_levels(plan, folder)
    if plan.suite.distance:
        distance_of_run(plan, folder, plan.suite.distance, bar)
    if plan.suite.similarity or plan.suite.lpips_below is not None:
        measure_images(
            plan,
            folder,
            plan.suite.similarity,
            lpips_below=plan.suite.lpips_below,
            engine=engine,
            workers=workers,
            bar=bar,
        )


BATCH = 8


@dataclass(frozen=True)
class Prepared:
    """A plan whose models and scorers were tried on an image, with what its run's id follows from."""

    plan: Plan
    info: Info
    tried: dict[str, Outputs]

    def feature_bytes(self) -> int:
        """Return the bytes that ``keep_features`` takes on disk, training images and last layers
        included.
        """
        heads = sum(
            sum(part.nbytes for part in model.head) for model in self.plan.models.values() if model.head
        )
        return self.plan.images() * self._wide + self.training_bytes() + heads

    def training_bytes(self) -> int:
        """Return the bytes that outputs of training and validation images take on disk, and what
        scorers see inside models.
        """
        kinds = ((kind, len(fit.samples_of(self.plan, kind))) for kind in (fit.NAME, fit.VALIDATION, fit.OOD))
        return sum(count * (self._wide + fit.inside_bytes(self.plan, kind)) for kind, count in kinds if count)

    @property
    def _wide(self) -> int:
        """Bytes of one image's outputs, all models together."""
        return sum(
            part.nbytes
            for one in self.tried.values()
            for part in (one.features, one.logits)
            if part is not None
        )

    def default_folder(self) -> Path:
        """Named by the run's id, so that the same command finds its own work and another command does not."""
        return Path("runs") / f"{self.plan.suite.name}-{self.info['run_id'][:8]}"


def warn(text: str) -> None:
    """Say something to a user of the library."""
    warnings.warn(text, stacklevel=3)


def prepare(plan: Plan) -> Prepared:
    """Try every model and scorer of a plan; a broken one is an error before any work is done."""
    if not plan.models:
        raise SoritesError(
            f'suite {plan.suite.name} names no model: add --model NAME. See "sorites list models".'
        )
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

    Images that changed since are done again, and so are errors, once. ``say`` is told what a user
    should know.
    """
    for option, value in (("--batch", batch), ("--workers", workers)):
        if value is not None and value < 1:
            raise SoritesError(f"{option} wants a whole number above 0, got {value}")
    path = place(out) if out is not None else prepared.default_folder()
    plan, start = folder.as_begun(path, prepared.plan), chosen_engine(engine, prepared.plan)
    for name in (name for name, model in plan.models.items() if not model.repeats):
        say(
            f"model {name} is not deterministic: shown the same images again, it gave other answers. So"
            " will another run."
        )
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
        stage.run(
            "evaluating",
            grid,
            functools.partial(work.evaluate, path, batch=batch, keep_features=keep_features),
            _images,
        )
        if refine:
            probes = _tasks(path, plan, plan.probes())
            stage.run("refining", probes, functools.partial(work.probe, path, batch=batch, tolerance=refine))
        learn(plan, path, engine=start, workers=stage.workers, bar=bar)
    return path


def _ran_on(plan: Plan, engine: Engine, batch: int) -> Info:
    """Return where and how the models computed last; no number but those of precision and device
    depends on it.
    """
    return {
        "engine": engine.name,
        "device": device_used(plan),
        "precision": plan.suite.precision or "float32",
        "batch": batch,
    }


def _tasks(path: Path, plan: Plan, units: Sequence[Any], keep_features: bool = False) -> list[Task]:
    found = shards.missing(path, units, plan.models, keep_features)
    return [Task(unit, names) for unit, names in found.items()]


def _images(plan: Plan, task: Task) -> int:
    return plan.images_of(task.unit) * len(task.models)


def _distinct_images(plan: Plan, task: Task) -> int:
    return len(task.unit) * len(task.models)


def _fit(stage: _Stage, plan: Plan, keep_features: bool, batch: int) -> None:
    """Show training images to the models where scorers or kept features ask for it, and fit the scorers."""
    tasks = fit.tasks(plan, stage.folder, keep_features)
    stage.run("fitting", tasks, functools.partial(fit.collect, stage.folder, batch=batch), _images)
    ready = fit.ready(stage.folder, stage.running)
    if fit.wants_training(plan) or ready.searches:
        fit.record(ready, stage.folder)


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
        """Units in this process advance the bar image by image; elsewhere, or without
        ``steps``, task by task.
        """
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
