"""TensorBoard: event files, with copies of files beside them because TensorBoard has no artifacts."""

from __future__ import annotations

import importlib
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sorites.evaluation.trackers.base import Point

FOLDER = "tensorboard"


class TensorboardRun:
    """A folder of TensorBoard.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        writers = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._events: Any = importlib.import_module("tensorboard.compat.proto.event_pb2")
        self._summaries: Any = importlib.import_module("tensorboard.compat.proto.summary_pb2")
        self._writer = writers.EventFileWriter(str(folder))
        self.folder, self.where = folder, str(folder)

    def points(self, points: Sequence[Point]) -> None:
        numbers = {(point.key, point.step): point.value for point in points}
        numbers |= {(f"{p.group}/severity", p.step): p.severity for p in points if p.severity is not None}
        for (key, step), value in numbers.items():
            summary = self._summaries.Summary(
                value=[self._summaries.Summary.Value(tag=key, simple_value=value)]
            )
            self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()

    def file(self, path: Path) -> None:
        shutil.copyfile(path, self.folder / path.name)

    def close(self, failed: bool = False) -> None:
        self._writer.close()


def start(name: str, facts: Mapping[str, str], place: str | None) -> TensorboardRun:
    """Start a folder of events; default: ``tensorboard/NAME``."""
    folder = Path(place) if place else Path(FOLDER) / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sorites.json").write_text(json.dumps(dict(facts), indent=1), encoding="utf-8")
    return TensorboardRun(folder)
