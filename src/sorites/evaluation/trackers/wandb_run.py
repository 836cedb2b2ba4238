"""Weights & Biases: a run of the project ``sorites``, with the severity as the axis of each curve."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sorites.evaluation.trackers.base import Point

PROJECT = "sorites"


class WandbRun:
    """A run of Weights & Biases.

    Args:
        library: The library.
        run: Its run.
    """

    def __init__(self, library: Any, run: Any) -> None:
        self.library, self.run = library, run
        self.where = str(run.url or run.dir)
        self._axes: set[str] = set()

    def points(self, points: Sequence[Point]) -> None:
        rows: dict[tuple[str, int], dict[str, float]] = {}
        for point in points:
            row = rows.setdefault((point.group, point.step), {})
            row[point.key] = point.value
            axis = f"{point.group}/{'step' if point.severity is None else 'severity'}"
            row[axis] = point.step if point.severity is None else point.severity
            if axis not in self._axes:
                self._axes.add(axis)
                self.run.define_metric(axis)
                self.run.define_metric(f"{point.group}/*", step_metric=axis)
        for row in rows.values():
            self.run.log(row)

    def file(self, path: Path) -> None:
        stored = self.library.Artifact(f"sorites-{path.stem}", type="sorites")
        stored.add_file(str(path))
        self.run.log_artifact(stored)

    def close(self, failed: bool = False) -> None:
        self.run.finish(exit_code=int(failed))


def start(name: str, facts: Mapping[str, str], place: str | None) -> WandbRun:
    """Start a run in a project; the mode (online, offline) and the folder are settings of the library."""
    library = importlib.import_module("wandb")
    return WandbRun(library, library.init(project=place or PROJECT, name=name, config=dict(facts)))
