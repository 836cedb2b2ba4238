"""The examples of the docs are run: every command and every block of Python, page by page, among
the files that they name.

Commands are typed as they stand, with options added that make them take fewer images or steps
(``shorter.ADDED``). What cannot be run here stands in ``examples.CANNOT`` with the reason.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.apps.annotation.test_clicks import Worker
from tests.docs.examples import CANNOT, Example, examples, named_files
from tests.docs.shorter import ADDED, STANDS_FOR
from tests.docs.worlds import GIVEN, LAID

from sorites import cli
from sorites.apps.annotation.store import open_labelling
from sorites.core import plugins as registries
from sorites.core.registry import Registry

LONG = (pytest.mark.slow, pytest.mark.long)
QUICK = ("plugins.md", "similarity.md")
"""Pages whose examples need no network of a real size, and run with the fast tests."""


def pages() -> list[Any]:
    """Every page with an example that can be run, the long ones marked."""
    names = dict.fromkeys(example.page for example in examples() if example.reason is None)
    return [pytest.param(name, marks=() if name in QUICK else LONG, id=name) for name in names]


def words_of(example: Example) -> list[str]:
    """Split a command as a shell does: comments dropped, patterns of files expanded, placeholders
    replaced.
    """
    line = example.text
    added = next((more for start, more in ADDED.items() if _meant(example.page, line).startswith(start)), "")
    words = shlex.split(_meant(example.page, line), comments=True) + shlex.split(added)
    return [found for word in words[1:] for found in sorted(glob.glob(word)) or [word]]


def _meant(page: str, line: str) -> str:
    for word, meaning in STANDS_FOR.get(page, {}).items():
        line = line.replace(f" {word} ", f" {meaning} ")
    return line


def typed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["sorites", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def served(words: list[str]) -> int:
    """Type a command that serves until Ctrl-C, look at the page, and press that."""
    command = [sys.executable, "-c", "from sorites.cli import main; main()", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    ) as server:
        assert server.stdout is not None
        said = next((line for line in server.stdout if "http://" in line), "")
        seen = looked_at(said[said.index("http://") :].strip()) if said else False
        server.send_signal(signal.SIGINT)
        code = server.wait(timeout=120)
        assert seen, server.stdout.read()
    answered(Path(words[words.index("--out") + 1]))
    return code


def answered(labelling: Path) -> None:
    """Let two people answer every image, as they would on the page."""
    with open_labelling(labelling, write=True) as database:
        for person in (1, 2):
            Worker(database, person).work()


def looked_at(address: str, seconds: float = 120) -> bool:
    """Fetch a page as soon as there is one."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=30) as page:
            return bool(page.status == 200)
        time.sleep(0.1)
    return False


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to type in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def forget_afterwards(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page that registers objects do so, until its test ends."""
    if any("@add_" in example.text for example in examples() if example.page == page):
        for registry in [obj for obj in vars(registries).values() if isinstance(obj, Registry)]:
            registry.names()
            monkeypatch.setattr(registry, "_objects", dict(registry._objects))


@pytest.mark.parametrize("page", pages())
def test_the_examples_of_a_page_run(page: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LAID.get(page, lambda home: None)(home)
    forget_afterwards(page, monkeypatch)
    for name, text in named_files(page).items():
        (home / name).write_text(text)
    names: dict[str, Any] = dict(GIVEN[page](home)) if page in GIVEN else {}
    for example in (example for example in examples() if example.page == page and example.reason is None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if example.kind == "python":
                exec(compile(example.text, page, "exec"), names)
            else:
                code = _run(words_of(example), monkeypatch)
                assert code == 0 or (code == 1 and "--fail-if" in example.text), f"{page}: {example.text}"


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    return served(words) if "serve" in words else typed(words, monkeypatch)


def test_what_is_not_run_still_stands_in_the_docs() -> None:
    left = {start for start in CANNOT if not any(example.text.startswith(start) for example in examples())}
    assert not left, "these examples are gone from the docs"
