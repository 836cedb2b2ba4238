"""A view is the input of a page: the runs as they are given, and all of them as one table."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from sorites.analysis.features import Features, Vectors
from sorites.core import CLEAN, SHIFTS, ImageU8, Metric, SettingValue, Shift, named_spec
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, class_name
from sorites.evaluation.combine import distinct_names, renamed, together
from sorites.evaluation.explanations import Explanations
from sorites.evaluation.unfinished import Unfinished

UNTOUCHED = pl.col("shift") == CLEAN
Remake = Callable[[str, str, SettingValue], ImageU8]


@dataclass(frozen=True)
class RunView:
    """One run: its table, the content of its ``run.json`` (empty for a bare table), and a way to
    make its images again.
    """

    table: pl.LazyFrame
    name: str
    info: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None
    image: Remake | None = None
    """Takes (sample_id, shift, severity or params) and returns the image as the model saw it; may
    raise SoritesError.
    """
    features: Features | None = None
    """Takes (model, image ids) and returns the features that the run kept of them; None where it
    kept none.
    """
    records: Mapping[str, Any] = field(default_factory=dict)
    """The records of how facts of the run were made, by name: the content of ``facts/*.json``."""
    unfinished: Unfinished | None = None
    """The parts of the run that are missing; None where nothing is."""
    explanations: Explanations | None = None
    """Images that flipped, with where the models looked; None where nothing was explained."""
    aside: pl.Series | None = None
    """The ids of the images that a filter set aside; None where there are none."""

    @property
    def suite(self) -> Mapping[str, Any]:
        """The suite as it stands in ``run.json``; empty for a bare table."""
        return self.info.get("suite") or {}


@dataclass(frozen=True)
class View:
    """All runs of a page as one table, in which an image that several runs share is counted once."""

    runs: tuple[RunView, ...]
    table: pl.LazyFrame
    owners: Mapping[str, tuple[RunView, ...]]
    """The runs behind each ``run_id`` of ``table``."""
    notes: tuple[str, ...] = ()
    """Notes that the reader needs before any number: what is missing, what the runs share, what was
    left out.
    """
    comparable: bool = True
    """False where the runs share no sample, so that no order of models follows."""
    _computed: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def compute(self, metric: Metric, where: pl.Expr | None = None, **options: Any) -> pl.DataFrame:
        """Compute a metric on the whole table, or on the rows that ``where`` keeps; the same call
        is computed only once.
        """
        key = f"{metric.__module__}.{metric.__qualname__} {where} {sorted(options.items())}"
        if key not in self._computed:
            self._computed[key] = metric(self.table if where is None else self.table.filter(where), **options)
        return self._computed[key]

    @functools.cached_property
    def models(self) -> tuple[str, ...]:
        """Every model of the table, in the order of the suites."""
        named = [named_spec(spec)[0] for run in self.runs for spec in run.suite.get("models", ())]
        return self._in_order(
            "model", [*named, *(name for run in self.runs for name in run.info.get("models") or ())]
        )

    @functools.cached_property
    def shifts(self) -> tuple[str, ...]:
        """Every shift but clean, in the order of the suites."""
        named = [
            shift["name"] if isinstance(shift, Mapping) else shift
            for run in self.runs
            for shift in run.suite.get("shifts", ())
        ]
        return tuple(name for name in self._in_order("shift", named) if name != CLEAN)

    def _in_order(self, column: str, first: Sequence[str]) -> tuple[str, ...]:
        present = self.table.select(pl.col(column).unique()).collect(engine="streaming")[column].drop_nulls()
        return tuple(name for name in dict.fromkeys([*first, *sorted(present)]) if name in set(present))

    @functools.cached_property
    def own_dials(self) -> Mapping[str, Mapping[str, Any]]:
        """The dials of samples' own that runs turned, by name: their levels, unit, family and version."""
        return {name: dial for run in self.runs for name, dial in (run.info.get("dials") or {}).items()}

    def shift_named(self, name: str) -> Shift | None:
        """Return the registered shift of that name, or None for one that only its source knows."""
        try:
            return None if name in self.own_dials else SHIFTS.get(name)
        except UnknownName:
            return None

    def unit(self, shift: str) -> str:
        """Return the unit of the shift's severity, or an empty string for a captured shift."""
        found = self.shift_named(shift)
        unit = found.unit if found is not None else str(self.own_dials.get(shift, {}).get("unit", ""))
        return re.sub(r"\bum\b", "µm", unit)

    def class_name(self, run_id: str, label: int | None) -> str:
        """Return the name of the class with this label number, where the run has names."""
        return class_name(
            next((run.labels for run in self.owners.get(run_id, ()) if run.labels is not None), None), label
        )

    def image(self, run_id: str, sample_id: str, shift: str, setting: SettingValue) -> ImageU8 | None:
        """Return the image as the model saw it, or None where no run behind ``run_id`` can make it again.

        ``setting`` is a severity or a set of params.
        """
        for run in self.owners.get(run_id, ()):
            if run.image is not None:
                try:
                    return run.image(sample_id, shift, setting)
                except SoritesError:
                    continue
        return None

    def features(self, model: str, images: Collection[str]) -> Vectors:
        """Return the features of these images that any of the runs kept."""
        found = Vectors()
        for run in self.runs:
            if run.features is not None:
                found = {**run.features(model, images), **found}
        return found


def told_apart(runs: Sequence[RunView]) -> list[RunView]:
    """Return the runs with the version beside the name of every model that another run holds in
    another version.
    """
    return [
        _renamed(run, names)
        for run, names in zip(runs, distinct_names([run.info for run in runs]), strict=True)
    ]


def _renamed(run: RunView, names: Mapping[str, str]) -> RunView:
    if not names:
        return run
    kept, former = run.features, {new: old for old, new in names.items()}

    def features(model: str, images: Collection[str]) -> Vectors:
        return Vectors() if kept is None else kept(former.get(model, model), images)

    table = run.table.with_columns(pl.col("model").replace(dict(names)))
    return replace(
        run, table=table, info=renamed(run.info, names), features=None if kept is None else features
    )


def merge(runs: Sequence[RunView], partial: bool = False) -> View:
    """Merge runs into one view, on what they share; runs of the same source, frame, labels and seed
    share their images, which then count once. ``partial`` keeps what only some of them have, and
    what an unfinished run has.
    """
    if not runs:
        raise SoritesError("a report needs at least one run, got none")
    runs = told_apart(runs)
    found = together(runs, partial)
    cut = (
        tuple(replace(run, table=table) for run, table in zip(runs, found.tables, strict=True))
        if found.notes
        else tuple(runs)
    )
    owners: dict[str, tuple[RunView, ...]] = {}
    for run, ids in zip(cut, found.ids, strict=True):
        for id_ in ids:
            owners[id_] = (*owners.get(id_, ()), run)
    return View(cut, found.table, owners, found.notes, found.comparable)


# The detectors of a page.


def box_models(view: View) -> list[str]:
    """List the models of the view that find boxes, in its order."""
    boxes = (
        view.table.filter(pl.col("output") == "boxes")
        .select(pl.col("model").unique())
        .collect(engine="streaming")["model"]
    )
    return [model for model in view.models if model in set(boxes)]
