"""``sorites.run``: evaluate a suite from Python and get its table, which knows its folder and its plan."""

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
from sorites.core.errors import SoritesError
from sorites.core.progress import Bar, bars_if_watched
from sorites.core.table import read
from sorites.evaluation import plan as plans
from sorites.evaluation.engines import Engine
from sorites.evaluation.fit import refusals
from sorites.evaluation.plan import Plan
from sorites.evaluation.runner import BATCH, execute, prepare
from sorites.suites.suite import Suite, load

# A model as it may be given: a spec, a model, a torch module, or something to call.
Object = str | Model | Callable[..., Any]


HINT = "sorites.report(table), sorites.accuracy(table, by=[...]), table.collect(); the columns: docs/table.md"


class RunTable(pl.LazyFrame):
    """The table of a run. It and every frame made from it by filtering, sorting or selecting know
    the run's folder and plan, so that a report can show the images of sources and models that
    were passed as objects.
    """

    folder: ClassVar[Path]
    plan: ClassVar[Plan]

    def __repr__(self) -> str:
        """Say whose table it is and how much it holds; of a frame made from it that no longer has
        these columns, whose it was.
        """
        head = f"the table of {self.folder}"
        if not {"model", "shift", "sample_id", "output"} <= set(self.collect_schema().names()):
            return f"a frame made from {head}; .collect() gives its rows"
        facts = self.select(
            pl.col("sample_id").n_unique().alias("samples"),
            pl.col("model").unique().sort().implode().alias("models"),
            pl.col("shift").unique().sort().implode().alias("shifts"),
            pl.len().alias("rows"),
        )
        held = facts.collect(engine="streaming").row(0, named=True)
        named = [
            f"{len(held[kind])} {kind}: {', '.join(map(str, held[kind]))}" for kind in ("models", "shifts")
        ]
        lines = [f"{head}: {held['rows']} rows of {held['samples']} samples", *named, HINT]
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    @staticmethod
    def of(folder: Path, plan: Plan) -> RunTable:
        known: Any = type("RunTable", (RunTable,), {"folder": folder, "plan": plan})
        table: RunTable = known._from_pyldf(read(folder)._ldf)
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
    batch: int = BATCH,
    keep_features: bool = False,
    out: str | Path | None = None,
    engine: str | Engine = "local",
    workers: int | None = None,
    bar: Bar | None = None,
) -> pl.LazyFrame:
    """Evaluate a suite and return its table, a polars LazyFrame that knows its folder (``table.folder``).

    What is finished in the folder already is not done again. None, and an empty sequence, mean: as
    the suite has it.

    - ``suite``: a name (``sorites list suites``), the path of a TOML file, or a ``Suite``;
    - ``source``: the images, ``"folder:PATH"``, or a ``Source`` of your own;
    - ``OOD``: further sources whose images no model can know, ``{"far:textures": "folder:PATH"}``;
    - ``in-distribution``: further sources with labels of the suite, by name;
    - ``models``: specs, torch modules, functions or models; a mapping names them for the table,
      ``{"v2": net}``;
    - ``shifts``: names of shifts; ``levels``: their published levels by number; ``severities``:
      places on the dial of one shift;
    - ``options``: options of the shifts, ``{"padding": "reflect"}``;
    - ``scorers``: how OOD each image is to a model, ``["energy", "knn(k=10)"]``; ``fit``:
      training images for those that
      remember some;
    - ``labels``: a file of class names, a list of them, ``"imagenet"`` or ``"coco"``;
    - ``limit``: so many samples, the first of a fixed shuffled order; ``seed``: other seeds draw other noise;
    - ``refine``: bisect failure severities to this fraction of the top level;
    - ``batch``: how many images a model sees at once, which changes no number;
    - ``keep_features``: keep logits and features, so that ``sorites.score`` can add scorers later;
    - ``out``: the run folder; without one, ``runs/SUITE-ID``;
    - ``engine``, ``workers``: where the work is done, and by how many at once;
    - ``bar``: a function that opens progress bars. Without one they are drawn in a terminal and in
      a notebook.
    """
    others = {**_entries(id_sources, "id"), **_entries(ood, "ood")}
    given = _named(models) if isinstance(models, Mapping) else [_as_given(model) for model in models]
    own = load(suite)
    recipe = (own.model_copy(update={"limit": None}) if isinstance(source, Source) else own).override(
        source=source.name if isinstance(source, Source) else source,
        sources=tuple(entry for entry, _ in others.values()),
        models=tuple(model if isinstance(model, str) else model.name for model in given),
        shifts=shifts,
        levels=levels,
        severities=severities,
        options=options,
        scorers=tuple(scorers),
        fit=None if fit is None else {"source": fit.name if isinstance(fit, Source) else fit},
        labels=labels if labels is None or isinstance(labels, str) else tuple(labels),
        limit=limit,
        seed=seed,
        refine=refine,
    )
    objects = {model.name: model for model in given if isinstance(model, Model)}
    read = {name: obj for name, (_, obj) in others.items() if isinstance(obj, Source)}
    plan = plans.make(recipe, _as_source(source), objects, _as_source(fit), read)
    shown = contextlib.nullcontext(bar) if bar is not None else bars_if_watched()
    with shown as drawn:
        done = execute(
            prepare(plan),
            out,
            batch=batch,
            keep_features=keep_features,
            engine=engine,
            workers=workers,
            bar=drawn,
        )
    for note in refusals(done):
        warnings.warn(note, stacklevel=2)
    return RunTable.of(done, plan)


def _entries(
    named: Mapping[str, str | Source] | None, role: str
) -> dict[str, tuple[dict[str, Any], str | Source]]:
    """Return the entries of further sources in a suite, with the sources themselves, by name."""
    found: dict[str, tuple[dict[str, Any], str | Source]] = {}
    for key, obj in (named or {}).items():
        group, _, name = key.rpartition(":")
        spec = obj.name if isinstance(obj, Source) else obj
        found[name] = ({"spec": spec, "name": name, "role": role, "group": group or None}, obj)
    return found


def _as_source(obj: str | Source | None) -> Source | None:
    return obj if isinstance(obj, Source) else None


def _named(models: Mapping[str, Object]) -> list[str | Model]:
    """Return models under the names that they are given."""
    wrong = next((name for name in models if not name.strip() or "=" in name or ":" in name), None)
    if wrong is not None:
        raise SoritesError(f"models: wanted names that hold no = and no :, such as v2, got {wrong!r}")
    return [f"{name}={obj}" if isinstance(obj, str) else _as_given(obj, name) for name, obj in models.items()]


def _as_given(obj: Object, name: str = "") -> str | Model:
    """Return a spec as it is, and anything else as a model; one of no given name is called as it
    calls itself.
    """
    if isinstance(obj, str):
        return obj
    if isinstance(obj, Model):
        return replace(obj, name=name) if name else obj
    from sorites.models.python import as_model

    return as_model(name or getattr(obj, "__name__", type(obj).__name__), obj)
