"""The web servers of annotation, the studio and the workbench under slow, malformed and hostile requests, over real sockets."""

from __future__ import annotations

import contextlib
import random
import re
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.conftest import scene

from sorites.apps import connections
from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.images import Album, Entry
from sorites.apps.annotation.server import application
from sorites.apps.annotation.task import load
from sorites.apps.serving import HEADERS, MAX_BODY_BYTES, Server
from sorites.apps.studio.screen.server import Screen, ScreenError
from sorites.apps.workbench.library import Library
from sorites.apps.workbench.server import Workbench, workbench_app
from sorites.apps.workbench.turning import MAX_DROPPED_BYTES

pytest.importorskip("cv2", reason="needs: pip install 'sorites[studio]'")

SERVERS = ("annotate", "studio", "view")


class Target:
    """A server, a path that answers 200 and the headers that this needs."""

    def __init__(
        self, server: Server, path: str, post: str, headers: str, max_body: int = MAX_BODY_BYTES
    ) -> None:
        self.max_body = max_body
        self.server, self.port, self.path, self.post = server, server.port, path, post
        self.headers = f"Host: 127.0.0.1:{server.port}\r\n{headers}"

    def get(self) -> bytes:
        return f"GET {self.path} HTTP/1.1\r\n{self.headers}\r\n".encode()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, raw: bytes, end: bool = False, seconds: float = 10) -> bytes:
        """Send bytes over a connection of their own, and return what comes back until it ends or pauses."""
        with self.connect() as connection:
            connection.sendall(raw)
            if end:
                connection.shutdown(socket.SHUT_WR)
            return _received(connection, seconds)

    def status(self, seconds: float = 10) -> int:
        closing = self.get().replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        return _status(self.ask(closing, seconds=seconds))


def _received(connection: socket.socket, seconds: float = 10) -> bytes:
    """Return one answer: the head, and the body that it announces."""
    connection.settimeout(seconds)
    received = b""
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while part := connection.recv(65536):
            received += part
            head, found, body = received.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            if found and len(body) >= int(length[1] if length else 0):
                break
    return received


def _status(answer: bytes) -> int:
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(match[1]) if match else 0


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    with open_targets(tmp_path_factory.mktemp("served")) as opened:
        yield opened


@contextlib.contextmanager
def open_targets(folder: Path) -> Iterator[dict[str, Target]]:
    """Start the servers at ports of their own, and yield them by name."""
    path = folder / "l.sqlite"
    images = [Entry(f"{i}.png", f"{i}.png", lambda: scene(0)) for i in range(8)]
    begin(path, load("in_class")[1], images, "source test")
    [(_, token, _)] = add_annotators(path, ["ann"])
    annotate, screen = Server(application(path, Album(images))), Screen()
    bearer = f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    workbench = Workbench(Library([folder]), folder / "selections")
    view = Server(workbench_app(workbench))
    yield {
        "annotate": Target(annotate, "/api/task", "/api/clicks", bearer),
        "studio": Target(screen._server, f"/{screen.token}/page.js", f"/{screen.token}/shown", ""),
        "view": Target(
            view, f"/{workbench.token}/api/runs", f"/{workbench.token}/api/select", "", MAX_DROPPED_BYTES
        ),
    }
    annotate.stop()
    view.stop()
    screen.stop()


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest, targets: dict[str, Target]) -> Target:
    return targets[request.param]


@pytest.mark.parametrize(
    "start",
    [
        b"GET / HTTP/1.1\r\nHost: 127",
        pytest.param(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{", marks=pytest.mark.slow),
        pytest.param(b"", marks=pytest.mark.slow),
    ],
)
def test_half_sent_requests_lock_nobody_out(target: Target, start: bytes) -> None:
    with half_open(target, start):
        assert target.status(seconds=60) == 200  # ``proof integrity`` measures the time
        assert len(target.server._server.server_state.connections) <= connections.MAX_PER_CLIENT + 1


@contextlib.contextmanager
def half_open(target: Target, start: bytes, count: int = 1100) -> Iterator[None]:
    """Keep connections open that have sent the start of a request."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4000)), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            # Some are closed by the server while others are opened.
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                stack.enter_context(target.connect()).sendall(start)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_a_request_has_deadlines(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    post = f"POST {target.post} HTTP/1.1\r\n{target.headers}Content-Length: 100\r\n\r\n{{".encode()
    assert _status(target.ask(post)) == 408
    assert _status(target.ask(target.get()[:-3])) == 408
    assert target.ask(b"") == b""
    with target.connect() as connection:  # bytes that trickle in do not extend the deadline
        with contextlib.suppress(ConnectionError):
            for byte in target.get()[:40]:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
        assert _status(_received(connection, 60)) == 408


@pytest.mark.slow
def test_a_connection_is_used_again_after_the_deadline_of_a_request(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 1.5)
    with target.connect() as connection:
        for _ in range(2):
            connection.sendall(target.get())
            assert _status(_received(connection)) == 200
            time.sleep(1.8)
        connection.sendall(2 * target.get())  # pipelined
        received = b""
        while received.count(b"HTTP/1.1 200") < 2:
            received += connection.recv(65536)


@pytest.mark.slow
def test_requests_in_progress_are_not_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_PER_CLIENT", 2)
    screen = Screen()
    next_item = (
        f"GET /{screen.token}/next?after={screen._item.number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    )
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", screen.port)
        polls = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(2)]
        for poll in polls:
            poll.sendall(next_item)
        time.sleep(1.0)
        third = stack.enter_context(socket.create_connection(address, 10))
        assert _status(_received(third)) == 503
        third.close()
        with pytest.raises(ScreenError):  # nobody acknowledges it
            screen.show("black", None, wait=0.2)
        assert [_status(_received(poll)) for poll in polls] == [200, 200]
    screen.stop()


def test_a_client_that_closes_its_side_is_answered(target: Target) -> None:
    assert _status(target.ask(target.get(), end=True)) == 200
    assert _status(target.ask(target.get()[:-3], end=True)) == 400
    post = f"POST {target.post} HTTP/1.1\r\n{target.headers}Content-Length: 100\r\n\r\n{{".encode()
    assert _status(target.ask(post, end=True)) == 400


HOSTS = ["", "[", "]", "[::1", "a b", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:999999", "127.0.0.1@evil.example", "\xe4", "127.0.0.1/x", "'", "[g]", "[::1]x"]  # fmt: skip


@pytest.mark.parametrize("host", HOSTS)
def test_malformed_hosts_are_refused(target: Target, host: str) -> None:
    raw = re.sub(rb"Host: [^\r]*", b"Host: " + host.encode("latin-1"), target.get())
    assert _status(target.ask(raw)) == 400


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:80", "[::2]", "10.0.0.1"])
def test_other_hosts_are_refused_on_the_loopback_address(target: Target, host: str) -> None:
    raw = re.sub(rb"Host: [^\r]*", b"Host: " + host.encode(), target.get())
    assert _status(target.ask(raw)) == 403


@pytest.mark.parametrize(
    "origin", ["http://[", "http://]", "null", "", "//", "http://evil.example", "ftp://127.0.0.1:1", "\xff"]
)
def test_other_and_malformed_origins_are_refused(target: Target, origin: str) -> None:
    raw = target.get().replace(b"\r\n\r\n", b"\r\nOrigin: " + origin.encode("latin-1") + b"\r\n\r\n")
    assert _status(target.ask(raw)) == 403


def test_our_own_page_and_links_on_other_sites_are_let_in(target: Target) -> None:
    for header in (
        f"Origin: http://127.0.0.1:{target.port}\r\nSec-Fetch-Site: same-origin",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
        "Sec-Fetch-Site: none",
    ):
        assert _status(target.ask(target.get().replace(b"\r\n\r\n", f"\r\n{header}\r\n\r\n".encode()))) == 200
    foreign = target.get().replace(b"\r\n\r\n", b"\r\nSec-Fetch-Site: cross-site\r\n\r\n")
    assert _status(target.ask(foreign)) == 403


def test_a_refused_client_that_is_still_sending_reads_its_answer(target: Target) -> None:
    head = f"POST {target.post} HTTP/1.1\r\n{target.headers}Connection: close\r\nContent-Length: {target.max_body + (3 << 20)}\r\n\r\n"
    with target.connect() as connection:
        connection.sendall(head.encode())
        time.sleep(0.2)  # the server has answered by now
        for _ in range((target.max_body >> 16) + 48):
            connection.sendall(b"x" * (1 << 16))
        assert _status(_received(connection)) == 413


def test_every_answer_has_the_security_headers(target: Target) -> None:
    address = f"http://127.0.0.1:{target.port}"
    with httpx.Client(trust_env=False) as client:
        answers = [
            client.get(f"{address}/nothing/here/at/all"),
            client.put(f"{address}{target.path}"),
            client.post(f"{address}{target.post}", content=b"x" * (target.max_body + (1 << 20))),
            client.get(address + target.path, headers={"Host": "evil.example"}),
            client.get(address + target.path, headers={"Host": "["}),
        ]
    assert [answer.status_code for answer in answers] == [404, 405, 413, 403, 400]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert "error" in answer.json()


@pytest.mark.parametrize("number", [2**63, 2**64, -1, "9" * 5000, "²", "1e3", "%00", "%ff", "..%2f1"])
def test_odd_numbers_in_paths_are_not_found(targets: dict[str, Target], number: object) -> None:
    annotate, studio = targets["annotate"], targets["studio"]
    path = httpx.URL(f"http://x/{number}").raw_path.decode()
    for target, place in ((annotate, "/api/image"), (studio, studio.path.replace("page.js", "image"))):
        raw = f"GET {place}{path} HTTP/1.1\r\n{target.headers}\r\n".encode()
        assert _status(target.ask(raw)) == 404


# Mutations of valid requests


def _requests(target: Target) -> list[bytes]:
    body = b'{"clicks": [], "number": 1, "screen": [1, 1], "left": 0, "top": 0, "width": 1, "height": 1}'
    post = (
        f"POST {target.post} HTTP/1.1\r\n{target.headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
    )
    chunked = f"POST {target.post} HTTP/1.1\r\n{target.headers}Transfer-Encoding: chunked\r\n\r\n".encode()
    return [target.get(), post, chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)]


ODD = [b"\x00", b"\xff", b"\r", b"\n", b"%", b"%ff", b"[", b"]", b" ", b"\t", b"..", b"//", b"\xed\xa0\x80", b"9" * 400, b"NaN", b"{", b'"', b"\\ud800", b"HTTP/2", b"-1", b"1e999"]  # fmt: skip


def _mutated(raw: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, kind = chance.randrange(len(raw)), chance.randrange(4)
        piece = chance.choice(ODD) if kind else bytes([chance.randrange(256)])
        length = chance.choice((0, 1, 1, len(piece), 40))
        raw = raw[:at] + piece + raw[at + length :]
    return raw


def _fuzz(target: Target, cases: int, seed: int) -> None:
    chance, answered = random.Random(seed), 0
    for number in range(cases):
        raw = _mutated(chance.choice(_requests(target)), chance)
        answer = target.ask(raw, end=True)
        assert 100 <= _status(answer) < 500, (number, raw, answer)
        answered += 1
    assert answered == cases
    assert target.status() == 200


def test_mutated_requests_are_all_answered_and_none_breaks_the_server(target: Target) -> None:
    _fuzz(target, 300, 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 7))
def test_thousands_of_mutated_requests_are_all_answered(target: Target, seed: int) -> None:
    _fuzz(target, 1000, seed)


def test_nothing_is_printed_for_hostile_requests(target: Target, capfd: pytest.CaptureFixture[str]) -> None:
    for raw in (b"\x16\x03\x01", b"GET /%ff%00 HTTP/1.1\r\nHost: [\r\n\r\n", target.get()[:-3]):
        target.ask(raw, end=True)
    assert target.status() == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_stopped_server_is_gone(tmp_path: Path) -> None:
    screen = Screen()
    assert httpx.get(screen.url).status_code == 200
    with socket.create_connection(("127.0.0.1", screen.port), 5) as half:
        half.sendall(b"GET / HT")
        screen.stop()
    with pytest.raises(httpx.TransportError):
        httpx.get(screen.url)
