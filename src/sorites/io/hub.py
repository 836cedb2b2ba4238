"""Hubs of published weights: asked only when a name asks for them, and said in one short message
when they are out of reach.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from sorites.core.errors import SoritesError

# The seconds that a hub may take to answer before it counts as out of reach.
SECONDS = 5.0

# Names of exceptions of several libraries that say so.
AWAY = {
    "OfflineModeIsEnabled",
    "LocalEntryNotFoundError",
    "ConnectError",
    "ConnectTimeout",
    "ConnectionError",
    "URLError",
    "gaierror",
}


@contextlib.contextmanager
def hub() -> Iterator[None]:
    """Fetch inside: without the hub library's own lines, and from its cache alone where the hub
    does not answer.

    The library otherwise tries for half a minute and writes ten lines before it gives up.
    """
    try:
        constants: Any = importlib.import_module("huggingface_hub.constants")
    except ImportError:
        yield
        return
    logger = logging.getLogger("huggingface_hub")
    level, offline = logger.level, constants.HF_HUB_OFFLINE
    logger.setLevel(logging.ERROR)
    constants.HF_HUB_OFFLINE = offline or not is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logger.setLevel(level)


def is_reachable(address: str) -> bool:
    """Return whether a host takes a connection; behind a proxy nobody can say, and it counts as one
    that does.
    """
    if urllib.request.getproxies():
        return True
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), SECONDS):
            return True
    except (OSError, ValueError):
        return False


def not_fetched(what: str, error: Exception, instead: str) -> SoritesError:
    """Return the error that says that something was not to be had from its hub, and what to type instead."""
    first = str(error).strip().split("\n")[0].rstrip(".")
    reason = "the hub is out of reach, and the cache does not hold them" if is_out_of_reach(error) else first
    return SoritesError(f"cannot fetch {what}: {reason}. {instead}")


def is_out_of_reach(error: Exception) -> bool:
    """Return whether an error, or one that led to it, says that a host did not answer."""
    return any(type(one).__name__ in AWAY for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
