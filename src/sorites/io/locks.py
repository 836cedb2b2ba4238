"""A lock on an object store: an object that only one process may create, renewed while the process works.

The lock is created with a conditional request (``If-None-Match`` on S3 and compatible stores) and read back a
moment later: on a store without such conditions the last of two writers wins and the other one gives up. The
lock names its owner. It is taken over if its process on this machine has ended, or if it was not renewed for
``STALE_SECONDS``.

Limits: the clocks of all machines must agree to within a minute. A lock that is dated further in the future
is watched for ``STALE_SECONDS`` and taken over if nobody renews it. A process that hangs for longer than
``STALE_SECONDS`` finds its lock taken over and stops at the next renewal. Until then both write the same
bytes, because a shard depends only on its task.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import option
from sorites.io.stores import StorePath

# Seconds between two renewals.
RENEW_SECONDS = 15.0
# Seconds without a renewal after which a lock is stale.
STALE_SECONDS = 90.0
# Seconds to wait before a new lock is read back.
SETTLE_SECONDS = 0.5
# Seconds by which the clocks of two machines may differ.
CLOCK_SECONDS = 60.0


@contextlib.contextmanager
def hold(lock: StorePath, folder: StorePath, kind: str) -> Iterator[None]:
    """Hold a lock while the block runs.

    Args:
        lock: The lock object.
        folder: The folder that it protects, for messages.
        kind: Kind of the folder, for messages.

    Raises:
        SoritesError: Another process holds the lock.
    """
    mine = {
        "host": platform.node(),
        "pid": os.getpid(),
        "key": secrets.token_hex(8),
        "started": _start_time(os.getpid()),
    }
    _take(lock, folder, kind, mine)
    ended = threading.Event()
    keeper = threading.Thread(target=_renew, args=(lock, mine, ended), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join(RENEW_SECONDS)
        with contextlib.suppress(OSError):
            if (_read(lock) or {}).get("key") == mine["key"]:
                lock.unlink(missing_ok=True)


def _take(lock: StorePath, folder: StorePath, kind: str, mine: dict[str, Any]) -> None:
    try:
        if not _put_new(lock, mine):
            content = _read(lock) or {}
            # a request that returned an error may still have succeeded
            if content.get("key") != mine["key"]:
                if not (_is_stale(content) or _is_abandoned(lock, content)):
                    raise _locked_error(folder, content)
                lock.unlink(missing_ok=True)
                if not _put_new(lock, mine):
                    raise _locked_error(folder, _read(lock) or {})
        time.sleep(SETTLE_SECONDS)
        content = _read(lock) or {}
    except OSError as error:
        raise SoritesError(f"cannot create the {kind} folder {folder}: {error}") from error
    if content.get("key") != mine["key"]:
        raise _locked_error(folder, content)


def _put_new(lock: StorePath, mine: dict[str, Any]) -> bool:
    try:
        lock.put(_encode(mine), only_new=True)
    except FileExistsError:
        return False
    return True


def _encode(mine: dict[str, Any]) -> bytes:
    return json.dumps({**mine, "time": time.time()}).encode()


def _read(lock: StorePath) -> dict[str, Any] | None:
    try:
        content = json.loads(lock.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _is_stale(content: dict[str, Any]) -> bool:
    """Return whether a lock is stale: its process on this machine has ended, or it was not renewed for
    long.
    """
    if content.get("host") == platform.node() and isinstance(content.get("pid"), int):
        return _start_time(content["pid"]) != content.get("started")
    renewed_at = content.get("time")
    return not isinstance(renewed_at, int | float) or time.time() - renewed_at > STALE_SECONDS


def _is_abandoned(lock: StorePath, content: dict[str, Any]) -> bool:
    """Return whether a lock that is dated in the future is not renewed while it is watched.

    Its date does not tell how old it is, because the clock of its machine is wrong or was set back.
    """
    if content["time"] <= time.time() + CLOCK_SECONDS:
        return False
    text = f"{lock} is dated in the future; watching it for {STALE_SECONDS:.0f} s before it is taken over"
    warnings.warn(Notice(text, code="lock_in_future"), stacklevel=2)
    end = time.monotonic() + STALE_SECONDS
    while time.monotonic() < end:
        time.sleep(min(RENEW_SECONDS, STALE_SECONDS / 4))
        if _read(lock) != content:
            return False
    return True


def _start_time(pid: int) -> str | None:
    """Return the start time of a process on this machine, "there" if it is unknown, or None if the process
    has ended.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return None if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except PermissionError:
        return "there"
    except OSError:
        return None
    return "there"


def _locked_error(folder: StorePath, content: dict[str, Any]) -> SoritesError:
    owner = f" (process {content.get('pid')} on {content.get('host')})" if content else ""
    return SoritesError(
        f"another process is writing to {folder}{owner}; wait for it, or choose another"
        f" {option('out', 'DIR')}."
        f" A stale lock expires {STALE_SECONDS:.0f} s after its last heartbeat."
    )


def _renew(lock: StorePath, mine: dict[str, Any], ended: threading.Event) -> None:
    """Renew the lock until the work ends; if another process took it over, interrupt this one."""
    while not ended.wait(RENEW_SECONDS):
        try:
            content = _read(lock)
            if content and content.get("key") not in (None, mine["key"]):
                _stop(lock, content)
                return
            lock.put(_encode(mine))
        except OSError:  # the next renewal may succeed
            continue


def _stop(lock: StorePath, content: dict[str, Any]) -> None:
    import _thread

    text = f"{lock} was taken over by process {content.get('pid')} on {content.get('host')}; stopping here"
    warnings.warn(Notice(text, code="lock_lost"), stacklevel=2)
    _thread.interrupt_main()
