"""Access to hubs of published weights: short time-outs, and one short message if a hub cannot be reached."""

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

# Seconds to wait for a connection before a hub counts as unreachable.
CONNECT_TIMEOUT_SECONDS = 5.0

# Exceptions of several libraries that mean a host is unreachable, by class name.
UNREACHABLE_ERRORS = {
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
    """Download inside this context without the hub library's log messages, and only from its cache if the hub
    is unreachable.

    Without this, the library retries for half a minute and logs ten lines before it gives up.
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


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Load inside this context without the network, from files and the hub library's cache only."""
    try:
        constants: Any = importlib.import_module("huggingface_hub.constants")
    except ImportError:
        yield
        return
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def is_reachable(address: str) -> bool:
    """Return whether a host accepts connections; behind a proxy this is assumed."""
    if urllib.request.getproxies():
        return True
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), CONNECT_TIMEOUT_SECONDS):
            return True
    except (OSError, ValueError):
        return False


def download_error(what: str, error: Exception, instead: str) -> SoritesError:
    """Return the error for a failed download.

    Args:
        what: What was requested.
        error: The exception of the library.
        instead: Sentence that says what to do instead.
    """
    first = str(error).strip().split("\n")[0].rstrip(".")
    reason = "the hub is unreachable and the cache does not contain them" if is_unreachable(error) else first
    return SoritesError(f"cannot download {what}: {reason}. {instead}")


def is_unreachable(error: Exception) -> bool:
    """Return whether an error, or one of its causes, means that a host did not answer."""
    return any(type(cause).__name__ in UNREACHABLE_ERRORS for cause in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
