"""Answers per second of the labelling server, beside a bare server that only writes a row, both
over loopback with 50 people.

Both are the same web framework, and both answer after the row is there for good. The bare one
commits each request by itself; ours checks each click and keeps what stands, and writes what comes
at a time in one transaction. The second line is of a folder in memory, where nobody waits for a
disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEOPLE, SECONDS, ROUNDS = 50, 3.0, 3
_Figures = tuple[float, float]
"""Answers per second, and the 99th percentile of the time that one takes in ms."""


def run() -> list[tuple[str, float, str]]:
    """(what, ratio, note): the best of three rounds each, in turns."""
    places = {"on disk": None, "in memory": "/dev/shm"}
    return [_compared(name, place) for name, place in places.items() if place is None or Path(place).is_dir()]


def _compared(name: str, place: str | None) -> tuple[str, float, str]:
    ours, bare = [], []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for number in range(ROUNDS):
            ours.append(_ours(Path(folder) / f"ours{number}.sqlite"))
            bare.append(_bare(Path(folder) / f"bare{number}.sqlite"))
    mine, theirs = max(ours), max(bare)
    note = (
        f"{mine[0]:.0f} answers/s, p99 {mine[1]:.0f} ms; bare {theirs[0]:.0f} answers/s, p99"
        f" {theirs[1]:.0f} ms"
    )
    return f"answers/s {name}, 50 people, over a server that only writes", mine[0] / theirs[0], note


def _ours(path: Path) -> _Figures:
    from sorites.apps.annotation.begin import add_annotators as add_people
    from sorites.apps.annotation.begin import begin
    from sorites.apps.annotation.images import Album, Entry
    from sorites.apps.annotation.server import application
    from sorites.apps.annotation.task import load
    from sorites.apps.serving import Server

    entries = [Entry(f"{i}.png", f"{i}.png", lambda: None) for i in range(2000)]  # type: ignore[arg-type, return-value]
    begin(path, load("in_class")[1], entries, "source bench")
    tokens = [token for _, token, _ in add_people(path, [f"person {i}" for i in range(PEOPLE)])]
    server = Server(application(path, Album(entries)))
    try:
        return asyncio.run(_everybody(server.port, tokens))
    finally:
        server.stop()


def _bare(path: Path) -> _Figures:
    """A server that parses a click and writes one row of it."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE clicks (id TEXT PRIMARY KEY, value TEXT)")

    async def click(request: Request) -> Response:
        one = json.loads(await request.body())["clicks"][0]
        database.execute("INSERT INTO clicks VALUES (?, ?)", (one["id"], json.dumps(one["value"])))
        return Response(b"{}", media_type="application/json")

    async def work(request: Request) -> Response:
        return Response(b'{"items": [{"assignment": 1}]}', media_type="application/json")

    with _served(
        Starlette(routes=[Route("/api/clicks", click, methods=["POST"]), Route("/api/work", work)])
    ) as port:
        figures = asyncio.run(_everybody(port, [str(i) for i in range(PEOPLE)]))
    database.close()
    return figures


@contextlib.contextmanager
def _served(app: Any) -> Iterator[int]:
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as made:
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, ws="none", loop="asyncio")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [made]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield made.getsockname()[1]
        server.should_exit = True
        thread.join(timeout=30)


async def _everybody(port: int, tokens: list[str]) -> _Figures:
    taken: list[float] = []
    start = time.perf_counter()
    await asyncio.gather(*(_person(port, token, start + SECONDS, taken) for token in tokens))
    taken.sort()
    return len(taken) / (time.perf_counter() - start), taken[int(0.99 * len(taken))] * 1e3


async def _person(port: int, token: str, end: float, taken: list[float]) -> None:
    """One person, who answers one image after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    writer.write(f"GET /api/work HTTP/1.1\r\n{head}\r\n".encode())
    items = [item["assignment"] for item in (await _answer(reader))["items"]]
    number = 0
    while time.perf_counter() < end:
        number += 1
        click = {"id": f"{token}-{number:09d}", "assignment": items[number % len(items)], "action": "answer"}
        body = json.dumps({"clicks": [{**click, "value": {"class": "class"}, "seconds": 1.0}]}).encode()
        start = time.perf_counter()
        writer.write(
            f"POST /api/clicks HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = await _answer(reader)
        taken.append(time.perf_counter() - start)
        assert not answer.get("refused"), answer
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> Any:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert b" 200 " in head, head
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    return json.loads(await reader.readexactly(length))
