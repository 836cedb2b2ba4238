"""Write the report of run folders or tables (``sorites.report``), and load them as views."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from sorites.analysis.features import features_reader
from sorites.analysis.filter.filtering import read_filter
from sorites.analysis.uncertainty.kept import logits_reader
from sorites.core import ImageU8, Setting, SettingValue
from sorites.core.errors import Notice, SoritesError, tell
from sorites.core.progress import phase
from sorites.core.table import Table, read, rejected_images, repeat_if_merged
from sorites.evaluation.fit import read_fits
from sorites.evaluation.images import captured_shot, shifted_shots
from sorites.evaluation.integrity.unfinished import unfinished
from sorites.evaluation.plan import Plan
from sorites.evaluation.reopen import class_names, plan_of
from sorites.evaluation.run import Run
from sorites.evaluation.storage.explanations import Explanations, read_changes
from sorites.evaluation.storage.overlap import overlap_of
from sorites.evaluation.storage.record import place_now, read_record
from sorites.io.decode import pixel_limit
from sorites.io.stores import StorePath, to_path
from sorites.reports.view import RunView

PAGE = "report.html"


def report(
    runs: str | Path | Table | Sequence[str | Path | Table],
    out: str | Path | None = None,
    partial: bool = False,
    *,
    max_pixels: int | None = None,
) -> Path:
    """Write one self-contained page from run folders or tables.

    An unfinished run is shown on the samples that are complete for every model and setting, and several runs
    on what they share; the page says so at its top.

    Args:
        runs: Run folders, made by "sorites run". Also runs and tables, alone or in a sequence.
        out: The HTML file to write; default: report.html in the run folder, for several runs in the working
            folder.
        partial: Use all rows, including samples that only some models, settings or runs cover.
        max_pixels: Refuse images with more pixels than this; default: 100 million.

    Returns:
        The path of the page.
    """
    from sorites.reports import page

    several = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]

    def write() -> Path:
        with phase("reading the runs"):
            views = [view for item in several for view in load_views(item)]
        for gap in (view.unfinished for view in views if view.unfinished is not None):
            tell(Notice("\n".join(gap.sentences(partial)), code="unfinished_run"))
        return page(views, _page_path(several) if out is None else Path(out), partial)

    with pixel_limit(max_pixels):
        return repeat_if_merged(write)


def _page_path(items: Sequence[str | Path | Table]) -> Path:
    """Return where the page goes by default: into the local folder of a single run, else into the working
    folder.
    """
    folders = [
        item.folder if isinstance(item, Run) else to_path(item)
        for item in items
        if isinstance(item, (str, Path, Run))
    ]
    single = len(folders) == len(items) == 1 and not isinstance(folders[0], StorePath)
    return folders[0] / PAGE if single else Path(PAGE)


def load_views(item: str | Path | Table) -> list[RunView]:
    """Return the runs of a folder or table as inputs of a page."""
    if isinstance(item, Run):
        return [_view(item.table, item.folder, lambda: item.plan)]
    if isinstance(item, (str, Path)):
        return [_view(read(item), to_path(item), lambda: plan_of(item))]
    table = item.lazy()
    ids = table.select(pl.col("run_id").unique().sort()).collect()["run_id"].to_list()
    return [RunView(table.filter(pl.col("run_id") == run_id), "table") for run_id in ids]


def _view(table: pl.LazyFrame, folder: Path, plan: Callable[[], Plan]) -> RunView:
    record = read_record(folder)
    if record.suite.reference:
        reference = place_now(folder, record.places, record.suite.reference)
        record = record.having(suite=record.suite.model_copy(update={"reference": reference}))
    return RunView(
        table,
        record.suite.name,
        record,
        class_names(record),
        None if record.imported or record.attack else _Images(folder, plan),
        features=features_reader(folder),
        logits=logits_reader(folder),
        filtered=read_filter(folder),
        unfinished=unfinished(folder),
        explanations=_explanations(folder),
        aside=rejected_images(folder),
        trained_on=overlap_of(folder),
        fits=read_fits(folder),
        folder=folder,
    )


def _explanations(folder: Path) -> Explanations | None:
    changes = read_changes(folder)
    return Explanations(folder, changes) if changes else None


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
