"""The web server of the annotation page: the task, assigned images, and incoming clicks.

Every request except for the page itself carries a bearer token in a header that other sites cannot set; there
are no cookies. ``apps.serving`` checks the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sorites.apps.annotation import assign, clicks
from sorites.apps.annotation.images import Album, Entry, Shown
from sorites.apps.annotation.store import Writer, open_labelling, task_of
from sorites.apps.annotation.task import Task
from sorites.apps.serving import (
    LOOPBACK,
    Endpoint,
    ErrorHandler,
    error_reply,
    json_body,
    reply,
    require,
    runner,
    static,
)
from sorites.apps.serving import application as web_application
from sorites.core.errors import BadImage
from sorites.io.readers import parse_integer

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = ("index.html", "page.css", "page.js", "queue.js", "questions.js", "boxes.js", "stage.js")


@dataclass
class Serving:
    """An open labelling with its images and tokens. Reading and writing use separate connections."""

    database: sqlite3.Connection
    writer: Writer
    album: Album
    lease: float = assign.LEASE_SECONDS
    task: Task = field(init=False)
    tokens: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task = task_of(self.database)

    def who(self, token: str) -> int | None:
        """Return the annotator with this token; annotators may be added while the server runs."""
        if token not in self.tokens:
            rows = self.database.execute("SELECT id, token FROM annotators WHERE state != 'imported'")
            self.tokens = {row["token"]: row["id"] for row in rows}
        return self.tokens.get(token)


Answer = Callable[[Serving, int, "Request"], Awaitable["Response"]]


def application(
    path: Path, album: Album, *, lease: float = assign.LEASE_SECONDS, bind: str = LOOPBACK
) -> Starlette:
    """Return the ASGI application of an existing labelling.

    Args:
        path: The labelling.
        album: Its images.
        lease: Seconds after which an unanswered image is assigned to others.
        bind: Address to listen on; on a loopback address only requests to this machine are accepted.

    Raises:
        MissingExtra: The libraries of the server are not installed.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with open_labelling(path) as database, open_labelling(path, write=True) as written:
            writer = Writer(written)
            app.state.serving = Serving(database, writer, album, lease)
            yield
            await writer.finish()

    endpoints: list[Endpoint] = [
        ("GET", "/" if name == "index.html" else f"/{name}", static("sorites.apps.annotation", "page", name))
        for name in PAGE
    ]
    endpoints += [
        ("GET", "/api/task", _protected(_task)),
        ("GET", "/api/work", _protected(_work)),
        ("POST", "/api/clicks", _protected(_clicks)),
        ("GET", "/api/image/{assignment}", _protected(_image)),
    ]
    busy: dict[type[Exception], ErrorHandler] = {
        sqlite3.Error: lambda _, error: error_reply(
            503, f"the labelling cannot be written right now: {error}"
        )
    }
    return web_application(endpoints, bind, "annotate", lifespan, busy)


def _protected(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    return require(_who, 401, lambda request, who: answer(request.app.state.serving, who, request))


def _who(request: Request) -> int | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    serving: Serving = request.app.state.serving
    return serving.who(token.strip()) if scheme.lower() == "bearer" and token.isascii() else None


async def _task(serving: Serving, who: int, request: Request) -> Response:
    task, annotator = serving.task, assign.person(serving.database, who)
    description = task.model_dump(include={"name", "title", "instructions", "pay"})
    description["questions"] = [
        question.model_dump(exclude={"rule", "first", "valid", "attribute"}) for question in task.questions
    ]
    return reply({"task": description, "annotator": annotator.name, "batch": task.batch.size})


async def _work(serving: Serving, who: int, request: Request) -> Response:
    annotator = await serving.writer.do(
        lambda database: assign.refresh(database, serving.task, who, serving.lease)
    )
    rows = assign.items(serving.database, who)
    return reply(
        {"state": annotator.state, "items": [_item(row) for row in rows], **_progress(serving.database, who)}
    )


def _item(row: sqlite3.Row) -> dict[str, Any]:
    """Return an item for the page, without the image's name and whether its answers are known."""
    return {
        "assignment": row["id"],
        "answered": bool(row["answered"]),
        "class": row["shown_class"],
        "shift": row["shift"],
        "place": row["place"],
        "of": row["of"],
    }


def _progress(database: sqlite3.Connection, who: int) -> dict[str, int]:
    """Return how many images the annotator has answered, and how many answers are still needed overall."""
    done = database.execute(
        "SELECT count(*) FROM assignments WHERE annotator = ? AND answered = 1", (who,)
    ).fetchone()[0]
    left = database.execute(
        "SELECT coalesce(sum(wanted - given), 0) FROM images WHERE known = 0 AND given < wanted"
    ).fetchone()[0]
    return {"done": int(done), "left": int(left)}


async def _clicks(serving: Serving, who: int, request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        return error_reply(415, "expected JSON")
    content = await json_body(request)
    received = clicks.parse(serving.task, content.get("clicks"))
    return reply(
        await serving.writer.do(lambda database: clicks.store(database, serving.task, who, received))
    )


async def _image(serving: Serving, who: int, request: Request) -> Response:
    query = (
        "SELECT p.id, p.name, p.width FROM assignments a JOIN images p ON p.id = a.image WHERE a.id = ?"
        " AND a.annotator = ?"
    )
    number = parse_integer(request.path_params["assignment"])
    row = serving.database.execute(query, (number, who)).fetchone()
    if row is None:
        return error_reply(404, "this image is not assigned to you")
    try:
        encoded = await asyncio.to_thread(serving.album.shown, row["name"])
    except BadImage as error:
        why, image = str(error), row["id"]
        await serving.writer.do(lambda database: assign.set_aside(database, image, why))
        return error_reply(410, f"this image cannot be shown: {why}")
    if row["width"] is None:
        await serving.writer.do(lambda database: _keep_size(database, row["id"], encoded))
    size = {"X-Width": str(encoded.width), "X-Height": str(encoded.height)}
    return reply(encoded.data, kind=encoded.kind, headers=size)


def _keep_size(database: sqlite3.Connection, image: int, encoded: Shown) -> None:
    database.execute(
        "UPDATE images SET width = ?, height = ? WHERE id = ?", (encoded.width, encoded.height, image)
    )


def serve(path: Path, entries: Sequence[Entry], listener: socket.socket, bind: str = LOOPBACK) -> None:
    """Serve requests until interrupted. Acknowledged clicks are always on disk.

    Args:
        path: The labelling.
        entries: Its images.
        listener: Socket of ``open_listener``.
        bind: Address of the socket.
    """
    app = application(path, Album(entries), bind=bind)
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn shuts down cleanly, then re-raises Ctrl-C
        runner(app).run(sockets=[listener])
