"""``sorites.run``: evaluate a suite from Python and return its table."""

from __future__ import annotations

import contextlib
import html
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from sorites.core import Model, Source
from sorites.core.errors import Notice, SoritesError
from sorites.core.progress import Bar, bars_if_watched
from sorites.core.table import read
from sorites.evaluation import plan as plans
from sorites.evaluation.engines import Engine
from sorites.evaluation.fit import refusals
from sorites.evaluation.plan import Plan
from sorites.evaluation.runner import DEFAULT_BATCH, execute, prepare
from sorites.suites.suite import Suite, load

# Accepted models: a spec, a ``Model``, a torch module, or a callable.
Object = str | Model | Callable[..., Any]


HINT = "sorites.report(table), sorites.accuracy(table, by=[...]), table.collect(); columns: see docs/table.md"


class RunTable(pl.LazyFrame):
    """The table of a run.

    It and every frame derived from it by filtering, sorting or selecting know the run's folder and plan, so
    that a report can show images of sources and models that were passed as objects.
    """

    folder: ClassVar[Path]
    plan: ClassVar[Plan]

    def __repr__(self) -> str:
        """Summarise the table, or name the run if the frame no longer has the table's columns."""
        head = f"the table of {self.folder}"
        if not {"model", "shift", "sample_id", "output"} <= set(self.collect_schema().names()):
            return f"a frame derived from {head}; .collect() returns its rows"
        facts = self.select(
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
        lines = [f"{head}: {counts['rows']} rows of {counts['samples']} samples", *listings, HINT]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    @staticmethod
    def of(folder: Path, plan: Plan) -> RunTable:
        """Return the table of a run folder."""
        subclass: Any = type("RunTable", (RunTable,), {"folder": folder, "plan": plan})
        table: RunTable = subclass._from_pyldf(read(folder)._ldf)
        return table


def run(
    suite: str | Path | Suite,
    *,
    source: str | Source | None = None,
    ood: Mapping[str, str | Source] | None = None,
    id_sources: Mapping[str, str | Source] | None = None,
    models: Sequence[Object] | Mapping[str, Object] = (),
    shifts: Sequence[str] = (),
    levels: Sequence[int] = (),
    severities: Sequence[float] = (),
    scorers: Sequence[str] = (),
    fit: str | Source | None = None,
    options: Mapping[str, Any] | None = None,
    labels: str | Sequence[str] | None = None,
    limit: int | None = None,
    seed: int | None = None,
    refine: float | None = None,
    batch: int = DEFAULT_BATCH,
    keep_features: bool = False,
    out: str | Path | None = None,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> pl.LazyFrame:
    """Evaluate a suite and return its table.

    Finished work in the run folder is not repeated. None and empty sequences keep the suite's own value.

    Args:
        suite: Name of a built-in suite, path of a TOML file, or a ``Suite``.
        source: The images: a spec such as ``"folder:PATH"``, or a ``Source``.
        ood: Further sources of OOD images by name, optionally with a group: ``{"far:dtd": "folder:PATH"}``.
        id_sources: Further in-distribution sources, with labels of the suite, by name.
        models: Specs, torch modules, functions or models; a mapping names them in the table: ``{"v2": net}``.
        shifts: Names of shifts.
        levels: Published levels of the shifts by number.
        severities: Severities of the only shift, in its unit.
        scorers: OOD scorers: ``["energy", "knn(k=10)"]``.
        fit: Source of training images for scorers that need fitting.
        options: Options of the shifts: ``{"padding": "reflect"}``.
        labels: A file of class names, a list of them, ``"imagenet"`` or ``"coco"``.
        limit: Maximum number of samples, taken in a fixed random order.
        seed: Seed of the random draws.
        refine: Bisect failure severities to this fraction of the top level.
        batch: Images per forward pass; does not change results.
        keep_features: Store logits and features, so that ``sorites.score`` can add scorers later.
        out: The run folder; default ``runs/SUITE-ID``.
        engine: Name of an engine, or an engine.
        workers: Number of workers.
        bar: Opens progress bars; by default they are drawn in terminals and notebooks.

    Returns:
        The table, a polars LazyFrame that knows its folder (``table.folder``).

    Raises:
        SoritesError: The suite cannot run, or the folder belongs to another run.
    """
    further = {**_entries(id_sources, "id"), **_entries(ood, "ood")}
    model_objects = _named(models) if isinstance(models, Mapping) else [_as_given(model) for model in models]
    base = load(suite)
    if isinstance(source, Source):
        base = base.model_copy(update={"limit": None})
    recipe = base.override(
        source=_spec_of(source),
        sources=tuple(entry for entry, _ in further.values()),
        models=tuple(model if isinstance(model, str) else model.name for model in model_objects),
        shifts=shifts,
        levels=levels,
        severities=severities,
        options=options,
        scorers=tuple(scorers),
        fit=None if fit is None else {"source": _spec_of(fit)},
        labels=labels if labels is None or isinstance(labels, str) else tuple(labels),
        limit=limit,
        seed=seed,
        refine=refine,
    )
    objects = {model.name: model for model in model_objects if isinstance(model, Model)}
    read = {name: obj for name, (_, obj) in further.items() if isinstance(obj, Source)}
    plan = plans.make(recipe, _as_source(source), objects, _as_source(fit), read)
    with contextlib.nullcontext(bar) if bar is not None else bars_if_watched() as progress:
        folder = execute(
            prepare(plan),
            out,
            batch=batch,
            keep_features=keep_features,
            engine=engine,
            workers=workers,
            bar=progress,
        )
    for note in refusals(folder):
        warnings.warn(Notice(note, code="scorer_not_fitted"), stacklevel=2)
    return RunTable.of(folder, plan)


def _spec_of(source: str | Source | None) -> str | None:
    return source.name if isinstance(source, Source) else source


def _entries(
    named: Mapping[str, str | Source] | None, role: str
) -> dict[str, tuple[dict[str, Any], str | Source]]:
    """Return the suite entries of further sources, with the sources, by name."""
    entries: dict[str, tuple[dict[str, Any], str | Source]] = {}
    for key, obj in (named or {}).items():
        group, _, name = key.rpartition(":")
        spec = obj.name if isinstance(obj, Source) else obj
        entries[name] = ({"spec": spec, "name": name, "role": role, "group": group or None}, obj)
    return entries


def _as_source(obj: str | Source | None) -> Source | None:
    return obj if isinstance(obj, Source) else None


def _named(models: Mapping[str, Object]) -> list[str | Model]:
    """Return models under the names of a mapping."""
    invalid = next((name for name in models if not name.strip() or "=" in name or ":" in name), None)
    if invalid is not None:
        raise SoritesError(f"models: expected names without = and :, such as v2, got {invalid!r}")
    return [f"{name}={obj}" if isinstance(obj, str) else _as_given(obj, name) for name, obj in models.items()]


def _as_given(obj: Object, name: str = "") -> str | Model:
    """Return a spec unchanged and anything else as a model; the default name is that of the object."""
    if isinstance(obj, str):
        return obj
    if isinstance(obj, Model):
        return replace(obj, name=name) if name else obj
    from sorites.models.python import as_model

    return as_model(name or getattr(obj, "__name__", type(obj).__name__), obj)
