"""Small threaded HTTP servers: one function answers all requests, on the loopback address by default."""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from sorites.core.errors import SoritesError
from sorites.core.messages import option

LOOPBACK = "127.0.0.1"
# Maximum bytes of a request body.
MAX_BODY = 1 << 20
# Seconds after which an idle connection is closed.
IDLE_S = 60.0
# Content security policy of our pages: nothing is loaded from other hosts.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action"
    " 'none'"
)


@dataclass(frozen=True)
class Request:
    """An HTTP request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def parts(self) -> list[str]:
        """The decoded parts of the path, without empty ones."""
        return [unquote(part) for part in self.path.split("/") if part]

    def json(self) -> dict[str, Any]:
        """Return the body as a JSON object; anything else becomes an empty object."""
        try:
            content = json.loads(self.body or b"{}")
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}


@dataclass(frozen=True)
class Reply:
    """An HTTP response. ``cut`` sends only that many bytes and closes the connection, to simulate failing
    devices.
    """

    status: int = 200
    body: bytes = b""
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None


class Drop(Exception):
    """Close the connection without a response."""


Answer = Callable[[Request], Reply]
NOT_FOUND = Reply(404, b'{"message": "Not found"}')


def in_json(value: Any, status: int = 200) -> Reply:
    """Return a JSON response."""
    return Reply(status, json.dumps(value, ensure_ascii=False).encode())


def page(text: str, kind: str = "text/html; charset=utf-8") -> Reply:
    """Return an HTML page that loads nothing from other hosts and sends no referrer."""
    headers = {
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return Reply(200, text.encode(), kind, {**headers, "X-Content-Type-Options": "nosniff"})


def new_token() -> str:
    """Return a random secret for a link."""
    return secrets.token_urlsafe(18)


def same_token(received: str, token: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(received.encode(), token.encode())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "Sorites", ""
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = IDLE_S

    def _serve(self) -> None:
        try:
            request = self._request()
            if self.server.stopped:  # type: ignore[attr-defined]
                raise Drop
            reply = self.server.answer(request) if request else Reply(413)  # type: ignore[attr-defined]
            self._send(reply)
        except Drop:
            self.close_connection = True
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _serve

    def _request(self) -> Request | None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            return None
        split = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(split.query).items()}
        headers = {key.lower(): value for key, value in self.headers.items()}
        return Request(self.command, split.path, query, headers, self.rfile.read(int(length)))

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for key, value in {"Content-Type": reply.kind, **reply.headers}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: reply.cut])
        self.wfile.flush()
        if reply.cut is not None:
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Log nothing, because paths contain tokens."""


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    answer: Answer
    stopped = False
    tls: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; the TLS handshake happens later in its thread, so that idle clients block
        nobody.
        """
        connection, address = super().get_request()
        if self.tls is None:
            return connection, address
        connection.settimeout(IDLE_S)
        return self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore failed connections."""


class Server:
    """A running server at ``url``."""

    def __init__(
        self, answer: Answer, host: str = LOOPBACK, port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        try:
            self._threads = _Threads((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise SoritesError(
                f"cannot listen on {host}:{port}: {error}. Choose another {option('bind', None)} or"
                f" {option('port', None)}"
            ) from error
        self._threads.answer, self._threads.tls = answer, tls
        self.host, self.port = host, int(self._threads.server_address[1])
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{reachable(host)}:{self.port}"
        threading.Thread(
            target=self._threads.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def stop(self) -> None:
        """Stop listening; open connections finish their current request only."""
        self._threads.stopped = True
        self._threads.shutdown()
        self._threads.server_close()


@contextlib.contextmanager
def serving(
    answer: Answer, host: str = LOOPBACK, port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Server]:
    """Answer requests within the context."""
    server = Server(answer, host, port, tls)
    try:
        yield server
    finally:
        server.stop()


def reachable(host: str) -> str:
    """Return an address under which others reach this machine if it listens on all addresses."""
    if host not in ("", "0.0.0.0"):
        return host
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: connecting a UDP socket only selects the local address.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK
