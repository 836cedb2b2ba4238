"""The runs and models of a workbench: found in folders, opened when they are first looked at."""

from __future__ import annotations

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sorites import metrics
from sorites.analysis.images import wide
from sorites.apps.workbench.query import Query
from sorites.core import CLEAN, MODELS, ImageU8, SettingValue
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.rng import digest
from sorites.core.shard_index import PARQUET, PREDICTIONS
from sorites.core.specs import named_spec, split_spec
from sorites.core.table import read
from sorites.evaluation import fit
from sorites.evaluation import plan as plans
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage.record import read_record
from sorites.evaluation.storage.schema import RunRecord
from sorites.evaluation.worker import Opener
from sorites.io.listed import RUN
from sorites.reports.components.severities import reading, reading_in
from sorites.reports.report import load_views
from sorites.reports.view import RunView
from sorites.suites.suite import load

# Folders that are searched for runs below a given one, and levels down.
MAX_FOLDERS, MAX_DEPTH = 5000, 3
# Queries whose rows are kept for scrolling; columns with a smaller share of distinct texts become categories.
MAX_QUERIES, REPEATED = 4, 0.5
# OOD scores that need no training images, for models that belong to no run.
SCORERS = ("msp", "energy")
# Pages that may be opened from the list of runs: those that Sorites writes, under their usual names.
PAGES = ("report.html", "passport.html", "compare.html", "train.html", "arms.html", "leaderboard.html")


@dataclass(frozen=True)
class Opened:
    """A run as it was at some moment: its images in columns, and access to pixels and classes."""

    state: tuple[int, int]
    images: pl.DataFrame
    view: RunView
    _found: OrderedDict[Query, pl.Series] = field(default_factory=OrderedDict)

    @functools.cached_property
    def clean(self) -> pl.Series:
        """The row of the clean image of each image's sample; null where there is none."""
        keys = [name for name in ("source", "sample_id") if name in self.images.columns]
        rows = self.images.lazy().with_row_index("row")
        first = rows.filter(pl.col("shift") == CLEAN).unique(keys, keep="first")
        joined = rows.select(keys).join(
            first.select(*keys, "row"), on=keys, how="left", nulls_equal=True, maintain_order="left"
        )
        return joined.select("row").collect()["row"]

    def row_of(self, image_id: str) -> int:
        """Return the row of an image, which changes when rows are added to the run.

        Raises:
            SoritesError: The run has no such image.
        """
        row = self.images["image_id"].index_of(image_id)
        if row is None:
            raise SoritesError(f"the run has no image {image_id!r}")
        return row

    def words(self, shift: str, severity: float | None) -> str | None:
        """Return a severity of a shift in words, such as "JPEG quality 18"; None for other images."""
        if severity is None or shift == CLEAN:
            return None
        dial = self.view.record.dials.get(shift) if self.view.record else None
        return (reading(shift) if dial is None else reading_in(dial.unit)).text(severity)

    def rows(self, query: Query) -> pl.Series:
        """Return the indices of the images that match a query, in order; scrolling asks for the same ones
        again, so those of the last queries are kept.

        Raises:
            SoritesError: A column does not exist, or a value does not fit it.
        """
        found = self._found.get(query)
        if found is None:
            found = self._found[query] = query.apply(self.images)
            while len(self._found) > MAX_QUERIES:
                self._found.popitem(last=False)
        return found


def indexed(images: pl.DataFrame) -> pl.DataFrame:
    """Return images with repeated texts as categories, which are compared as numbers and take less memory."""
    repeated = [
        name
        for name, kind in images.schema.items()
        if kind == pl.String and images[name].n_unique() < images.height * REPEATED
    ]
    return images.with_columns(pl.col(repeated).cast(pl.Categorical))


@dataclass
class RunEntry:
    """A run folder."""

    folder: Path
    key: str
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _opened: Opened | None = None
    _plan: Plan | None = None

    @property
    def record(self) -> RunRecord:
        """The record of the run."""
        return read_record(self.folder)

    def opened(self) -> Opened:
        """Return the images of the run; they are read again when the run has new rows."""
        with self._lock:
            state = _state(self.folder)
            if self._opened is None or self._opened.state != state:
                (view,) = load_views(self.folder)
                self._opened = Opened(state, indexed(wide(view.table, view.labels)), view)
            return self._opened

    def plan(self) -> Plan:
        """Return the plan of the run with its models and fitted scorers.

        Raises:
            SoritesError: Its models or images are not available.
        """
        with self._lock:
            if self._plan is None:
                self._plan = fit.ready(Opener(self.folder).open())
            return self._plan

    def image(self, row: int) -> ImageU8:
        """Return the image of a row as the models saw it.

        Raises:
            SoritesError: There is no such row, or its image is not available.
        """
        opened = self.opened()
        if not 0 <= row < opened.images.height:
            raise SoritesError(f"the run has {opened.images.height} images, so no row {row}")
        if opened.view.image is None:
            raise SoritesError("this run has no images: it was imported, or its images were not stored")
        found = opened.images.row(row, named=True)
        setting: SettingValue = found["severity"] or 0.0
        if found["severity"] is None and found["params"]:
            setting = dict(json.loads(found["params"]))
        return opened.view.image(found["sample_id"], found["shift"], setting)

    def pages(self) -> list[str]:
        """Return the names of the pages in the folder."""
        return pages_in(self.folder)

    def summary(self) -> dict[str, Any]:
        """Return what the list of runs shows; a folder that cannot be read has the reason instead."""
        about: dict[str, Any] = {"key": self.key, "folder": str(self.folder), "pages": self.pages()}
        try:
            record = self.record
            suite = record.suite
            about |= {"suite": suite.name, "models": list(record.models), "shifts": list(suite.shift_names)}
            if not any((self.folder / PREDICTIONS).glob(f"*{PARQUET}")):
                return {**about, "error": "no predictions yet"}
            about["rows"] = read(self.folder).select(pl.len()).collect(engine="streaming").item()
            about["changed"] = max(_state(self.folder)) / 1e9
        except SoritesError as error:
            about["error"] = str(error)
        return about

    def curves(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the name of a metric, and its values for every model along every shift with intervals.

        The metric is accuracy, or mAP for a run of detectors.
        """
        opened = self.opened()
        table, by = opened.view.table, ("model", "shift", "severity")
        name, found = "accuracy", metrics.accuracy(table, by=by)
        if not found.height:
            name, found = "map", metrics.map(table, by=by)
        points = found.select(*by, "value", "low", "high", "n").to_dicts()
        return name, [{**point, "words": opened.words(point["shift"], point["severity"])} for point in points]


def pages_in(folder: Path) -> list[str]:
    """Return the names of the pages in a folder."""
    return [name for name in PAGES if _is_inside(folder, name)]


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether a folder has a file of that name, and not a link to one elsewhere."""
    return (folder / name).is_file() and (folder / name).resolve().parent == folder.resolve()


def _state(folder: Path) -> tuple[int, int]:
    """Return what changes when rows or facts are added: times of the folder of rows and of the record."""
    try:
        return (folder / PREDICTIONS).stat().st_mtime_ns, (folder / RUN).stat().st_mtime_ns
    except OSError as error:
        raise SoritesError(f"{folder} is not a run folder: {error.strerror}") from error


class Library:
    """All runs below some folders, and a plan for models that belong to no run.

    Args:
        folders: Run folders, or folders that contain some.
        models: Specs of models to turn shifts with.
        suite: The suite whose source, frame, classes and shifts these models use.
    """

    def __init__(self, folders: Sequence[Path], models: Sequence[str] = (), suite: str = "demo") -> None:
        self._folders, self._suite = tuple(folders), suite
        self.models = tuple(models)
        self._entries: dict[str, RunEntry] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[RunEntry]:
        """Return the runs, found again at each call, so that new ones appear."""
        found = {}
        for folder in self._walked():
            if (folder / RUN).is_file():
                key = _key(folder)
                with self._lock:
                    found[key] = self._entries.setdefault(key, RunEntry(folder, key))
        return list(found.values())

    def pages(self) -> list[dict[str, Any]]:
        """Return the pages in folders that are no runs, as passports and comparisons are."""
        folders = {_key(folder): folder for folder in self._walked() if not (folder / RUN).is_file()}
        return [
            {"key": key, "folder": str(folder), "pages": pages}
            for key, folder in folders.items()
            if (pages := pages_in(folder))
        ]

    def page(self, key: str, name: str) -> Path | None:
        """Return the path of a page in a folder with this key, None if there is none."""
        folders = {_key(folder): folder for folder in self._walked()} if name in PAGES else {}
        return folders[key] / name if key in folders and _is_inside(folders[key], name) else None

    def _walked(self) -> list[Path]:
        return [below for folder in self._folders for below in _walk(folder)]

    def run(self, key: str) -> RunEntry:
        """Return a run by its key.

        Raises:
            SoritesError: There is none.
        """
        if key not in self._entries:
            self.runs()
        try:
            return self._entries[key]
        except KeyError:
            raise SoritesError("there is no such run; it may have been moved") from None

    def plan(self, key: str) -> Plan:
        """Return the plan to turn shifts with: of a run, or of the models for an empty key."""
        return self.run(key).plan() if key else self._of_models()

    @functools.cache  # noqa: B019 (a library lives as long as its server)
    def _of_models(self) -> Plan:
        if not self.models:
            raise SoritesError("no model was given; start the workbench with one, or choose a run")
        suite = load(self._suite).override(models=list(self.models), scorers=SCORERS)
        return plans.make(suite.model_copy(update={"fit": None}))


def _key(folder: Path) -> str:
    return digest(str(folder.resolve()), size=6).hex()


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield a folder and those below it in order of name, but none below a run folder."""
    yield folder
    if depth >= MAX_DEPTH or (folder / RUN).is_file():
        return
    try:
        below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return
    for path in below[:MAX_FOLDERS]:
        yield from _walk(path, depth + 1)


def sorted_out(items: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the folders and the specs of models among arguments of the command.

    A folder that exists is a folder of runs; anything else is the spec of a model.

    Raises:
        SoritesError: An argument is neither a folder nor the spec of a known kind of model.
    """
    folders = [Path(item) for item in items if Path(item).is_dir()]
    models = [item for item in items if not Path(item).is_dir()]
    for item in models:
        try:
            MODELS.get(split_spec(named_spec(item)[1])[0])
        except UnknownName as error:
            raise SoritesError(f"{item!r} is not a folder, and not a model either: {error}") from None
    return folders, models
