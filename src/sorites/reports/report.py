"""Run folders and bare tables as the report wants them: with their story, their class names and
their images.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.features import features_of
from sorites.core import ImageU8, Setting, SettingValue
from sorites.core.errors import SoritesError
from sorites.core.table import Table, read, set_aside
from sorites.evaluation.explanations import Explanations, read_changes
from sorites.evaluation.fit import chosen_parameters, fit_notes
from sorites.evaluation.images import captured, turned
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import ATTACK, class_names, plan_of
from sorites.evaluation.run import RunTable
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.record import place_now
from sorites.evaluation.storage.shards import read_record
from sorites.evaluation.unfinished import unfinished
from sorites.io.stores import place
from sorites.reports.view import RunView


def report(
    runs: str | Path | Table | Sequence[str | Path | Table],
    out: str | Path = "report.html",
    partial: bool = False,
) -> Path:
    """One self-contained page from run folders or tables.

    An unfinished run is shown on the samples that every model has at every setting, and several
    runs on what they share; the page says so at its top. ``partial`` shows everything that is
    there.
    """
    from sorites.reports import page

    several = [runs] if isinstance(runs, (str, Path, pl.LazyFrame, pl.DataFrame)) else list(runs)
    views = [view for item in several for view in run_views(item)]
    return page(views, Path(out), partial)


def run_views(item: str | Path | Table) -> list[RunView]:
    """Return the runs of a folder or table as a page wants them."""
    if isinstance(item, RunTable):
        return [_view(item, item.folder, lambda: item.plan)]
    if isinstance(item, (str, Path)):
        return [_view(read(item), place(item), lambda: plan_of(item))]
    table = item.lazy()
    ids = table.select(pl.col("run_id").unique().sort()).collect()["run_id"].to_list()
    return [RunView(table.filter(pl.col("run_id") == run_id), "table", {}, None, None) for run_id in ids]


def _about(folder: Path) -> dict[str, Any]:
    """Return what ``run.json`` says, with the parameters that a search chose for scorers and what
    is to be said of their fit.
    """
    info = read_info(folder)
    if info["suite"].get("reference"):
        reference = place_now(folder, info.get("places", {}), info["suite"]["reference"])
        info = {**info, "suite": {**info["suite"], "reference": reference}}
    more = {"chosen": chosen_parameters(folder), "fit_notes": fit_notes(folder)}
    return {**info, **{key: value for key, value in more.items() if value}}


def _view(table: pl.LazyFrame, folder: Path, plan: Callable[[], Plan]) -> RunView:
    info = _about(folder)
    images = None if {"imported", ATTACK} & info.keys() else _Images(folder, plan)
    kept = features_of(folder), _records(folder), unfinished(folder), _explanations(folder), set_aside(folder)
    return RunView(table, info["suite"]["name"], info, class_names(info), images, *kept)


def _explanations(folder: Path) -> Explanations | None:
    changes = read_changes(folder)
    return Explanations(folder, changes) if changes else None


def _records(folder: Path) -> dict[str, Any]:
    return {path.stem: read_record(path) for path in sorted((folder / "facts").glob("*.json"))}


class _Images:
    """Makes any image of a run again.

    The plan is opened when the first is asked for, once; a first failure is said once.
    """

    def __init__(self, folder: Path, open_plan: Callable[[], Plan]) -> None:
        self._folder, self._open, self._said = folder, functools.cache(self._opened), False
        self._plan = open_plan

    def _opened(self) -> Plan | SoritesError:
        try:
            return self._plan()
        except SoritesError as error:
            return error

    def __call__(self, sample_id: str, shift: str, setting: SettingValue) -> ImageU8:
        plan = self._open()
        try:
            if isinstance(plan, SoritesError):
                raise plan
            return _again(plan, sample_id, shift, setting)
        except SoritesError as error:
            if not self._said:
                self._said = True
                what = f"some images of {self._folder} cannot be shown; the first, {sample_id}"
                warnings.warn(f"{what}: {' '.join(str(error).split())}", stacklevel=2)
            raise


def _again(plan: Plan, sample_id: str, shift: str, setting: SettingValue) -> ImageU8:
    for sample in plan.groups.get(shift, ()):
        if sample.id != sample_id or (shift not in plan.shifts and not _stands_at(sample.setting, setting)):
            continue
        shot = (
            next(turned(plan, sample, shift, [setting])) if shift in plan.shifts else captured(plan, sample)
        )
        if shot.image is not None:
            return shot.image
        raise SoritesError(shot.error or f"no image of {sample_id}")
    raise SoritesError(f"the source no longer holds {sample_id} under {shift}")


def _stands_at(setting: Setting, value: SettingValue) -> bool:
    return dict(setting.params) == dict(value) if isinstance(value, Mapping) else setting.severity == value
