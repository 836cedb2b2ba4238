"""Serve a labelling until it is stopped: on this machine alone, unless another address is named."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from sorites.annotation.pictures import Album, Entry
from sorites.annotation.server import LOOPBACK, application
from sorites.errors import MissingExtra, SoritesError
from sorites.reading.places import reason

HERE = "127.0.0.1"


def listening(bind: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; port 0 takes any free one."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((bind, port))
    except OSError as error:
        made.close()
        raise SoritesError(f"cannot listen at {bind}, port {port}: {reason(error)}. Choose another --bind or --port") from error
    return made


def address(bind: str, made: socket.socket) -> str:
    """Return the address that links begin with."""
    host = socket.gethostname() if bind in ("0.0.0.0", "::") else bind
    return f"http://{f'[{host}]' if ':' in host else host}:{made.getsockname()[1]}"


def serve(
    path: Path, entries: Sequence[Entry], made: socket.socket, bind: str = HERE, ready: Callable[[], None] | None = None
) -> None:
    """Answer requests until the process is interrupted; everything that was acknowledged is on the disk at any moment."""
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("sorites annotate serve", "annotate") from error

    app = application(path, Album(entries), only_loopback=bind in LOOPBACK)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, timeout_keep_alive=30, timeout_graceful_shutdown=5,
        limit_concurrency=1000, ws="none", loop="asyncio",
    )  # fmt: skip
    if ready is not None:
        ready()
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn closes in order, and then passes Ctrl-C on
        uvicorn.Server(config).run(sockets=[made])
