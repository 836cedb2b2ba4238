"""What a process that is killed leaves on the disk, at every moment at which a verb changes a file.

A killed process leaves its files as they are; nothing that it would have done later happens. So the state of a
folder just before each change of a file (a rename, a deletion, a flush, a new folder) is what a kill at that
moment leaves. ``moments`` runs a verb once and copies the folder before each change. ``test_kills`` compares
such copies with what real kills leave.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

# The functions of ``os`` through which Sorites changes files.
CHANGES = ("replace", "rename", "unlink", "remove", "rmdir", "fsync", "mkdir", "ftruncate")


@contextlib.contextmanager
def before_each_change(act: Callable[[], None]) -> Iterator[None]:
    """Call a function before each change of a file by this process; one change at a time."""
    lock, busy = threading.RLock(), threading.local()

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **options: Any) -> Any:
            if getattr(busy, "acting", False):
                return change(*args, **options)
            with lock:
                busy.acting = True
                try:
                    act()
                finally:
                    busy.acting = False
                return change(*args, **options)

        return changed

    with contextlib.ExitStack() as stack:
        for name in CHANGES:
            stack.enter_context(mock.patch.object(os, name, watched(getattr(os, name))))
        yield


def moments(verb: Callable[[], object], folder: Path, into: Path) -> list[Path]:
    """Run a verb, and return copies of the folder as it was before each change; equal copies are left out."""
    copies: list[Path] = []
    last: list[dict[str, bytes]] = []

    def copy() -> None:
        state = files(folder)
        if last and last[0] == state:
            return
        last[:] = [state]
        target = into / f"{len(copies):04d}"
        for name, data in state.items():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            stat = (folder / name).stat()
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        target.mkdir(parents=True, exist_ok=True)
        copies.append(target)

    with before_each_change(copy):
        verb()
    return copies


def kill_at(number: int, verb: Callable[[], object]) -> None:
    """Run a verb and kill this process before its change of that number, counted from 0."""
    count = iter(range(number, -1, -1))

    def step() -> None:
        if next(count) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with before_each_change(step):
        verb()


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files of a folder by path, without locks."""
    found = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another thread has just renamed it
            if path.is_file() and not path.name.endswith(".lock"):
                found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def put_back(copy: Path, folder: Path) -> None:
    """Replace a folder by a copy, with the times of its files."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(copy, folder)


def chosen(copies: list[Path], most: int) -> list[Path]:
    """Return evenly spread copies, with the first and the last."""
    if len(copies) <= most:
        return copies
    return [copies[round(i * (len(copies) - 1) / (most - 1))] for i in range(most)]
