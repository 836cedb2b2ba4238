"""``sorites.run``: evaluate a suite and return the run."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from sorites.core import Model, Source
from sorites.core.errors import Information, Notice, SoritesError, TooManyErrors, tell
from sorites.core.messages import option
from sorites.core.progress import Bar, bars_if_watched, calling_first
from sorites.core.table import read
from sorites.evaluation import plan as plans
from sorites.evaluation.engines import Engine
from sorites.evaluation.estimate import input_lines, note_unlabelled
from sorites.evaluation.fit import fit_notes, note_overlap, refusals, too_few
from sorites.evaluation.options import DEFAULT_BATCH, MAX_ERRORS, RunOptions
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import refuse_attacks
from sorites.evaluation.runner import Prepared, choose, choose_batch, device_used, execute, prepare
from sorites.evaluation.storage.overlap import overlap_notes, record_overlap
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.trackers.base import facts_of
from sorites.evaluation.trackers.live import Live, following
from sorites.io.listed import RUN
from sorites.io.stores import to_path
from sorites.sources.foolbox import instead_note, usual_or_foolbox
from sorites.suites.suite import Suite, builtin_suites, load

if TYPE_CHECKING:
    from sorites.evaluation.options import AnyModel

HINT = "sorites.report(run), sorites.accuracy(run, by=[...]), run.table; columns: see docs/table.md"


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its folder, its plan and its table.

    Metrics, ``sorites.report`` and the other functions that read a run accept it in place of a folder.

    Attributes:
        folder: The run folder.
        plan: What was evaluated, with the sources and models that were passed as objects.
        rows: A part of the table, if this is a part of the run.
    """

    folder: Path
    plan: Plan
    rows: pl.LazyFrame | None = None

    @cached_property
    def table(self) -> pl.LazyFrame:
        """The table, as a polars LazyFrame."""
        return read(self.folder) if self.rows is None else self.rows

    def lazy(self) -> pl.LazyFrame:
        """Return the table."""
        return self.table

    def collect(self) -> pl.DataFrame:
        """Return the table in memory."""
        return self.table.collect()

    def filter(self, *predicates: pl.Expr) -> Run:
        """Return the part of the run whose rows satisfy polars expressions, for a report with images."""
        return replace(self, rows=self.table.filter(*predicates))

    def __repr__(self) -> str:
        facts = self.table.select(
            pl.col("sample_id").n_unique().alias("samples"),
            pl.col("model").unique().sort().implode().alias("models"),
            pl.col("shift").unique().sort().implode().alias("shifts"),
            pl.len().alias("rows"),
        )
        counts = facts.collect(engine="streaming").row(0, named=True)
        listings = [
            f"{len(counts[kind])} {kind}: {', '.join(map(str, counts[kind]))}"
            for kind in ("models", "shifts")
        ]
        head = f"the run {self.folder}: {counts['rows']} rows of {counts['samples']} samples"
        return "\n  ".join([head, *listings, HINT])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def run(
    suite: str | Path | Suite,
    *,
    source: str | Source | None = None,
    shifts: Sequence[str] = (),
    levels: Sequence[int] = (),
    severities: Sequence[float] = (),
    grid: Sequence[str] = (),
    kernels: str | Path | None = None,
    padding: str | None = None,
    lenses: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    labels: str | Path | Sequence[str] | None = None,
    follow_links: bool | None = None,
    limit: int | None = None,
    seed: int | None = None,
    id_sources: Mapping[str, str | Source] | None = None,
    ood: Mapping[str, str | Source] | None = None,
    models: Sequence[AnyModel] | Mapping[str, AnyModel] = (),
    scorers: Sequence[str] = (),
    only_scorers: Sequence[str] = (),
    fit: str | Source | None = None,
    order: str | None = None,
    batch: int | Literal["auto"] = "auto",
    device: str | None = None,
    precision: str | None = None,
    unseen_by: Sequence[str] = (),
    refine: float | None = None,
    keep_features: bool = False,
    out: str | Path | None = None,
    max_errors: float = MAX_ERRORS,
    engine: str | Engine | None = "auto",
    workers: int | None = None,
    producers: int | None = None,
    address: str | None = None,
    gpus_per_worker: float = 0.0,
    cpus_per_worker: int = 1,
    models_per_worker: int | None = None,
    log: str | None = None,
    max_pixels: int | None = None,
    bar: Bar | None = None,
) -> Run:
    """Evaluate the models of a suite under its shifts.

    Finished work in the run folder is not repeated. None and empty sequences keep the suite's own value.

    Args:
        suite: A built-in suite, or the path of a .toml file. Also a ``Suite``.
        source: Read images from this source: stamps, folder:PATH, webdataset:PATH. NAME= sets its name. Also
            a ``Source``.
        shifts: Apply only these shifts.
        levels: Apply only these published levels.
        severities: Apply these severities, in the unit of the only shift.
        grid: Apply two or three shifts at once, at all combinations of their settings: "exposure_stops x
            defocus_disk", or with severities "exposure_stops=1,3 x defocus_disk=2,4".
        kernels: Blur with this published kernel stack instead of the built-in aberrations.
        padding: How the lens aberrations pad the image border: zeros or reflect.
        lenses: A folder of your own traced lenses for the shift lens.
        options: Options of the suite's shifts.
        labels: A file of class names, one per line; default: the 1000 classes of ImageNet. Also a sequence of
            names.
        follow_links: Follow symbolic links that leave the folder of a source; links inside it are always
            followed.
        limit: Use only the first N samples of a fixed random order.
        seed: Random seed.
        id_sources: Further in-distribution sources, with labels of the suite, by name.
        ood: Sources of OOD images by name, perhaps with a group: far:textures=folder:PATH; without labels. A
            mapping: ``{"far:textures": "folder:PATH"}``.
        models: Evaluate these models: lite0, timm:NAME, timm:NAME@WEIGHTS, onnx:PATH, python:module:callable.
            NAME= sets the name in the table: v2=onnx:PATH. Also torch modules, functions and ``Model``
            objects; a mapping names them: ``{"v2": net}``.
        scorers: Compute these OOD scores besides those of the suite: energy, knn, 'knn(k=10)'.
        only_scorers: Compute these OOD scores instead of those of the suite.
        fit: Training images for scorers that are fitted. Also a ``Source``.
        order: Read whole shards in hash order, and no more of a large source than the limit needs.
        batch: Batch size; auto uses 8 on a CPU and finds one that fits on a GPU.
        device: Device for the models; default: a GPU if available.
        precision: Floating-point precision of torch models.
        unseen_by: Leave out the images that this model was trained on: trained:DIR.
        refine: Bisect each failure severity to this fraction of the shift's highest level.
        keep_features: Keep logits and features in the run folder, for "sorites score".
        out: The run folder, or s3://BUCKET/RUN; default: runs/SUITE-ID.
        max_errors: Fail if more than this share of the rows have errors. The rows stay in the run folder.
        engine: Engine that runs the tasks: local (threads), processes, or ray (also on a cluster); auto
            chooses local or processes. Also an ``Engine``.
        workers: Number of tasks to run in parallel; default: one per core.
        producers: Number of processes that make images; default: none if the models run on a CPU, else one
            per core but one.
        address: Head of the Ray cluster, for the engine ray; default: RAY_ADDRESS, or a local Ray instance.
        gpus_per_worker: Fraction of a GPU for each worker of the engine ray.
        cpus_per_worker: CPUs for each worker of the engine ray; all but one make images, in processes of
            their own, while the models evaluate.
        models_per_worker: Number of models that each worker of the engine ray holds; default: as many as have
            weights of 4 GB together.
        log: Log the accuracy so far while the run works, and its curves at the end: mlflow[:URI],
            wandb[:PROJECT] or tensorboard[:DIR].
        max_pixels: Refuse images with more pixels than this; default: 100 million.
        bar: Opens progress bars; by default they are drawn in terminals and notebooks.

    Returns:
        The run, with its table (``run.table``) and folder (``run.folder``).

    Raises:
        TooManyErrors: Nothing was evaluated, or too many rows have errors. The rows stay in the folder.
        SoritesError: The suite cannot run, or the folder belongs to another run.

    Example:
        >>> import sorites
        >>> run = sorites.run("demo", models=["lite0"], shifts=["brightness"], levels=[1], limit=2, out="run")
        >>> sorites.accuracy(run, by=["shift", "severity"]).select("shift", "severity", "n").rows()
        [('brightness', 0.1, 2), ('clean', 0.0, 2)]
    """
    chosen = RunOptions(
        suite=suite,
        source=source,
        shifts=shifts,
        levels=levels,
        severities=severities,
        grid=grid,
        kernels=kernels,
        padding=padding,
        lenses=lenses,
        options=options,
        labels=labels,
        follow_links=follow_links,
        limit=limit,
        seed=seed,
        id_sources=id_sources,
        ood=ood,
        models=models,
        scorers=scorers,
        only_scorers=only_scorers,
        fit=fit,
        order=order,
        batch=batch,
        device=device,
        precision=precision,
        unseen_by=unseen_by,
        refine=refine,
        keep_features=keep_features,
        out=out,
        max_errors=max_errors,
        engine=engine,
        workers=workers,
        producers=producers,
        address=address,
        gpus_per_worker=gpus_per_worker,
        cpus_per_worker=cpus_per_worker,
        models_per_worker=models_per_worker,
        log=log,
        max_pixels=max_pixels,
    )
    return evaluate(chosen, bar)


def evaluate(options: RunOptions, bar: Bar | None = None) -> Run:
    """Evaluate a suite, like ``run``, with options as one object."""
    plan = _plan(options)
    prepared = prepare(plan)
    for notice in _notices(prepared, options.keep_features):
        tell(notice, 3)
    engine, batch, lines = _resources(plan, options)
    progress_bars = contextlib.nullcontext(bar) if bar is not None else bars_if_watched()
    live = None if options.log is None else _live(options.log, prepared.with_batch(batch), options.out)
    with options.reading(), progress_bars as shown, following(live):
        shown = shown or _silent
        folder = execute(
            prepared,
            options.out,
            batch=batch,
            keep_features=options.keep_features,
            engine=engine,
            workers=options.workers,
            producers=options.producers,
            models_per_worker=options.models_per_worker,
            bar=calling_first(
                live.bar(shown) if live else shown, lambda: tell(Information("\n".join(lines), code="input"))
            ),
        )
    for notice in _results(plan, folder):
        tell(notice, 3)
    for note in overlap_notes(record_overlap(folder, plan.suite)):
        tell(Notice(note, code="trained_on"), 3)
    finished = Run(folder, plan)
    refuse_errors(finished.table, folder, options.max_errors)
    return finished


def _live(spec: str, prepared: Prepared, out: str | Path | None) -> Live:
    folder = prepared.default_folder() if out is None else to_path(out)
    return Live(spec, folder, facts_of(prepared.record))


def refuse_errors(table: pl.LazyFrame, folder: Path, most: float) -> None:
    """Raise ``TooManyErrors`` if no row was evaluated, or more than a share ``most`` of them have errors."""
    error = pl.col("error")
    # A scorer that could not be fitted has its own notice; here only predictions count.
    predictions = table.filter(pl.col("output") != "ood")
    counts = predictions.select(rows=pl.len(), errors=error.count(), first=error.drop_nulls().first())
    rows, errors, first = counts.collect(engine="streaming").row(0)
    if not rows or errors > most * rows or (errors == rows and most < 1):
        raise TooManyErrors(folder, rows, errors, first or "")


def recipe(options: RunOptions) -> Suite:
    """Return the suite with the options applied; objects are represented by their names."""
    source = options.source
    name, spec = _named_source(source) if isinstance(source, str) else (None, _spec_of(source))
    suite = load(options.suite)
    if not isinstance(options.suite, Suite):
        refuse_attacks(options.suite, options.shifts)
    if isinstance(source, Source):
        suite = suite.model_copy(update={"limit": None})
    if spec is None and str(options.suite) in builtin_suites():
        spec = usual_or_foolbox(suite.source)
    return suite.override(
        **options.replaced(),
        source=spec,
        source_name=name,
        sources=(*_entries(options.id_sources, "id"), *_entries(options.ood, "ood")),
        models=tuple(model if isinstance(model, str) else model.name for model in _models(options)),
        scorers=tuple(options.scorers),
        only_scorers=tuple(options.only_scorers),
        fit=None if options.fit is None else {"source": _spec_of(options.fit)},
        order=options.order,
        device=options.models_device(),
        precision=options.precision,
        refine=options.refine,
        unseen_by=tuple(options.unseen_by),
    )


def _plan(options: RunOptions) -> Plan:
    """Return the plan of the suite, with the sources and models that were passed as objects."""
    models = {model.name: model for model in _models(options) if isinstance(model, Model)}
    further = {**(options.id_sources or {}), **(options.ood or {})}
    sources = {key.rpartition(":")[2]: obj for key, obj in further.items() if isinstance(obj, Source)}
    suite = recipe(options)
    if options.source is None and suite.source != load(options.suite).source:
        tell(Notice(instead_note(suite.name), code="other_images"), 4)
    return plans.make(suite, _as_source(options.source), models, _as_source(options.fit), sources)


def _models(options: RunOptions) -> list[str | Model]:
    given = options.models
    return _named(given) if isinstance(given, Mapping) else [_as_given(model) for model in given]


def _resources(plan: Plan, options: RunOptions) -> tuple[str | Engine, int, list[str]]:
    """Return the engine, the batch size, and lines that explain the choices and the models' input."""
    lines = input_lines(plan)
    engine = options.chosen_engine()
    if engine == "auto":
        chosen = choose(plan, options.workers)
        engine = chosen.engine
        lines.append(f"engine: {chosen.said}")
    if options.batch != "auto":
        return engine, options.batch, lines
    stored = _stored_batch(options.out)
    if stored is not None:
        return engine, stored, [*lines, f"batch: {stored} images, as the run was started"]
    batch, reason = choose_batch(plan, DEFAULT_BATCH)
    return engine, batch, lines if device_used(plan) == "cpu" else [*lines, f"batch: {reason}"]


def _stored_batch(out: str | Path | None) -> int | None:
    """Return the batch size that the rows of an existing run folder depend on; None if there is none."""
    folder = None if out is None else to_path(out)
    return read_record(folder).batch if folder is not None and (folder / RUN).exists() else None


def _notices(prepared: Prepared, keep_features: bool) -> Iterator[Notice]:
    """Yield what a user should know before the run starts."""
    plan = prepared.plan
    if keep_features:
        yield Information(f"features will take {prepared.feature_bytes() / 1e6:.1f} MB", code="disk_space")
    elif plan.fit:
        count = len(plan.fit) + len(plan.validation) + len(plan.ood)
        kinds = "training and validation" if plan.validation else "training"
        size = prepared.training_bytes() / 1e6
        yield Information(f"outputs of {count} {kinds} images will take {size:.1f} MB", code="disk_space")
    if plan.left_out:
        names = ", ".join(plan.left_out)
        text = f"skipped scorers that need training images (add {option('fit', 'SOURCE')}): {names}"
        yield Information(text, code="scorer_skipped")
    for note in too_few(plan).values():
        yield Information(f"{note}. There will be no scores of it.", code="scorer_not_fitted")
    if note := note_overlap(plan):
        yield Notice(note.removeprefix("note: "), code="overlap")
    if note := note_unlabelled(plan):
        yield Notice(note, code="unlabelled")


def _results(plan: Plan, folder: Path) -> Iterator[Notice]:
    """Yield what a user should know about a finished run."""
    for name, (used, total) in plan.limited.items():
        text = f"used {used} of {total} samples of {name}; change this with {option('limit', 'N')}"
        yield Information(text, code="limit")
    refused = refusals(folder)
    for note in fit_notes(folder):
        if note in refused:
            yield Notice(note, code="scorer_not_fitted")
        else:
            yield Information(note, code="fit")


def _silent(what: str, steps: int) -> Callable[[int], None]:
    return lambda n: None


def _named_source(text: str) -> tuple[str | None, str]:
    """Split ``NAME=SPEC``; an equals sign after a colon, comma or slash belongs to the spec."""
    label, equals, spec = text.partition("=")
    is_named = equals and not set("/:,") & set(label)
    return (label, spec) if is_named else (None, text)


def _spec_of(source: str | Source | None) -> str | None:
    return source.name if isinstance(source, Source) else source


def _entries(named: Mapping[str, str | Source] | None, role: str) -> Iterator[dict[str, Any]]:
    """Yield the suite entries of further sources."""
    for key, obj in (named or {}).items():
        group, _, name = key.rpartition(":")
        yield {"spec": _spec_of(obj), "name": name, "role": role, "group": group or None}


def _as_source(obj: str | Source | None) -> Source | None:
    return obj if isinstance(obj, Source) else None


def _named(models: Mapping[str, AnyModel]) -> list[str | Model]:
    """Return models under the names of a mapping."""
    invalid = next((name for name in models if not name.strip() or "=" in name or ":" in name), None)
    if invalid is not None:
        raise SoritesError(f"models: expected names without = and :, such as v2, got {invalid!r}")
    return [f"{name}={obj}" if isinstance(obj, str) else _as_given(obj, name) for name, obj in models.items()]


def _as_given(obj: AnyModel, name: str = "") -> str | Model:
    """Return a spec unchanged and anything else as a model; the default name is that of the object."""
    if isinstance(obj, str):
        return obj
    if isinstance(obj, Model):
        return replace(obj, name=name) if name else obj
    from sorites.models.python import as_model

    return as_model(name or getattr(obj, "__name__", type(obj).__name__), obj)
