"""What is logged of a run: the curve of each model and shift, with the severity as the step."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from sorites.core import METRICS
from sorites.core.errors import MissingExtra, SoritesError, UnknownName
from sorites.core.table import read
from sorites.evaluation.storage.schema import RunRecord

# Trackers count steps in integers: severities are multiplied by the first of these that makes all of a shift
# whole numbers, or by the last.
SCALES = (1, 10, 100, 1000)
# Resamples of the intervals of mAP, as in the summary of a run.
FEW = 100
KEYS = ("model", "shift", "severity")


@dataclass(frozen=True)
class Point:
    """A number to log.

    Attributes:
        group: Model and shift, such as ``lite0/coma``.
        name: What it is, such as ``accuracy``.
        value: The number.
        step: The step of the tracker.
        severity: The severity, where the step stands for one.
    """

    group: str
    name: str
    value: float
    step: int = 0
    severity: float | None = None

    @property
    def key(self) -> str:
        """The name under which trackers show it."""
        return f"{self.group}/{self.name}"


class Tracker(Protocol):
    """A run of an experiment tracker."""

    where: str
    """Where the results are, for the user."""

    def points(self, points: Sequence[Point]) -> None:
        """Log numbers."""
        ...

    def file(self, path: Path) -> None:
        """Store a copy of a file."""
        ...

    def close(self, failed: bool = False) -> None:
        """End the run of the tracker."""
        ...


# The trackers; each has a module ``NAME_run`` here, and a library of the same name.
TRACKERS = ("mlflow", "wandb", "tensorboard")
# Starts a run of a tracker, given its name and facts about it.
Start = Callable[[str, Mapping[str, str]], Tracker]


def tracker(spec: str) -> Start:
    """Return what starts a run of a tracker.

    Args:
        spec: ``mlflow``, ``wandb`` or ``tensorboard``, perhaps with a place: ``mlflow:URI``,
            ``wandb:PROJECT``, ``tensorboard:DIR``. Without one, the tracker's own settings hold.

    Raises:
        UnknownName: There is no such tracker.
        MissingExtra: It is not installed, or a part of it that its settings need.
    """
    kind, _, place = spec.partition(":")
    if kind not in TRACKERS:
        raise UnknownName("tracker", kind, TRACKERS, f"The trackers are {', '.join(TRACKERS)}.")
    with naming(kind):
        importlib.import_module(kind)
    module = importlib.import_module(f"sorites.evaluation.trackers.{kind}_run")

    def start(name: str, facts: Mapping[str, str]) -> Tracker:
        with naming(kind):
            started: Tracker = module.start(name, facts, place or None)
        return started

    return start


@contextmanager
def naming(kind: str) -> Iterator[None]:
    """Name the tracker in errors of its library, which may be of any kind, and what installs a missing part.

    Args:
        kind: The tracker, which is also the name of the extra.

    Raises:
        MissingExtra: A library is not installed.
        SoritesError: Anything else went wrong.
    """
    try:
        yield
    except SoritesError:
        raise
    except ModuleNotFoundError as error:
        raise MissingExtra(f"logging to {kind}", kind) from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SoritesError(f"{kind} failed: {reason[:500]}") from error


def facts_of(record: RunRecord) -> dict[str, str]:
    """Return what the numbers of a run follow from, as texts."""
    versions = {f"model.{name}": str(version) for name, version in record.models.items()}
    return {"run_id": record.run_id, "suite": record.suite.name, "source": record.suite.source, **versions}


def curves(folder: Path) -> list[Point]:
    """Return the accuracy (for detectors the mAP) of a run by model, shift and severity, with 95 % intervals
    and the number of images, and the severities at which half of the accuracy is lost.

    Shifts without a severity have one number, the mean over their settings.
    """
    table = read(folder)
    has_boxes = table.filter(pl.col("output") == "boxes").select(pl.col("model").unique())
    detectors = has_boxes.collect(engine="streaming")["model"].to_list()
    points: list[Point] = []
    labels = table.filter(~pl.col("model").is_in(detectors))
    if labels.select("model").head(1).collect().height:
        points += _curve(METRICS.get("accuracy"), labels, "accuracy")
        halves = METRICS.get("half_accuracy_severity")(labels, by=["model", "shift"])
        points += [
            Point(_group(row), "half_accuracy_severity", row["value"])
            for row in halves.filter(pl.col("value").is_not_null()).to_dicts()
        ]
    if detectors:
        boxes = table.filter(pl.col("output") == "boxes")
        points += _curve(lambda part, by: METRICS.get("map")(part, by=by, resamples=FEW), boxes, "map")
    return points


def _curve(metric: Callable[..., pl.DataFrame], table: pl.LazyFrame, name: str) -> list[Point]:
    graded = table.filter(pl.col("severity").is_not_null())
    others = table.filter(pl.col("severity").is_null())
    points: list[Point] = []
    if graded.select("model").head(1).collect().height:
        points += _points(metric(graded, by=KEYS).to_dicts(), name)
    if others.select("model").head(1).collect().height:
        points += _points(metric(others, by=KEYS[:2]).to_dicts(), name)
    return points


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Point]:
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["shift"], []).append(row.get("severity") or 0.0)
    scales = {shift: step_scale(severities) for shift, severities in found.items()}
    for row in rows:
        severity = row.get("severity")
        step = round((severity or 0.0) * scales[row["shift"]])
        for column, shown in (("value", name), ("low", f"{name}_low"), ("high", f"{name}_high"), ("n", "n")):
            value = row.get(column)
            if value is not None and math.isfinite(value):
                yield Point(_group(row), shown, float(value), step, severity)


def step_scale(severities: Iterable[float]) -> int:
    """Return by what the severities of a shift are multiplied to be steps.

    Example:
        >>> step_scale([1, 2, 3]), step_scale([0.7, 0.9]), step_scale([1 / 3])
        (1, 10, 1000)
    """
    values = list(severities)
    whole = (s for s in SCALES if all(abs(v * s - round(v * s)) < 1e-6 for v in values))
    return next(whole, SCALES[-1])


def _group(row: Mapping[str, Any]) -> str:
    """Return model and shift, with the characters that all trackers accept."""
    return "/".join(re.sub(r"[^\w.\- ]", "_", str(row[key])) for key in ("model", "shift"))
