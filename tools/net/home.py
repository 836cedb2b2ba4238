"""Where the net works: an empty folder for each task, a cache in which nothing is learnt yet, and
commands typed in it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import platformdirs

from tools.net.hashes import Entry
from tools.net.renames import words_now

FETCHED = ("backgrounds", "cifar", "stamps", "picodet")
"""Parts of the cache that are downloads.

The others are learnt or exported by the code under test, and so are made anew.
"""


@dataclass(frozen=True)
class Task:
    """Some hashes that are made together; ``names`` are what their names start with."""

    names: tuple[str, ...]
    make: Callable[[], Iterator[Entry]]


def make_cache(folder: Path) -> None:
    """A cache for this process and those it starts: downloads are shared with the user's, all else
    is empty.
    """
    users = Path(os.environ.get("SORITES_CACHE") or platformdirs.user_cache_path("sorites"))
    folder.mkdir()
    for part in FETCHED:
        (users / part).mkdir(parents=True, exist_ok=True)
        (folder / part).symlink_to((users / part).resolve(), target_is_directory=True)
    os.environ["SORITES_CACHE"] = str(folder)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder to stand in, so that every path is short, relative and the same each time;
    gone afterwards.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def tried(*words: object) -> tuple[int, str, str]:
    """A command's exit code, what it prints and what it complains of."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    line = ["sorites", *words_now([*map(str, words)])]
    with (
        mock.patch.object(sys, "argv", line),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            importlib.import_module("sorites.cli").main()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return code, out.getvalue(), err.getvalue()


def typed(*words: object) -> str:
    """What a command prints; one that fails is an error with what it complained of."""
    code, out, err = tried(*words)
    if code:
        raise RuntimeError(f"sorites {' '.join(map(str, words))}: exit code {code}: {err.strip()[-300:]}")
    return out


def typed_apart(*words: object) -> str:
    """The same in a process of its own: for engines, which start others and keep them."""
    code = "import importlib; importlib.import_module('sorites.cli').main()"
    line = [sys.executable, "-W", "ignore", "-c", code, *words_now([*map(str, words)])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(
            f"sorites {' '.join(line[5:])}: exit code {done.returncode}: {done.stderr.strip()[-300:]}"
        )
    return done.stdout


def below(name: str, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Entries with a name before theirs."""
    return ((f"{name}/{part}".rstrip("/"), held) for part, held in entries)


def embedded_suites() -> list[Path]:
    """The suites that come with the package, wherever in it they lie."""
    home = Path(str(importlib.import_module("sorites").__file__)).parent
    return sorted(home.rglob("*.toml"), key=lambda path: path.name)


def changed_suite(name: str, changes: Mapping[str, Any]) -> str:
    """An embedded suite with some values replaced, as a file of its own here; gives its path."""
    [path] = [path for path in embedded_suites() if path.stem == name and path.parent.name == "suites"]
    held = tomllib.loads(path.read_text(encoding="utf-8"))
    for key, value in changes.items():
        held[key] = {**held[key], **value} if isinstance(value, Mapping) else value
    Path(f"{name}.toml").write_text(as_toml(held), encoding="utf-8")
    return f"{name}.toml"


def as_toml(held: Mapping[str, Any]) -> str:
    """Plain values, then a section for each mapping of plain values: all that these suites have."""
    import json

    lines = [f"{key} = {json.dumps(value)}" for key, value in held.items() if not isinstance(value, Mapping)]
    for key, section in held.items():
        if isinstance(section, Mapping):
            lines += [f"[{key}]", *(f"{name} = {json.dumps(value)}" for name, value in section.items())]
    return "\n".join(lines) + "\n"
