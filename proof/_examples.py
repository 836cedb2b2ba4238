"""Types the examples of ``sorites ask`` as a user would, and keeps what they print."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sorites.apps.asking import Question

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "questions"
PATIENCE = 1800.0


@dataclass(frozen=True)
class Typed:
    """A command with what it answered.

    Attributes:
        line: The command.
        code: Its exit code; that of ``sorites view``, which runs until Ctrl-C, is 0 if its page was served.
        out: What it printed.
        err: Its notices and progress.
        seconds: Wall time.
        cpu: CPU seconds of all its processes.
    """

    line: str
    code: int
    out: str
    err: str
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Answer:
    """What the example of a question answered, in a folder of its own."""

    name: str
    folder: Path
    date: str
    typed: tuple[Typed, ...]

    @property
    def text(self) -> str:
        """What the last command printed."""
        return self.typed[-1].out

    @property
    def minutes(self) -> float:
        """Minutes that the example takes alone on the machine, at most.

        On a busy machine wall time is longer than that; CPU time, which two cores share, never is shorter.
        """
        return sum(min(one.seconds, one.cpu) for one in self.typed) / 60

    def file(self, name: str) -> Path:
        return self.folder / name


def typed(question: Question, out: Path = OUT) -> Answer:
    """Type the example of a question in a new folder, and keep the answer beside it."""
    folder = out / question.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in question.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    lines = [_typed(line, folder) for line in question.example]
    answer = Answer(question.name, folder, time.strftime("%Y-%m-%d"), tuple(lines))
    kept = {"name": answer.name, "date": answer.date, "typed": [asdict(line) for line in lines]}
    (folder / "answer.json").write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return answer


def kept(name: str, out: Path = OUT) -> Answer:
    """Read the answer that was kept last."""
    folder = out / name
    found = json.loads((folder / "answer.json").read_text(encoding="utf-8"))
    return Answer(name, folder, found["date"], tuple(Typed(**line) for line in found["typed"]))


def _typed(line: str, folder: Path) -> Typed:
    start = time.monotonic()
    if shlex.split(line)[:2] == ["sorites", "view"]:
        with served(line, folder) as address:
            page = urllib.request.urlopen(address, timeout=60).read()
        said = (folder / "served.txt").read_text(encoding="utf-8")
        seconds = time.monotonic() - start
        return Typed(line, 0 if b"<html" in page else 1, said, "", seconds, seconds)
    with (folder / "out.txt").open("w+b") as out, (folder / "err.txt").open("w+b") as err:
        child = subprocess.Popen(_command(line), cwd=folder, env=_environment(), stdout=out, stderr=err)
        code, cpu = _waited(child)
    said, noted = ((folder / name).read_text(encoding="utf-8") for name in ("out.txt", "err.txt"))
    return Typed(line, code, said, noted, time.monotonic() - start, cpu)


def _waited(child: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a process; return its exit code and the CPU seconds that it and its children took."""
    end = time.monotonic() + PATIENCE
    while True:
        pid, status, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, used.ru_utime + used.ru_stime
        if time.monotonic() > end:
            child.kill()
        time.sleep(0.2)


def _command(line: str) -> list[str]:
    first, *words = shlex.split(line)
    return [sys.executable, *(["-m", "sorites"] if first == "sorites" else []), *words]


def _environment() -> dict[str, str]:
    """Return the environment of a user with a terminal of 100 columns and this copy of Sorites."""
    return os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT / "src")}


@contextlib.contextmanager
def served(line: str, folder: Path) -> Iterator[str]:
    """Run a command that serves a page; yield its address, and press Ctrl-C in the end."""
    said = folder / "served.txt"
    with said.open("w", encoding="utf-8") as log:
        command = [*_command(line), "--no-open", "--port", "0"]
        server = subprocess.Popen(command, cwd=folder, env=_environment(), stdout=log, stderr=log)
    try:
        yield _address(server, said)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def _address(server: subprocess.Popen[bytes], said: Path) -> str:
    end = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < end:
        found = re.search(r"http://\S+/\n", said.read_text(encoding="utf-8"))
        if found is not None:
            return found[0].strip()
        time.sleep(0.5)
    raise RuntimeError(f"no page was served: {said.read_text(encoding='utf-8')}")
