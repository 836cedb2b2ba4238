"""A small labelling and the people who work on it, without a browser."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import scene

from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.images import Entry
from sorites.apps.annotation.task import load

# Longer than anything takes on a busy machine; tests wait for conditions, and seldom this long.
SECONDS = 180.0


@dataclass
class Answer:
    """What a server said."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(address: str, path: str, token: str | None, data: Any = None, **headers: str) -> Answer:
    """Ask a server as the page does, with a person's token."""
    more = {"Authorization": f"Bearer {token}"} if token else {}
    body = data if isinstance(data, bytes) or data is None else json.dumps(data).encode()
    kind = {"Content-Type": "application/json"} if body is not None else {}
    request = urllib.request.Request(f"{address}/{path}", body, {**more, **kind, **headers})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return Answer(answer.status, answer.read(), answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), error.headers)


class Server:
    """``sorites annotate serve`` in a process of its own, which can be killed and started again at
    the same port.
    """

    def __init__(self, *arguments: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.arguments = arguments
        self.links: dict[str, str] = {}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-c",
            "from sorites.cli import main; main()",
            "annotate",
            "serve",
            *self.arguments,
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(self.process.communicate()[1])
            try:
                ask(self.address, "", None)
                break
            except (OSError, urllib.error.URLError):
                time.sleep(0.02)
        if not self.links:
            assert self.process.stdout is not None
            while not self.links or self._more():
                name, _, link = self.process.stdout.readline().strip().partition(": ")
                self.links[name] = link

    def _more(self) -> bool:
        wanted = self.arguments.count("--annotator") or 2
        return len(self.links) < wanted

    def token(self, name: str) -> str:
        return self.links[name].partition("#")[2]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate(timeout=SECONDS)
            self.process = None


@pytest.fixture
def server() -> Iterator[type[Server]]:
    """The kind of server; those that a test starts are ended with it."""
    started: list[Server] = []

    class Kept(Server):
        def __init__(self, *arguments: str) -> None:
            super().__init__(*arguments)
            started.append(self)

    yield Kept
    for one in started:
        one.kill()


def entries(n: int, shown_class: str | None = "cat") -> list[Entry]:
    """Images that are made when they are asked for."""
    return [
        Entry(f"folder/p{i:03d}.png", f"folder/p{i:03d}.png", lambda i=i: scene(i), shown_class)
        for i in range(n)
    ]  # type: ignore[misc]


def labelling(
    path: Path, task: str = "in_class", n: int = 30, known: Mapping[str, str] | None = None, people: int = 2
) -> Path:
    """A labelling of images, the first of them with known answers to the one question of the task."""
    table = None
    if known:
        table = path.with_name("known.csv")
        question = load(task)[0].questions[0].id
        table.write_text(
            f"image,{question}\n" + "".join(f"{name},{value}\n" for name, value in known.items())
        )
    begin(path, load(task)[1], entries(n), "source test", known=table)
    add_annotators(path, [f"annotator {i}" for i in range(1, people + 1)])
    return path
