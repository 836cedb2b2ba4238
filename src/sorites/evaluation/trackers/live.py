"""Log while a run works: the accuracy so far, then the curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from sorites.core import METRICS
from sorites.core.errors import Notice, SoritesError, tell
from sorites.core.progress import Bar, Tick
from sorites.core.table import read, repeat_if_merged
from sorites.evaluation.trackers.base import Point, Tracker, curves, tracker

# The bar of a run that is followed, and how often numbers are logged, in percent of it.
FOLLOWED = "evaluating"
EVERY = 5


@dataclass
class Live:
    """Follows the progress bars of a run.

    Attributes:
        spec: The tracker.
        folder: The run folder.
        facts: What its numbers follow from.
    """

    spec: str
    folder: Path
    facts: Mapping[str, str]
    _tracker: Tracker | None = None
    _failed: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Start the run of the tracker, before any work, so that a missing library is found at once."""
        self._tracker = tracker(self.spec)(self.folder.name, self.facts)

    def bar(self, shown: Bar) -> Bar:
        """Return a bar that also logs, while images are evaluated, the share of correct answers so far."""

        def opened(what: str, steps: int) -> Tick:
            tick = shown(what, steps)
            return tick if what != FOLLOWED else self._following(tick, steps)

        return opened

    def _following(self, tick: Tick, steps: int) -> Tick:
        done, logged = 0, 0

        def advance(n: int) -> None:
            nonlocal done, logged
            tick(n)
            done += n
            percent = 100 * done // steps
            if percent >= logged + EVERY and percent < 100:
                logged = percent - percent % EVERY
                self.log(lambda: so_far(self.folder, logged))

        return advance

    def log(self, points: Callable[[], list[Point]]) -> None:
        """Log numbers. A tracker that fails ends the logging and not the run."""
        if self._tracker is None or self._failed:
            return
        found = points()
        try:
            self._tracker.points(found)
        except Exception as error:  # servers of others may fail in any way
            self._failed.append(str(error))
            text = f"{self.spec} failed, and no more is logged: {error}"
            tell(Notice(text, code="tracker_failed", tracker=self.spec))

    def close(self, failed: bool) -> None:
        """End the run of the tracker."""
        if self._tracker is not None:
            self._tracker.close(failed or bool(self._failed))


def so_far(folder: Path, percent: int) -> list[Point]:
    """Return the accuracy of each model over the images that are evaluated, all shifts and severities pooled;
    the step is the percentage of the run.
    """

    def rows() -> list[dict[str, float]]:
        judged = read(folder).filter(pl.col("output") == "label")
        return METRICS.get("accuracy")(judged, by=["model"]).to_dicts()

    try:
        found = repeat_if_merged(rows)
    except SoritesError:  # no rows are written yet
        return []
    return [
        Point(f"so_far/{row['model']}", "accuracy_pooled", row["value"], percent)
        for row in found
        if row["value"] is not None
    ]


@contextmanager
def following(live: Live | None) -> Iterator[None]:
    """Log a run that works in this block, and its curves if it succeeds."""
    if live is None:
        yield
        return
    live.start()
    finished = False
    try:
        yield
        live.log(lambda: curves(live.folder))
        finished = True
    finally:
        live.close(not finished)
