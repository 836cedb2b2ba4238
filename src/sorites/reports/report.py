"""Write the report of run folders or tables (``sorites.report``), and load them as views."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from sorites.analysis.features import features_reader
from sorites.core import ImageU8, Setting, SettingValue
from sorites.core.errors import Notice, SoritesError
from sorites.core.table import Table, read, rejected_images
from sorites.evaluation.explanations import Explanations, read_changes
from sorites.evaluation.fit import chosen_parameters, fit_notes
from sorites.evaluation.images import captured_shot, shifted_shots
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import ATTACK, class_names, plan_of
from sorites.evaluation.run import RunTable
from sorites.evaluation.storage.folder import read_info
from sorites.evaluation.storage.record import place_now
from sorites.evaluation.storage.shards import read_record
from sorites.evaluation.unfinished import unfinished
from sorites.io.stores import to_path
from sorites.reports.view import RunView


def report(
    runs: str | Path | Table | Sequence[str | Path | Table],
    out: str | Path = "report.html",
    partial: bool = False,
) -> Path:
    """Write one self-contained page from run folders or tables.

    An unfinished run is shown on the samples that are complete for every model and setting, and several runs
    on what they share; the page says so at its top.

    Args:
        runs: One or more run folders or tables.
        out: The file to write.
        partial: Show everything that is available instead.

    Returns:
        The path of the page.
    """
    from sorites.reports import page

    several = [runs] if isinstance(runs, (str, Path, pl.LazyFrame, pl.DataFrame)) else list(runs)
    views = [view for item in several for view in load_views(item)]
    return page(views, Path(out), partial)


def load_views(item: str | Path | Table) -> list[RunView]:
    """Return the runs of a folder or table as inputs of a page."""
    if isinstance(item, RunTable):
        return [_view(item, item.folder, lambda: item.plan)]
    if isinstance(item, (str, Path)):
        return [_view(read(item), to_path(item), lambda: plan_of(item))]
    table = item.lazy()
    ids = table.select(pl.col("run_id").unique().sort()).collect()["run_id"].to_list()
    return [RunView(table.filter(pl.col("run_id") == run_id), "table", {}, None, None) for run_id in ids]


def _read_info(folder: Path) -> dict[str, Any]:
    """Return ``run.json``, extended by the chosen parameters of scorers and notes about their fit."""
    info = read_info(folder)
    if info["suite"].get("reference"):
        reference = place_now(folder, info.get("places", {}), info["suite"]["reference"])
        info = {**info, "suite": {**info["suite"], "reference": reference}}
    extras = {"chosen": chosen_parameters(folder), "fit_notes": fit_notes(folder)}
    return {**info, **{key: value for key, value in extras.items() if value}}


def _view(table: pl.LazyFrame, folder: Path, plan: Callable[[], Plan]) -> RunView:
    info = _read_info(folder)
    images = None if {"imported", ATTACK} & info.keys() else _Images(folder, plan)
    features, explanations = features_reader(folder), _explanations(folder)
    extras = features, _records(folder), unfinished(folder), explanations, rejected_images(folder)
    return RunView(table, info["suite"]["name"], info, class_names(info), images, *extras)


def _explanations(folder: Path) -> Explanations | None:
    changes = read_changes(folder)
    return Explanations(folder, changes) if changes else None


def _records(folder: Path) -> dict[str, Any]:
    return {path.stem: read_record(path) for path in sorted((folder / "facts").glob("*.json"))}


class _Images:
    """Recompute images of a run; the plan is opened once, on first use, and the first failure is a notice."""

    def __init__(self, folder: Path, open_plan: Callable[[], Plan]) -> None:
        self._folder, self._open_plan, self._warned = folder, open_plan, False
        self._plan = functools.cache(self._plan_or_error)

    def _plan_or_error(self) -> Plan | SoritesError:
        try:
            return self._open_plan()
        except SoritesError as error:
            return error

    def __call__(self, sample_id: str, shift: str, setting: SettingValue) -> ImageU8:
        plan = self._plan()
        try:
            if isinstance(plan, SoritesError):
                raise plan
            return _recompute(plan, sample_id, shift, setting)
        except SoritesError as error:
            if not self._warned:
                self._warned = True
                reason = " ".join(f"{error}".split())
                text = f"Some images of {self._folder} cannot be shown; the first, {sample_id}: {reason}"
                warnings.warn(Notice(text, code="images_unavailable"), stacklevel=2)
            raise


def _recompute(plan: Plan, sample_id: str, shift: str, setting: SettingValue) -> ImageU8:
    for sample in plan.groups.get(shift, ()):
        if sample.id != sample_id or (shift not in plan.shifts and not _matches(sample.setting, setting)):
            continue
        shot = (
            next(shifted_shots(plan, sample, shift, [setting]))
            if shift in plan.shifts
            else captured_shot(plan, sample)
        )
        if shot.image is not None:
            return shot.image
        raise SoritesError(shot.error or f"no image of {sample_id}")
    raise SoritesError(f"The source no longer has {sample_id} under {shift}.")


def _matches(setting: Setting, value: SettingValue) -> bool:
    return dict(setting.params) == dict(value) if isinstance(value, Mapping) else setting.severity == value
