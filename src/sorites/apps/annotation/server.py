"""The web server of the annotation page: the task, assigned images, and incoming clicks.

Every request except for the page itself carries a bearer token in a header that other sites cannot set; there
are no cookies. The content security policy allows only our own scripts and no external resources.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sorites.apps.annotation import assign, clicks
from sorites.apps.annotation.images import Album, Entry, Shown
from sorites.apps.annotation.store import Writer, open_labelling, task_of
from sorites.apps.annotation.task import Task
from sorites.core.errors import BadImage, MissingExtra, SoritesError
from sorites.core.messages import option
from sorites.io.paths import reason
from sorites.io.readers import json_object

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

# Maximum size of a request in bytes.
MAX_REQUEST_BYTES = 1 << 20
PAGE = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    **{
        name: (name, "text/javascript")
        for name in ("page.js", "queue.js", "questions.js", "boxes.js", "stage.js")
    },
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass
class Serving:
    """An open labelling with its images and tokens. Reading and writing use separate connections."""

    database: sqlite3.Connection
    writer: Writer
    album: Album
    lease: float = assign.LEASE_SECONDS
    only_loopback: bool = True
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


def application(
    path: Path, album: Album, *, lease: float = assign.LEASE_SECONDS, only_loopback: bool = True
) -> Starlette:
    """Return the ASGI application of an existing labelling."""
    try:
        from starlette.applications import Starlette
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("The annotation server", "annotate") from error

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        with open_labelling(path) as database, open_labelling(path, write=True) as written:
            writer = Writer(written)
            app.state.serving = Serving(database, writer, album, lease, only_loopback)
            yield
            await writer.finish()

    routes = [Route(f"/{name}", _static(*file)) for name, file in PAGE.items()]
    routes += [
        Route("/api/task", require_token(_task)),
        Route("/api/work", require_token(_work)),
        Route("/api/clicks", require_token(_clicks), methods=["POST"]),
        Route("/api/image/{assignment:int}", require_token(_image)),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    from starlette.responses import Response

    data = files("sorites.apps.annotation").joinpath("page", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(data, media_type=kind, headers=HEADERS)

    return answer


Answer = Callable[["Serving", int, "Request"], Awaitable["Response"]]


def require_token(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler: require a token and our own page as origin, and turn errors into JSON replies."""

    async def guard(request: Request) -> Response:
        serving: Serving = request.app.state.serving
        if refusal := _refusal(request, serving.only_loopback):
            return error_reply(403, refusal)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        who = serving.who(token.strip()) if scheme.lower() == "bearer" and token.isascii() else None
        if who is None:
            return error_reply(401, "this link is not valid; ask for a new one")
        try:
            return await answer(serving, who, request)
        except SoritesError as error:
            return error_reply(422, str(error))
        except sqlite3.Error as error:
            return error_reply(503, f"the labelling cannot be written right now: {error}")

    return guard


def _refusal(request: Request, only_loopback: bool) -> str:
    """Return why a request is refused because of its host or origin, or an empty text."""
    host = request.headers.get("host", "")
    if only_loopback and (urlsplit(f"//{host}").hostname or "") not in LOOPBACK:
        return "this server accepts local requests only"
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "requests from other sites are not allowed"
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "requests from other sites are not allowed"
    return ""


def error_reply(status: int, text: str) -> Response:
    return reply({"error": text}, status)


def reply(content: Any, status: int = 200) -> Response:
    """Return JSON with the security headers."""
    from starlette.responses import Response

    body = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(body.encode(), status, media_type="application/json", headers=HEADERS)


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
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_REQUEST_BYTES:
            return error_reply(413, "the request is too large")
    try:
        content = json_object(bytes(body))
    except ValueError as error:
        return error_reply(400, f"expected JSON: {error}")
    received = content.get("clicks")
    return reply(
        await serving.writer.do(lambda database: clicks.receive(database, serving.task, who, received))
    )


async def _image(serving: Serving, who: int, request: Request) -> Response:
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response

    query = (
        "SELECT p.id, p.name, p.width FROM assignments a JOIN images p ON p.id = a.image WHERE a.id = ?"
        " AND a.annotator = ?"
    )
    row = serving.database.execute(query, (request.path_params["assignment"], who)).fetchone()
    if row is None:
        return error_reply(404, "this image is not assigned to you")
    try:
        encoded = await run_in_threadpool(serving.album.shown, row["name"])
    except BadImage as error:
        why, image = str(error), row["id"]
        await serving.writer.do(lambda database: assign.set_aside(database, image, why))
        return error_reply(410, f"this image cannot be shown: {why}")
    if row["width"] is None:
        await serving.writer.do(lambda database: _keep_size(database, row["id"], encoded))
    size = {"X-Width": str(encoded.width), "X-Height": str(encoded.height)}
    return Response(encoded.data, media_type=encoded.kind, headers={**HEADERS, **size})


def _keep_size(database: sqlite3.Connection, image: int, encoded: Shown) -> None:
    database.execute(
        "UPDATE images SET width = ?, height = ? WHERE id = ?", (encoded.width, encoded.height, image)
    )


# Serving. By default only on this machine.


DEFAULT_HOST = "127.0.0.1"


def open_listener(bind: str, port: int) -> socket.socket:
    """Return a socket bound to an address; port 0 picks a free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
    except OSError as error:
        listener.close()
        raise SoritesError(
            f"cannot listen on {bind}, port {port}: {reason(error)}. Use another "
            f"{option('bind', 'HOST')} or {option('port', 'PORT')}"
        ) from error
    return listener


def address(bind: str, listener: socket.socket) -> str:
    """Return the base URL of links."""
    host = socket.gethostname() if bind in ("0.0.0.0", "::") else bind
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def serve(
    path: Path,
    entries: Sequence[Entry],
    listener: socket.socket,
    bind: str = DEFAULT_HOST,
    ready: Callable[[], None] | None = None,
) -> None:
    """Serve requests until interrupted. Acknowledged clicks are always on disk."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("The annotation server", "annotate") from error

    app = application(path, Album(entries), only_loopback=bind in LOOPBACK)
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        limit_concurrency=1000,
        ws="none",
        loop="asyncio",
    )
    if ready is not None:
        ready()
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn shuts down cleanly, then re-raises Ctrl-C
        uvicorn.Server(config).run(sockets=[listener])
