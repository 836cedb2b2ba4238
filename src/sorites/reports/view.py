"""The input of a page: its runs, and all of them merged into one table."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.features import Features, Vectors
from sorites.analysis.filter.filtering import FilterRecord
from sorites.analysis.uncertainty.kept import Logits
from sorites.core import CLEAN, SHIFTS, ImageU8, Metric, SettingValue, Shift
from sorites.core.compositions import LEVEL
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import Labels, class_name
from sorites.evaluation.combine import combine, distinct_names, renamed, renamed_parts, renamed_rows
from sorites.evaluation.integrity.unfinished import Unfinished
from sorites.evaluation.storage.explanations import Explanations
from sorites.evaluation.storage.schema import DialRecord, ModelFit, RunRecord
from sorites.evaluation.storage.variants import base_shift, distinct_conditions, with_conditions, with_names
from sorites.metrics.camera import splits_of
from sorites.suites.suite import Composition, Suite

UNTOUCHED = pl.col("shift") == CLEAN
Remake = Callable[[str, str, SettingValue], ImageU8]


@dataclass(frozen=True)
class RunView:
    """One run: its table, record (None for a bare table), and access to images and features."""

    table: pl.LazyFrame
    name: str
    record: RunRecord | None = None
    labels: Labels | None = None
    image: Remake | None = None
    """Takes (sample_id, shift, severity or params), returns the input image; may raise SoritesError."""
    features: Features | None = None
    """Takes (model, image ids) and returns the stored features; None if there are none."""
    logits: Logits | None = None
    """Takes a model and yields image ids with their kept logits; None if there are none."""
    filtered: FilterRecord | None = None
    """The record of the out-of-class filter; None if no images were filtered."""
    unfinished: Unfinished | None = None
    """The missing parts of the run; None if it is finished."""
    explanations: Explanations | None = None
    """Explanations of flipped images; None if there are none."""
    aside: pl.Series | None = None
    """The ids of filtered images; None if there are none."""
    trained_on: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By model that was trained on samples of the run: how many of how many."""
    fits: Mapping[str, ModelFit] = field(default_factory=dict)
    """The training images on which the scorers of each model were fitted."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """New names of shifts that make other images in another run of the page."""
    folder: Path | None = None
    """The run folder; None for a bare table."""

    @property
    def suite(self) -> Suite | None:
        """The suite of the run; None for a bare table."""
        return self.record.suite if self.record else None


@dataclass(frozen=True)
class View:
    """All runs of a page as one table, in which an image shared by several runs counts once."""

    runs: tuple[RunView, ...]
    table: pl.LazyFrame
    owners: Mapping[str, tuple[RunView, ...]]
    """The runs behind each ``run_id`` of ``table``."""
    notes: tuple[str, ...] = ()
    """Notes shown before any number: what is missing, shared or left out."""
    comparable: bool = True
    """False if the runs share no sample, so that models cannot be ranked."""
    split: str | None = None
    """The only split of the rows of this view; None if the rows were not divided by split."""
    _computed: dict[str, pl.DataFrame] = field(default_factory=dict, repr=False, compare=False)

    def compute(self, metric: Metric, where: pl.Expr | None = None, **options: Any) -> pl.DataFrame:
        """Compute a metric on the table, or on the rows that match ``where``; results are cached."""
        key = f"{metric.__module__}.{metric.__qualname__} {where} {sorted(options.items())}"
        if key not in self._computed:
            self._computed[key] = metric(self.table if where is None else self.table.filter(where), **options)
        return self._computed[key]

    @functools.cached_property
    def camera_splits(self) -> tuple[str, ...]:
        """The splits of the images of camera grids."""
        return tuple(splits_of(self.table))

    def of_split(self, name: str) -> View:
        """Return the view of the rows of one split."""
        rows = self.table.filter(pl.col("split").fill_null("") == pl.lit(name, pl.String))
        return replace(self, table=rows, split=name, _computed={})

    def named(self, name: str) -> str:
        """Return a name of controls of the page that is unique among the views of all splits."""
        return name if self.split is None else f"{name}-{self.split.encode().hex()}"

    @functools.cached_property
    def models(self) -> tuple[str, ...]:
        """All models, in the order of the suites."""
        listed = [name for record in self.records for name in record.suite.model_names]
        return self._in_order(
            "model", [*listed, *(name for record in self.records for name in record.models)]
        )

    @property
    def records(self) -> list[RunRecord]:
        """The records of the runs that have one."""
        return [run.record for run in self.runs if run.record is not None]

    @functools.cached_property
    def shifts(self) -> tuple[str, ...]:
        """All shifts except clean, in the order of the suites."""
        listed = [shift.name for record in self.records for shift in record.suite.dials]
        return tuple(name for name in self._in_order("shift", listed) if name != CLEAN)

    def _in_order(self, column: str, first: Sequence[str]) -> tuple[str, ...]:
        present = self.table.select(pl.col(column).unique()).collect(engine="streaming")[column].drop_nulls()
        return tuple(name for name in dict.fromkeys([*first, *sorted(present)]) if name in set(present))

    @functools.cached_property
    def own_dials(self) -> Mapping[str, DialRecord]:
        """Shifts defined by samples themselves, by name: their levels, unit, family and version."""
        return {name: dial for record in self.records for name, dial in record.dials.items()}

    def shift_named(self, name: str) -> Shift | None:
        """Return the registered shift of that name, or None if only its source defines it."""
        try:
            return None if name in self.own_dials else SHIFTS.get(self.registered.get(name, name))
        except UnknownName:
            return None

    @functools.cached_property
    def registered(self) -> Mapping[str, str]:
        """The registered names of the shifts that are kept apart under several names."""
        return {new: old for run in self.runs for old, new in run.conditions.items()}

    @functools.cached_property
    def cameras(self) -> Mapping[str, Composition]:
        """The named cameras of the suites (several shifts with one severity), by their names on the page."""
        return {
            run.conditions.get(camera.name, camera.name): camera
            for run in self.runs
            if run.record is not None
            for camera in run.record.suite.compose
        }

    def unit(self, shift: str) -> str:
        """Return the unit of a shift's severity, or an empty string for a captured shift."""
        if shift in self.cameras:
            return LEVEL
        dial = self.shift_named(shift) or self.own_dials.get(shift)
        return re.sub(r"\bum\b", "µm", dial.unit if dial is not None else "")

    def class_name(self, run_id: str, label: int | None) -> str:
        """Return the name of a class, or its number if the run has no names."""
        return class_name(
            next((run.labels for run in self.owners.get(run_id, ()) if run.labels is not None), None), label
        )

    def image(self, run_id: str, sample_id: str, shift: str, setting: SettingValue) -> ImageU8 | None:
        """Return the model's input image at a severity or params, or None if no run can recompute it."""
        for run in self.owners.get(run_id, ()):
            if run.image is not None:
                try:
                    return run.image(sample_id, shift, setting)
                except SoritesError:
                    continue
        return None

    def features(self, model: str, images: Collection[str]) -> Vectors:
        """Return the stored features of these images from any of the runs."""
        vectors = Vectors()
        for run in self.runs:
            if run.features is not None:
                vectors = {**run.features(model, images), **vectors}
        return vectors


def with_versions(runs: Sequence[RunView]) -> list[RunView]:
    """Append the version to the names of models that appear in several versions, and what differs to those of
    shifts that make other images in another run.
    """
    records = [run.record for run in runs]
    each = zip(runs, distinct_names(records), distinct_conditions(records), strict=True)
    return [_renamed(run, names, conditions) for run, names, conditions in each]


def _renamed(run: RunView, names: Mapping[str, str], conditions: Mapping[str, str]) -> RunView:
    if not names and not conditions:
        return run
    stored, former = run.features, {new: old for old, new in names.items()}
    make, shifts = run.image, {new: old for old, new in conditions.items()}
    kept = run.logits

    def features(model: str, images: Collection[str]) -> Vectors:
        return Vectors() if stored is None else stored(former.get(model, model), images)

    def image(sample_id: str, shift: str, setting: SettingValue) -> ImageU8:
        if make is None or (shift not in shifts and base_shift(shift) in conditions):
            raise SoritesError(f"this run has no images of {shift}")
        return make(sample_id, shifts.get(shift, shift), setting)

    return replace(
        run,
        table=renamed_rows(run.table, names, conditions),
        record=with_conditions(renamed(run.record, names), conditions),
        features=None if stored is None else features,
        image=None if make is None else image,
        unfinished=renamed_parts(run.unfinished, names, conditions),
        logits=None if kept is None else lambda model: kept(former.get(model, model)),
        fits=with_names(run.fits, names),
        conditions=conditions,
    )


def merge(runs: Sequence[RunView], partial: bool = False) -> View:
    """Merge runs into one view.

    Runs of the same source, frame, labels and seed share their images, which then count once.

    Args:
        runs: The runs of the page.
        partial: Keep what only some runs have and what unfinished runs have, instead of the shared part.

    Raises:
        SoritesError: There is no run.
    """
    if not runs:
        raise SoritesError("A report needs at least one run.")
    runs = with_versions(runs)
    combined = combine(runs, partial)
    shared = (
        tuple(replace(run, table=table) for run, table in zip(runs, combined.tables, strict=True))
        if combined.notes
        else tuple(runs)
    )
    owners: dict[str, tuple[RunView, ...]] = {}
    for run, ids in zip(shared, combined.ids, strict=True):
        for id_ in ids:
            owners[id_] = (*owners.get(id_, ()), run)
    view = View(shared, combined.table, owners, combined.notes, combined.comparable)
    return replace(view, notes=(*view.notes, *_split_notes(view)), _computed={})


def _split_notes(view: View) -> list[str]:
    """Return what to say about several splits of a camera grid on one page."""
    names = [name or "none" for name in view.camera_splits]
    if len(names) < 2:
        return []
    return [
        f"The images of camera settings belong to {len(names)} splits ({', '.join(names)}). Sections on"
        " camera settings show each split on its own; all other numbers pool them."
    ]


def box_models(view: View) -> list[str]:
    """Return the detectors of the view, in its order."""
    boxes = (
        view.table.filter(pl.col("output") == "boxes")
        .select(pl.col("model").unique())
        .collect(engine="streaming")["model"]
    )
    return [model for model in view.models if model in set(boxes)]
