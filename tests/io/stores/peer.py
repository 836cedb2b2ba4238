"""A real S3 server on this machine, and a door in front of it that fails every n-th request or is slow."""

from __future__ import annotations

import http.client
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WAIT = 60.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Start moto's server and yield its port; it is ended by its process id."""
    port = _free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until = time.monotonic() + WAIT
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def door(to: int, every: int = 0, delay: float = 0.0) -> Iterator[int]:
    """Pass requests on to a port: every n-th gets an error of the server instead, and each answer
    may be late.
    """
    count = itertools.count(1)

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            time.sleep(delay)
            if every and next(count) % every == 0:
                self._answer(
                    503, {}, b"<Error><Code>SlowDown</Code><Message>Please reduce your rate</Message></Error>"
                )
                return
            there = http.client.HTTPConnection("127.0.0.1", to, timeout=60)
            there.request(
                self.command,
                self.path,
                body,
                {k: v for k, v in self.headers.items() if k.lower() != "connection"},
            )
            found = there.getresponse()
            data = found.read()
            self._answer(found.status, dict(found.getheaders()), data)
            there.close()

        def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            for key, value in headers.items():
                if key.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(key, value)
            length = headers.get("Content-Length", len(data)) if self.command == "HEAD" else len(data)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def environment(port: int, cache: Path) -> dict[str, str]:
    """Return the environment of a command that finds its store at a port."""
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    where = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "SORITES_CACHE": str(cache),
        "PYTHONWARNINGS": "",
    }
    return {**os.environ, **keys, **where, "AWS_EC2_METADATA_DISABLED": "true"}
