"""All tasks of the net, and their work: each in a folder of its own, several processes at a time."""

from __future__ import annotations

import functools
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import sorites
from tools.net import (
    boxes,
    continued,
    encoders,
    generated,
    judged,
    library,
    lists,
    metrics,
    models,
    optics,
    people,
    runs,
    scorers,
    shifts,
    sources,
    studio,
    training,
    verbs,
    words,
)  # fmt: skip
from tools.net.hashes import Entry
from tools.net.home import Task, make_cache, workplace

FIRST = (
    "engines/",
    "runs/is_ood_demo",
    "generated/",
    "optics/t",
    "runs/",
    "people/h",
    "people/r",
    "training/",
    "encoders/",
    "scorers/g",
)
"""What takes longest begins first, in this order."""

MOMENTS = ("modified", "created")
"""Columns and keys with times of the clock."""


@functools.cache
def every() -> tuple[Task, ...]:
    """The tasks, the longest first."""
    parts = (
        shifts, scorers, models, sources, runs, metrics, encoders, optics, verbs, library, words, lists, boxes, training,
        generated, judged, continued, people, studio,
    )  # fmt: skip
    return tuple(sorted((task for part in parts for task in part.tasks()), key=_place))


def _is_of_the_moment(name: str) -> bool:
    """Whether an entry is a time of the clock, which is another one in every run."""
    return name.rpartition("/")[2] in MOMENTS


def _place(task: Task) -> int:
    return next((i for i, prefix in enumerate(FIRST) if task.names[0].startswith(prefix)), len(FIRST))


def computed(only: str, processes: int) -> dict[str, str | list[str]]:
    """Every hash whose name starts with ``only``, in the order of names; what is done is told on stderr."""
    print(f"sorites in {Path(str(sorites.__file__)).parent}", file=sys.stderr)
    found: list[Entry] = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        make_cache(Path(folder, "cache"))
        wanted = [
            any(name.startswith(only) or only.startswith(name) for name in task.names) for task in every()
        ]
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            jobs = [pool.submit(done, i) for i, asked in enumerate(wanted) if asked]
            for n, job in enumerate(as_completed(jobs), start=1):
                name, seconds, made = job.result()
                found += [
                    entry for entry in made if entry[0].startswith(only) and not _is_of_the_moment(entry[0])
                ]
                told = f"{time.monotonic() - start:5.0f} s  {n}/{len(jobs)}  {name} ({seconds:.1f} s)"
                print(told, file=sys.stderr, flush=True)
    return dict(sorted(found))


def done(i: int) -> tuple[str, float, list[Entry]]:
    """One task by its number: its name, its seconds and its hashes.

    What it raises stands among its hashes, so that the others go on.
    """
    warnings.simplefilter("ignore")
    task, start, made = every()[i], time.monotonic(), list[Entry]()
    with workplace():
        try:
            made.extend(task.make())
        except Exception as error:
            made.append((f"{task.names[0]}/(raised)", f"{type(error).__name__}: {error}"))
    return task.names[0], time.monotonic() - start, made
