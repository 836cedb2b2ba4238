"""Fetch files out of a Debian package by ``apt-get``, which checks the signatures, and keep them without installing anything.

``apt-get`` works for any user once its state and cache are folders that the user owns.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sorites.errors import SoritesError
from sorites.files import fetching, sweep_temporaries, write_bytes
from sorites.progress import console
from sorites.sources import _deb as deb

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS = {"update": 300.0, "download": 3600.0}
"""The most seconds that ``apt-get`` may take for each of its verbs."""

INSTEAD = "Use your own pictures: --source folder:PATH"


def fetch(package: str, inside: str, wanted: Mapping[str, str], into: Path, note: str) -> None:
    """Put files of a package into a folder, unless they are there; ``wanted`` maps paths below ``inside`` to SHA-256.

    Every file is checked and appears whole or not at all, so an interrupted fetch goes on where it stopped. Of two processes
    that fetch at once, one waits for the other. ``note`` tells the user what is fetched and under which licence.
    """
    if not missing(wanted, into):
        return
    with fetching(into, sum(SECONDS.values())):
        if missing(wanted, into):
            _fetch(package, inside, wanted, into, note)


def missing(wanted: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the part of ``wanted`` that is absent from ``folder`` or does not have its SHA-256."""
    return {name: sha for name, sha in wanted.items() if not _has_hash(folder / name, sha)}


def _has_hash(path: Path, sha: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha


def _fetch(package: str, inside: str, wanted: Mapping[str, str], into: Path, note: str) -> None:
    if shutil.which("apt-get") is None:
        raise SoritesError(f"{package} is fetched with apt-get, which this machine does not have. {INSTEAD}")
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    screen = console()
    screen.print(f"{note} The pictures stay in {into}", soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen) as progress:
        package_file = _download(package, into / ".apt", progress)
        unpack(package_file, inside, missing(wanted, into), into, progress)
    left = missing(wanted, into)
    if left:
        first = f"{min(left)} and {len(left) - 1} more" if len(left) > 1 else min(left)
        raise SoritesError(
            f"{package_file.name} does not hold the files that Sorites knows: {first} absent or changed. {INSTEAD}"
        )
    shutil.rmtree(into / ".apt", ignore_errors=True)
    sweep_temporaries(into)


def unpack(package_file: Path, inside: str, wanted: Mapping[str, str], into: Path, progress: Progress) -> None:
    """Write the wanted files whose contents have the SHA-256 that is asked for."""
    task = progress.add_task("unpacking", total=package_file.stat().st_size)
    paths = {f"{inside}/{name}": name for name in wanted}
    for path, data in deb.read(package_file, paths, lambda at: progress.update(task, completed=at)):
        name = paths[path]
        if hashlib.sha256(data).hexdigest() == wanted[name]:
            write_bytes(data, into / name)
    progress.update(task, completed=progress.tasks[task].total)


def _download(package: str, work: Path, progress: Progress) -> Path:
    """Download the package into ``work`` and return its file; ``apt-get`` keeps a whole file and resumes a partial one."""
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    task = progress.add_task(f"fetching {package}", total=None)
    _, _, update_errors = _apt(work, "update")  # one repository may fail and another still have the package
    _, listed, _ = _apt(work, "download", "--print-uris", package)
    _, name, size, *_ = [*listed.split(), "", "", "0"]
    progress.update(task, total=int(size) if size.isdigit() and int(size) else None)

    def tick() -> None:
        if name and (work / name).is_file():
            progress.update(task, completed=(work / name).stat().st_size)

    code, _, download_errors = _apt(work, "download", package, tick=tick)
    found = sorted(work.glob(f"{package}_*.deb"), key=lambda path: path.stat().st_mtime)
    if code or not found:
        last = "\n".join(f"{update_errors}\n{download_errors}".strip().splitlines()[-4:])
        raise SoritesError(f"apt-get could not fetch {package}. It said:\n{last}\n{INSTEAD}")
    progress.update(task, completed=found[-1].stat().st_size, total=found[-1].stat().st_size)
    return found[-1]


def _apt(work: Path, verb: str, *words: str, tick: Callable[[], None] = lambda: None) -> tuple[int, str, str]:
    """Run ``apt-get`` to its end and return its exit code, output and errors.

    It is stopped when it takes too long, or when this process is interrupted.
    """
    options = {
        "Dir::State::lists": work / "lists",
        "Dir::Cache": work,
        "Dir::Cache::archives": work / "archives",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",  # apt's sandbox user may not write here when root runs apt; other users have no sandbox
    }
    command = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in options.items()), verb, *words]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        env = {**os.environ, "LC_ALL": "C"}
        process = subprocess.Popen(command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            _wait(process, verb, tick)
        finally:
            process.kill()
            process.wait()
        out.seek(0)
        err.seek(0)
        return process.returncode, out.read(), err.read()


def _wait(process: subprocess.Popen[bytes], verb: str, tick: Callable[[], None]) -> None:
    end = time.monotonic() + SECONDS[verb]
    while process.poll() is None:
        if time.monotonic() > end:
            raise SoritesError(f"apt-get {verb} took more than {SECONDS[verb]:.0f} seconds. Is the network up? {INSTEAD}")
        tick()
        time.sleep(0.1)
