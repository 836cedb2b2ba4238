"""How many cases the fuzz suite runs, and the watch over each of them: an error in words, 5 seconds
of work, 1 GB.

``SORITES_FUZZ=2`` runs all cases of ``CASES``, and 20 ten times as many, for those who want to search longer.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from sorites.core.errors import SoritesError

Case = TypeVar("Case")

SECONDS, BYTES = 5.0, 1 << 30
WAITING = 30.0
"""The most seconds on the clock, which go on while other processes work."""

STUCK = 60.0
"""After so many seconds of work in one case the process ends with a traceback: code that never
returns cannot be interrupted.
"""

CASES = {
    "images": 4500, "folder": 400, "built": 1600, "context": 1000, "webdataset": 2600, "cns_bench": 700, "annotations": 2400,
    "focus": 2200, "databases": 900, "is_ood": 1400, "specs": 2500, "suites": 1600, "lenses": 600, "tables": 1800,
    "predictions": 500, "run folders": 300, "options": 350, "metrics": 450, "coco": 900, "yolo": 700, "nuimages": 700,
}  # fmt: skip
"""Cases per kind of input; the slow tests run half of them, the fast ones a fifteenth."""

LONG, SHORT = 0.5, 1 / 15
shares = pytest.mark.parametrize(
    "share", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long", marks=pytest.mark.slow)]
)


def cases(kind: str, share: float) -> int:
    """Return how many cases of a kind are run."""
    return max(1, round(CASES[kind] * share * float(os.environ.get("SORITES_FUZZ", "1"))))


def fuzz(kind: str, share: float, strategy: SearchStrategy[Case], run: Callable[[Case], object]) -> None:
    """Run the cases of a kind under watch, the same ones every time, and fail unless all of them were run."""
    wanted, ran = cases(kind, share), 0

    @settings(
        max_examples=wanted,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(case: Case) -> None:
        nonlocal ran
        ran += 1
        watched(run, case)

    one()
    assert ran >= wanted, f"only {ran} of {wanted} different cases were found for {kind}"


def watched(run: Callable[[Any], object], case: Any) -> None:
    """Run one case: it may end well or with a ``SoritesError``, within the time and the memory that
    are allowed.
    """
    said = "nothing"
    before, start = _memory(reset=True), time.process_time()
    try:
        with _alarm(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(case)
    except SoritesError as error:
        said = str(error)
    assert said.strip(), "an error without a word"
    took, more = time.process_time() - start, _memory() - before
    assert took < SECONDS, f"{took:.1f} s"
    assert more < BYTES, f"{more / 1e6:.0f} MB"


@contextmanager
def _alarm() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"more than {WAITING:.0f} seconds")

    held = signal.signal(signal.SIGALRM, late)
    # a traceback, then the end of the process
    faulthandler.register(signal.SIGPROF, file=sys.__stderr__, chain=True)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    signal.setitimer(signal.ITIMER_PROF, STUCK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)
        signal.signal(signal.SIGALRM, held)


def _memory(reset: bool = False) -> int:
    """Return the most bytes that this process has held since the last reset; elsewhere than on
    Linux that is not known.
    """
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
