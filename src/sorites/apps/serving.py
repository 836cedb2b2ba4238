"""Web servers of the apps: one Starlette application factory and one uvicorn runner.

All servers listen on the loopback address by default. Requests are checked before they reach an app: the size
of the body, Host, Origin, and that no other site sends them. Every answer has the same security headers.
Deadlines and limits of connections are in ``connections``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
import secrets
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.messages import option
from sorites.io.paths import reason
from sorites.io.readers import json_object, parse_integer

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = "127.0.0.1"
LOOPBACK_NAMES = (LOOPBACK, "localhost", "::1")
MAX_BODY_BYTES = 1 << 20
# Seconds after which idle connections are closed, and that requests have to finish when a server stops.
IDLE_S, STOP_S = 30, 5
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
MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?")

T = TypeVar("T")
Handler = Callable[["Request"], Awaitable["Response"]]
# Method, path and handler.
Endpoint = tuple[str, str, Handler]
ErrorHandler = Callable[["Request", Exception], "Response"]


def application(
    endpoints: Sequence[Endpoint],
    bind: str = LOOPBACK,
    extra: str = "studio",
    lifespan: Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]] | None = None,
    errors: dict[type[Exception], ErrorHandler] | None = None,
    max_body: int = MAX_BODY_BYTES,
) -> Starlette:
    """Return an ASGI application whose requests are checked and whose answers have security headers.

    Args:
        endpoints: Method, path and handler of each endpoint.
        bind: Address to listen on; on a loopback address only requests to this machine are accepted.
        extra: Extra that installs the libraries.
        lifespan: Context that is open while the application runs.
        errors: Answers to further classes of exceptions.
        max_body: Bytes that the body of a request may have.

    Raises:
        MissingExtra: Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.middleware import Middleware
        from starlette.requests import ClientDisconnect
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("A web server", extra) from error

    answers: dict[Any, Any] = {
        HTTPException: lambda _, error: error_reply(error.status_code, error.detail, error.headers),
        SoritesError: lambda _, error: error_reply(422, str(error)),
        # The client is gone; nobody reads this answer.
        ClientDisconnect: lambda _, error: error_reply(400, "the request is incomplete"),
        **(errors or {}),
    }
    # First, because /{token} would match it.
    endpoints = [("GET", "/favicon.ico", _no_icon), *endpoints]
    app = Starlette(
        routes=[Route(path, handler, methods=[method]) for method, path, handler in endpoints],
        lifespan=lifespan,
        exception_handlers=answers,
        middleware=[Middleware(_Checks, only_loopback=bind in LOOPBACK_NAMES, max_body=max_body)],
    )
    app.router.redirect_slashes = False
    return app


async def _no_icon(request: Request) -> Response:
    """Answer what every browser asks for by itself: there is no icon, which is not an error."""
    return reply(b"", 204)


class _Checks:
    """Middleware that checks requests and adds the security headers to answers."""

    def __init__(self, app: ASGIApp, only_loopback: bool, max_body: int) -> None:
        self._app, self._only_loopback, self._max_body = app, only_loopback, max_body
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.datastructures import Headers
        from starlette.exceptions import HTTPException

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, received = Headers(scope=scope), 0
        unread = "content-length" in headers or "transfer-encoding" in headers

        async def bounded_receive() -> Message:
            nonlocal received, unread
            message = await receive()
            unread = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._max_body:
                raise HTTPException(413, "the request is too large")
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                # Browsers enforce every policy of an answer: a second one would revoke its own.
                own = list(message.get("headers", ()))
                given = {name for name, _ in own}
                message["headers"] = [*own, *(pair for pair in self._headers if pair[0] not in given)]
            elif unread and not message.get("more_body"):
                # A connection that is closed with unread input is reset, and the client loses the answer.
                await send({**message, "more_body": True})
                while (await receive()).get("more_body"):
                    pass
                message = {"type": "http.response.body"}
            await send(message)

        refusal = _refusal(headers, scope["method"], self._only_loopback, self._max_body)
        app = self._app if refusal is None else error_reply(*refusal)
        await app(scope, bounded_receive, send_with_headers)


def _refusal(headers: Headers, method: str, only_loopback: bool, max_body: int) -> tuple[int, str] | None:
    """Return the status and the reason if a request is refused because of its headers."""
    length = parse_integer(headers.get("content-length", "0"))
    if length is None or length > max_body:
        return 413, "the request is too large"
    host = headers.get("host", "").lower()
    match = _HOST.fullmatch(host)
    if match is None:
        return 400, "the Host header is not valid"
    if only_loopback and (match[1] or match[2]) not in LOOPBACK_NAMES:
        return 403, "this server accepts local requests only"
    return (403, "requests from other sites are not allowed") if _is_foreign(headers, method, host) else None


def _is_foreign(headers: Headers, method: str, host: str) -> bool:
    """Return whether another site sends a request; a link on another site may open a page."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        return True
    opens_page = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not opens_page


def require(
    identify: Callable[[Request], T | None],
    status: int,
    answer: Callable[[Request, T], Awaitable[Response]],
) -> Handler:
    """Return a handler that answers only requests with a valid token.

    Args:
        identify: Returns whose token a request has, None if it is not valid.
        status: Status of the answer to requests without a valid token.
        answer: Answers a request of somebody.
    """

    async def handler(request: Request) -> Response:
        who = identify(request)
        if who is None:
            return error_reply(status, "this link is not valid; ask for a new one")
        return await answer(request, who)

    return handler


def new_token() -> str:
    """Return a random secret for a link."""
    return secrets.token_urlsafe(18)


def owner_of(received: str, tokens: dict[str, T]) -> T | None:
    """Return the owner of a token; every token is compared in constant time."""
    owner = None
    for token, name in tokens.items():
        if hmac.compare_digest(received.encode(), token.encode()):
            owner = name
    return owner


def reply(
    content: Any, status: int = 200, kind: str = "application/json", headers: dict[str, str] | None = None
) -> Response:
    """Return an answer: bytes of a media type, or a value in JSON."""
    from starlette.responses import Response

    if not isinstance(content, bytes):
        content = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(content, status, headers, kind)


def error_reply(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error in JSON."""
    return reply({"error": text}, status, headers=headers)


async def json_body(request: Request) -> dict[str, Any]:
    """Return the body of a request, which must be a JSON object; anything else is answered with 400."""
    from starlette.exceptions import HTTPException

    try:
        return json_object((await request.body()).decode())
    except ValueError as error:
        raise HTTPException(400, f"expected JSON: {error}") from error


def static(package: str, *path: str) -> Handler:
    """Return a handler that sends a file of a package."""
    data = files(package).joinpath(*path).read_bytes()
    kind = MEDIA_TYPES[path[-1].rpartition(".")[2]]

    async def answer(request: Request) -> Response:
        return reply(data, kind=kind)

    return answer


def token_page(package: str, identify: Callable[[Request], T | None]) -> list[Endpoint]:
    """Return the endpoints of a page below ``/{token}/``: page.html, page.css and page.js of a package."""

    def guarded(answer: Handler) -> Handler:
        return require(identify, 404, lambda request, _: answer(request))

    async def add_slash(request: Request) -> Response:
        return reply(b"", 308, headers={"Location": f"/{request.path_params['token']}/"})

    names = {"": "page.html", "page.css": "page.css", "page.js": "page.js"}
    pages = [("GET", f"/{{token}}/{path}", guarded(static(package, name))) for path, name in names.items()]
    return [("GET", "/{token}", guarded(add_slash)), *pages]


class Turn(threading.Condition):
    """A condition on which threads and requests wait."""

    def __init__(self) -> None:
        super().__init__()
        self._requests: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def notify_all(self) -> None:
        """Wake all threads and requests; the lock must be held."""
        super().notify_all()
        for loop, event in tuple(self._requests):
            with contextlib.suppress(RuntimeError):  # the server of this request has stopped
                loop.call_soon_threadsafe(event.set)

    async def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait in a request until something is so, or for a number of seconds."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self:
            self._requests.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                while not ready():
                    await waiter[1].wait()
                    waiter[1].clear()
        except TimeoutError:
            pass
        finally:
            with self:
                self._requests.discard(waiter)


def open_listener(bind: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 picks a free one.

    Raises:
        SoritesError: The address cannot be used.
    """
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    # asyncio disables Nagle's algorithm only for sockets that name their protocol. With it, an answer whose
    # head and body are written apart takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise SoritesError(
            f"cannot listen on {bind}, port {port}: {reason(error)}. Use another "
            f"{option('bind', 'HOST')} or {option('port', 'PORT')}"
        ) from error
    return listener


def address(bind: str, listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL under which others reach a listener."""
    host = reachable(bind)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def reachable(bind: str) -> str:
    """Return an address under which others reach this machine if it listens on all addresses."""
    if bind not in ("", "0.0.0.0", "::"):
        return bind
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting a UDP socket only selects the local address.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK


def runner(app: Starlette, tls: ssl.SSLContext | None = None) -> uvicorn.Server:
    """Return the server of an application; ``run(sockets=[...])`` serves until it is interrupted."""
    import uvicorn

    from sorites.apps.connections import Connection, WebServer

    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        log_level="error",  # addresses contain tokens
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    config.load()
    config.ssl = tls
    return WebServer(config)


class Server:
    """A server in a thread of its own, at ``url``."""

    def __init__(
        self, app: Starlette, host: str = LOOPBACK, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        listener = open_listener(host, port)
        self.port = int(listener.getsockname()[1])
        self.url = address(host, listener, "http" if tls is None else "https")
        self._server = runner(app, tls)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and finish the requests in progress."""
        self._server.should_exit = True
        self._thread.join(2 * STOP_S)
