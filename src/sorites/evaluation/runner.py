"""Execute a plan: run all missing tasks on an engine with progress, then compute the facts that the suite
asks for.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sorites.core import CLEAN, Backend, ImageU8, Model, Outputs, Scorer
from sorites.core.compute.machine import cores, gpu_facts
from sorites.core.compute.torch_tools import free_memory
from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import command, option
from sorites.core.progress import Bar, phase
from sorites.core.shard_index import write_index
from sorites.evaluation import fit
from sorites.evaluation import tasks as work
from sorites.evaluation.engines import ENGINES, Engine
from sorites.evaluation.facts.distance import distance_of_run, write_published_levels
from sorites.evaluation.facts.similarity import measure_images
from sorites.evaluation.images import captured_shot
from sorites.evaluation.options import DEFAULT_BATCH
from sorites.evaluation.outline import Outline, SampleSlices
from sorites.evaluation.pipeline import work as pipeline_work
from sorites.evaluation.pipeline.devices import models_by_device
from sorites.evaluation.pipeline.run import Pipeline, Session
from sorites.evaluation.plan import Plan, Unit, slice_for
from sorites.evaluation.predict import GREY, out_of_memory, try_models
from sorites.evaluation.resume import Say, kept_features_before, move_unpaired_features, redo_errors
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.storage.merge import MIN_SHARDS, RUNNING_ROWS, Merger, expand
from sorites.evaluation.storage.record import describe
from sorites.evaluation.storage.schema import RanOn, RunRecord
from sorites.evaluation.storage.tensors import keep_heads
from sorites.evaluation.worker import Parcels, Running, Site, Task, chosen_engine
from sorites.io.files import sweep_temporaries
from sorites.io.stores import to_path
from sorites.models.session import CUDA_OPTIONS

# Choice of engine and batch size.


# Below this many forward passes, always use threads.
MIN_PASSES_FOR_PROCESSES = 5_000
# Largest batch size that is tried; larger ones are hardly faster, and cost memory in all queues.
MAX_BATCH = 256
# Wake-up delay in seconds of a thread that indicates that a model holds the interpreter lock; a holder
# releases it every 5 ms or never.
LATE_SECONDS = 0.003
# Fraction of CPU time below which a model only waits; even on a busy machine a computing model uses more.
MIN_BUSY_FRACTION = 0.02
# Seconds for which a model is observed.
OBSERVE_SECONDS = 0.25


@dataclass(frozen=True)
class Chosen:
    """An engine, and one line that explains the choice."""

    engine: Engine
    said: str


def choose(plan: Plan, workers: int | None) -> Chosen:
    """Choose an engine for a plan by its size and by whether its models let other threads work."""
    local = ENGINES.get("local")
    count = workers or local.cores()
    threads = f"local, {count} thread{'s' if count > 1 else ''}"
    if count == 1 or plan.images() * len(plan.models) < MIN_PASSES_FOR_PROCESSES:
        return Chosen(local, f"{threads}: the run is {'for one worker' if count == 1 else 'small'}")
    blocking = [f"{name} {why}" for name, model in plan.models.items() if (why := works_alone(model))]
    if device_used(plan) != "cpu" or _on_gpu():
        return Chosen(local, f"{threads}: the models share a GPU")
    if not blocking:
        return Chosen(local, f"{threads}: the models let other threads work")
    if plan.objects:
        return Chosen(
            local,
            f"{threads}: {'; '.join(blocking)}, but {', '.join(plan.objects)} is an object of this process",
        )
    return Chosen(ENGINES.get("processes"), f"processes, {count}: {'; '.join(blocking)}")


def choose_batch(plan: Plan, smallest: int) -> tuple[int, str]:
    """Return a batch size that fits on the device of the models, and one line that explains it.

    On a GPU it is found by trial, with the models and with the scorers that look inside them: the largest
    one, or half of it if memory is the limit, so that a run does not end because others use the GPU too. On a
    CPU it is ``smallest``, because larger batches are not faster.
    """
    device = device_used(plan)
    if device == "cpu":
        return smallest, f"{smallest} images: on a CPU larger batches are not faster"
    image = _first_image(plan)
    sizes = [
        largest_batch(model, smallest, scorers=[s for s in plan.scorers.values() if s.looks], image=image)
        for model in plan.models.values()
    ]
    largest = min(sizes, default=smallest)
    if largest >= MAX_BATCH:
        return largest, f"{largest} images, which fit on {device}"
    size = max(smallest, largest // 2)
    return size, f"{size} images: half of what fits on {device}"


def _first_image(plan: Plan) -> ImageU8:
    """Return an image of the plan as models see it; a grey one if the first cannot be read."""
    group = next((group for group in plan.groups.values() if len(group)), None)
    shot = None if group is None else captured_shot(plan, group[0])
    return GREY if shot is None or shot.image is None else shot.image


def largest_batch(
    model: Model,
    smallest: int,
    most: int = MAX_BATCH,
    scorers: Sequence[Scorer] = (),
    image: ImageU8 = GREY,
) -> int:
    """Return the largest batch size that a model and scorers accept: ``smallest`` times a power of two."""
    size = smallest
    while size < most and _fits(model.with_batch(2 * size), scorers, [image] * (2 * size)):
        size *= 2
    free_memory()
    return size


def _fits(model: Model, scorers: Sequence[Scorer], images: Sequence[ImageU8]) -> bool:
    """Return whether there is memory for a batch; what an attempt has used is free afterwards."""
    try:
        model(images, False)
        for scorer in scorers:
            scorer.look(model, images, False)
    except Exception as error:
        if not out_of_memory(error):
            raise
        return False
    return True


def device_used(plan: Plan) -> str:
    """Return the first device other than the CPU on which a model of the plan runs, else the CPU."""
    devices = (model.backend.device for model in plan.models.values())
    return next((device for device in devices if device != "cpu"), "cpu")


def works_alone(model: Model) -> str:
    """Return why other threads cannot work while the model does; empty if they can, or if it uses several
    cores.
    """
    if holds_lock(model):
        return "holds the interpreter lock while it works"
    return "is not thread-safe and computes on one core" if model.one_caller and on_one_core(model) else ""


def on_one_core(model: Model) -> bool:
    """Return whether the model computes on the core of its caller only."""
    start, process_time, thread_time = time.perf_counter(), time.process_time(), time.thread_time()
    while time.perf_counter() < start + OBSERVE_SECONDS:
        model([GREY] * 4, False)
    thread_time = time.thread_time() - thread_time
    return (
        thread_time > MIN_BUSY_FRACTION * (time.perf_counter() - start)
        and time.process_time() - process_time < 1.5 * thread_time
    )


def _on_gpu() -> bool:
    """Return whether a model of this process uses a GPU, whose memory every further process would need
    too.
    """
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def holds_lock(model: Model) -> bool:
    """Return whether another thread wakes up later while the model works than while nothing does."""
    model([GREY], False)  # warm-up is not timed
    busy = _wake_delay(lambda: model([GREY] * 4, False))
    return busy > LATE_SECONDS and busy > 3 * _wake_delay(lambda: time.sleep(OBSERVE_SECONDS))


def _wake_delay(do: Callable[[], object]) -> float:
    """Return the median delay with which a sleeping thread wakes up while ``do`` is called repeatedly."""
    delays: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            start = time.perf_counter()
            time.sleep(0.001)
            delays.append(time.perf_counter() - start - 0.001)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    end = time.perf_counter() + OBSERVE_SECONDS
    while time.perf_counter() < end:
        do()
    ended.set()
    thread.join()
    return statistics.median(delays) if delays else OBSERVE_SECONDS


# Running a plan.


def compute_facts(run: Running, *, engine: Engine, workers: int, bar: Bar | None = None) -> None:
    """Compute the facts that the suite of a finished run asks for; existing ones are kept."""
    suite = run.plan.suite
    write_published_levels(run.plan, run.folder)
    if suite.distance:
        with run.computing():
            distance_of_run(run, suite.distance, bar)
    if suite.similarity or suite.lpips_below is not None:
        measure_images(
            run,
            suite.similarity,
            lpips_below=suite.lpips_below,
            engine=engine,
            workers=workers,
            bar=bar,
        )


@dataclass(frozen=True)
class Prepared:
    """A plan whose models and scorers were tried on an image, with the metadata that determines its run
    id.
    """

    plan: Plan
    record: RunRecord
    tried: dict[str, Outputs]

    def with_batch(self, size: int) -> Prepared:
        """Return the plan and its metadata for a batch size."""
        plan = self.plan.with_batch(size)
        return replace(self, plan=plan, record=describe(plan))

    def feature_bytes(self) -> int:
        """Return the disk space of ``keep_features`` in bytes, including training images and heads."""
        heads = sum(
            sum(part.nbytes for part in model.head) for model in self.plan.models.values() if model.head
        )
        return self.plan.images() * self._bytes_per_image + self.training_bytes() + heads

    def training_bytes(self) -> int:
        """Return the disk space of outputs and activations of training and validation images in bytes."""
        kinds = ((kind, len(fit.samples_of(self.plan, kind))) for kind in (fit.NAME, fit.VALIDATION, fit.OOD))
        return sum(
            count * (self._bytes_per_image + fit.inside_bytes(self.plan, kind))
            for kind, count in kinds
            if count
        )

    @property
    def _bytes_per_image(self) -> int:
        """Bytes of the outputs of all models for one image."""
        return sum(
            part.nbytes
            for outputs in self.tried.values()
            for part in (outputs.features, outputs.logits)
            if part is not None
        )

    def default_folder(self) -> Path:
        """Return the default run folder, named by run id, so that a repeated command finds its own work."""
        return Path("runs") / f"{self.plan.suite.name}-{self.record.run_id[:8]}"


def warn(text: str) -> None:
    """Issue a notice to a user of the library."""
    warnings.warn(Notice(text, code="run"), stacklevel=3)


def prepare(plan: Plan) -> Prepared:
    """Try every model and scorer of a plan, so that a broken one is reported before any work is done."""
    if not plan.models:
        raise SoritesError(
            f"suite {plan.suite.name} has no models: add {option('models', ['NAME'])}. See"
            f" {command('list', 'models')}."
        )
    fit.refuse_unfitted(plan)
    with phase("trying the models"):
        return Prepared(plan, describe(plan), try_models(plan))


def execute(
    prepared: Prepared,
    out: str | Path | None = None,
    *,
    batch: int = DEFAULT_BATCH,
    keep_features: bool = False,
    engine: str | Engine = "local",
    workers: int | None = None,
    producers: int | None = None,
    models_per_worker: int | None = None,
    bar: Bar | None = None,
    say: Say = warn,
) -> Path:
    """Run the missing tasks of a plan.

    Images that have changed since are evaluated again, and failed images are retried once.

    Args:
        prepared: The plan.
        out: The run folder; default ``runs/SUITE-ID``.
        batch: Images per forward pass.
        keep_features: Store logits and features.
        engine: Name of an engine, or an engine.
        workers: Number of workers.
        producers: Number of processes that make images; default: none on a CPU, else one per core but one.
        models_per_worker: The number of models that a worker of another process holds; default: as many as
            have weights of 4 GB together.
        bar: Opens progress bars.
        say: Called with notices.

    Returns:
        The run folder.
    """
    _check_positive("batch", batch)
    _check_positive("workers", workers)
    prepared = prepared.with_batch(batch)
    path = to_path(out) if out is not None else prepared.default_folder()
    start = chosen_engine(engine, prepared.plan)
    groups = model_groups(prepared.plan, start, models_per_worker)
    plan = folder.with_stored_slices(path, with_slices_for(prepared.plan, len(groups)))
    for name in (name for name, model in plan.models.items() if not model.repeats):
        say(
            f"model {name} is not deterministic: it gave different outputs for the same images, and so will"
            " another run"
        )
    pipeline = pipeline_for(plan, start, producers, batch)
    described = prepared.record.having(
        ran_on=_ran_on(plan, start, batch, pipeline), **({"groups": groups} if len(groups) > 1 else {})
    )
    with folder.open_run(path, plan, described, say) as record:
        sweep_temporaries(path)
        if record.suite.refine:
            expand(path)
        redo_errors(path, plan)
        move_unpaired_features(path, plan)
        run = Running(path, plan, record.run_id)
        stage = _Stage(start, workers or start.cores(), run, bar, groups, record)
        keep_features = keep_features or kept_features_before(path)
        with contextlib.ExitStack() as stack:
            if pipeline is not None:
                stage.session = stack.enter_context(pipeline.open(plan))
            stack.enter_context(_hashing(stage))
            _evaluate(stage, batch, keep_features, record.suite.refine)
        write_index(path)
        compute_facts(stage.run, engine=start, workers=stage.workers, bar=bar)
    return path


def pipeline_for(plan: Plan, engine: Engine, requested: int | None, batch: int) -> Pipeline | None:
    """Return how a pipeline runs a plan; None if the engine makes the images and evaluates them."""
    producers = producers_for(plan, engine, requested)
    return Pipeline(producers, batch, models_by_device(plan), threads=producers) if producers else None


@contextmanager
def _hashing(stage: _Stage) -> Iterator[None]:
    """Add the hashes that tasks of a large run return to its manifest, also if it is interrupted.

    Images without one, as after a process was killed, are hashed by tasks of their own.
    """
    path, plan = stage.run.folder, stage.run.plan
    if not folder.is_large(plan):
        yield
        return
    stage.unhashed = stage.slices.unhashed()
    try:
        yield
        rest = stage.unhashed - stage.found.keys()
        units = [u for u in plan.units() if u.shift == CLEAN or u.shift not in plan.shifts]
        left = [Task(u, (), hashes=True) for u in units if not rest.isdisjoint(stage.slices.span(u))]
        stage.do("hashing", left, work.hash_images)
    finally:
        if stage.found:
            folder.record_hashes(path, stage.found)


# Bytes of the weights that a worker of another process holds, unless the number of its models is given: a
# quarter of a small GPU, and a few seconds of loading.
MAX_GROUP_BYTES = 4 << 30


def model_groups(plan: Plan, engine: Engine, size: int | None) -> tuple[tuple[str, ...], ...]:
    """Return groups of models, each of which one worker holds.

    Images are made once for each group. In one process all models share them.

    Args:
        plan: The plan.
        engine: The engine.
        size: The number of models in a group; default: as many as have weights of 4 GB together.
    """
    names = tuple(plan.models)
    if size is not None:
        return tuple(names[i : i + size] for i in range(0, len(names), size))
    if engine.one_process:
        return (names,)
    groups: list[list[str]] = []
    weights = 0
    for name in names:
        own = 4 * (plan.models[name].parameters or 0)
        if not groups or weights + own > MAX_GROUP_BYTES:
            groups.append([])
            weights = 0
        groups[-1].append(name)
        weights += own
    return tuple(map(tuple, groups))


def with_slices_for(plan: Plan, groups: int) -> Plan:
    """Return the plan with slices that are large enough for its number of model groups; each group writes one
    file per slice.
    """
    if groups == 1:
        return plan
    return replace(plan, slice=max(plan.slice, slice_for([len(g) for g in plan.groups.values()], groups)))


def producers_for(plan: Plan, engine: Engine, requested: int | None) -> int:
    """Return the number of processes that make images for a plan.

    On a CPU, models take longer than images, and the threads of the engine do both.
    """
    if not engine.one_process:
        if requested:
            raise SoritesError(
                f"{option('producers', None)} needs the engine local, which evaluates in this process; got"
                f" {engine.name}. Workers of the engine ray have {option('cpus_per_worker', 'N')}."
            )
        return 0
    if requested is not None:
        return requested
    return 0 if device_used(plan) == "cpu" else max(1, cores() - 1)


def _check_positive(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise SoritesError(f"{option(name, None)} must be a whole number above 0, got {value}")


def _evaluate(stage: _Stage, batch: int, keep_features: bool, refine: float | None) -> None:
    """Fit the scorers, evaluate the grid, and refine failure severities, as far as each is missing."""
    path, plan, groups = stage.run.folder, stage.run.plan, stage.groups
    grid = _with_hashing(_tasks(path, plan, plan.units(), groups, keep_features), stage)
    if grid or (refine and _tasks(path, plan, plan.probes(), groups)) or fit.gaps(plan, path, keep_features):
        _fit(stage, keep_features, batch)
    if keep_features:
        keep_heads(plan, path)
    with _merging(stage, refine):
        _evaluate_grid(stage, grid, batch, keep_features)
    if refine:
        probes = _tasks(path, plan, plan.probes(), groups)
        if stage.session is None:
            stage.do("refining", probes, work.probe, batch=batch, tolerance=refine)
        elif probes:
            tick = stage.tick("refining", len(probes))
            pipeline_work.refine(stage.session, stage.run, probes, refine, tick)


@contextmanager
def _merging(stage: _Stage, refine: float | None) -> Iterator[None]:
    """Merge the shards of a run of many tasks while it goes on.

    Refinement reads single shards; a run that is refined has at most 100,000 files without merging.
    """
    path, plan = stage.run.folder, stage.run.plan
    units = plan.units()
    if refine or len(units) * len(stage.groups) < MIN_SHARDS:
        yield
        return
    rows = max(1, plan.images() * len(plan.models) // (len(units) * len(stage.groups)))
    stems = [shards.stem(unit, *group) for unit in units for group in stage.groups]
    merger = Merger(path, stems, min(MIN_SHARDS, RUNNING_ROWS // rows))
    stage.written = merger.add
    try:
        yield
    finally:
        stage.written = _ignore
        merger.close()


def _ignore(names: Iterable[str]) -> None:
    """Do nothing with the names of shards that were written."""


def _evaluate_grid(stage: _Stage, grid: Sequence[Task], batch: int, keep_features: bool) -> None:
    if stage.session is None:
        making = {"producers": stage.engine.producers} if stage.engine.producers else {}
        stage.do(
            "evaluating", grid, work.evaluate, _images, batch=batch, keep_features=keep_features, **making
        )
    elif grid:
        tick = stage.tick("evaluating", sum(_images(stage.run.plan, task) for task in grid))
        pipeline_work.evaluate(stage.session, stage.run, grid, tick, keep_features, stage.written)


def _ran_on(plan: Plan, engine: Engine, batch: int, pipeline: Pipeline | None) -> tuple[RanOn, ...]:
    """Return one entry for each group of models that the same library computes on the same device."""
    groups: dict[Backend, list[str]] = {}
    for models in (pipeline and pipeline.devices) or (plan.models,):
        for name, model in models.items():
            groups.setdefault(model.backend, []).append(name)
    return tuple(
        RanOn(
            engine=engine.name,
            device=backend.device,
            precision=backend.precision,
            batch=batch,
            models=tuple(names),
            library=backend.library,
            **({"hardware": facts} if (facts := gpu_facts(backend.device)) else {}),
            **({"options": options} if (options := _library_options(backend)) else {}),
        )
        for backend, names in groups.items()
    )


def _library_options(backend: Backend) -> dict[str, str]:
    if backend.library == "torch":
        return {"tf32": "off", "kernels": "deterministic"}
    return dict(CUDA_OPTIONS) if (backend.library, backend.kind) == ("onnxruntime", "cuda") else {}


def _tasks(
    path: Path,
    plan: Plan,
    units: Sequence[Unit],
    groups: Sequence[tuple[str, ...]],
    keep_features: bool = False,
) -> list[Task]:
    """Return the missing tasks: one for each slice and group of models."""
    missing = shards.missing(path, units, plan.models, keep_features)
    without_rows = shards.missing(path, units, plan.models) if keep_features else missing
    return [
        Task(
            unit,
            names,
            tuple(name for name in without_rows.get(unit, ()) if name in group),
            group=_named(group, plan),
        )
        for unit, left in missing.items()
        for group in groups
        if (names := tuple(name for name in left if name in group))
    ]


def _with_hashing(tasks: Sequence[Task], stage: _Stage) -> list[Task]:
    """Return tasks of which one for each slice hashes its images, as far as their hashes are unknown."""
    waiting, chosen = set(stage.unhashed), list[Task]()
    for task in tasks if waiting else ():
        applied = task.unit.shift != CLEAN and task.unit.shift in stage.run.plan.shifts
        span = stage.slices.span(task.unit)
        chosen.append(task if applied or waiting.isdisjoint(span) else replace(task, hashes=True))
        waiting -= set() if applied else set(span)
    return chosen or list(tasks)


def _named(group: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    """Return a group of models; empty if it has all of them."""
    return () if len(group) == len(plan.models) else group


def _images(plan: Plan, task: Task) -> int:
    return plan.images_of(task.unit) * len(task.models)


def _fit(stage: _Stage, keep_features: bool, batch: int) -> None:
    """Evaluate training images if scorers or ``keep_features`` need them, and fit the scorers."""
    run = stage.run
    tasks = [
        replace(task, models=names, group=_named(group, run.plan))
        for task in fit.tasks(run.plan, run.folder, keep_features)
        for group in stage.groups
        if (names := tuple(name for name in task.models if name in group))
    ]
    if stage.session is None:
        stage.do("fitting", tasks, fit.collect, _images, batch=batch)
    elif tasks:
        tick = stage.tick("fitting", sum(_images(run.plan, task) for task in tasks))
        pipeline_work.collect(stage.session, run, tasks, tick)
    ready = fit.ready(run)
    if fit.wants_training(run.plan) or ready.searches:
        fit.record(ready, run.folder)


@dataclass
class _Stage:
    """Runs tasks on an engine or as a pipeline, and advances a progress bar."""

    engine: Engine
    workers: int
    run: Running
    bar: Bar | None
    groups: Sequence[tuple[str, ...]]
    record: RunRecord
    unhashed: set[int] = field(default_factory=set)
    """Positions in the manifest of images whose hash is unknown."""
    found: dict[int, tuple[int | None, int | None, str | None]] = field(default_factory=dict)
    """Size, time and hash that tasks returned, by position in the manifest."""
    session: Session | None = None
    written: Callable[[Iterable[str]], None] = _ignore
    """Called with the names of the shards that a task wrote."""

    def tick(self, what: str, steps: int) -> Callable[[int], None]:
        """Open a progress bar."""
        return self.bar(what, steps) if self.bar else lambda n: None

    def do(
        self,
        what: str,
        tasks: Sequence[Task],
        function: Callable[..., Any],
        steps: Callable[[Plan, Task], int] | None = None,
        **options: Any,
    ) -> None:
        """Run tasks; the bar advances by image if they run in this process and ``steps`` is given, else by
        task.
        """
        if not tasks:
            return
        sizes = {task: 1 if steps is None else steps(self.run.plan, task) for task in tasks}
        tick = _locked(self.bar(what, sum(sizes.values()))) if self.bar else lambda n: None
        by_image = steps is not None and self.engine.one_process
        self.run.tick = tick if by_image else lambda n: None
        for task, result in self._start(tasks, function, options):
            if isinstance(result, work.Done):
                self.found.update(zip(self.slices.span(task.unit), result.hashes, strict=False))
                self.written(result.shards)
            if not by_image:
                tick(sizes[task])

    def _start(
        self, tasks: Sequence[Task], function: Callable[..., Any], options: Mapping[str, Any]
    ) -> Iterator[tuple[Task, Any]]:
        """Start tasks on the engine; other processes get them with their samples."""
        run = self.run
        if self.engine.one_process:
            yield from self.engine(tasks, run.work(self.engine, function, **options), self.workers)
            return
        rows_of: Callable[[Task], tuple[Path, ...]] = lambda task: ()  # noqa: E731
        if function is work.probe:
            rows_of = functools.partial(work.refined_files, run.plan, present=work.present_in(run))
        parcels = Parcels(tasks, self.slices, function is fit.collect, rows_of)
        site = Site(run.folder, Outline.of(run.plan, self.record))
        for parcel, result in self.engine(parcels, site.work(function, **options), self.workers):
            yield parcel.task, result

    @functools.cached_property
    def slices(self) -> SampleSlices:
        return SampleSlices(self.run.plan, folder.read_manifest(self.run.folder))


def _locked(tick: Callable[[int], None]) -> Callable[[int], None]:
    lock = threading.Lock()

    def advance(n: int) -> None:
        with lock:
            tick(n)

    return advance
