"""A lock on a store: an object that only one process may put, renewed while it works.

It is put on the condition that none is there (``If-None-Match`` on S3 and its kin), then read back
a moment later: on a store without such conditions the last of two writers wins, and the first one
leaves. It says who holds it. One whose process is gone from this machine, or that was not renewed
for a while, is taken over. Its limits: clocks of machines must agree to within a minute, and a
process that was held up for longer than ``STALE`` finds its lock taken and stops at the next
renewal. What both wrote until then is the same, bit for bit, since a shard follows from its unit
alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from sorites.core.errors import SoritesError
from sorites.io.stores import StorePath

# Seconds between two renewals.
RENEW = 15.0
# Seconds without a renewal after which a lock counts as left behind.
STALE = 90.0
# Seconds after which a new lock is read back.
SETTLE = 0.5


@contextlib.contextmanager
def held(lock: StorePath, folder: StorePath, kind: str) -> Iterator[None]:
    """Hold a lock while the block runs; one that another process holds is refused at once."""
    mine = {
        "host": platform.node(),
        "pid": os.getpid(),
        "key": secrets.token_hex(8),
        "started": _started(os.getpid()),
    }
    _take(lock, folder, kind, mine)
    ended = threading.Event()
    keeper = threading.Thread(target=_renew, args=(lock, mine, ended), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join(RENEW)
        with contextlib.suppress(OSError):
            if (_read(lock) or {}).get("key") == mine["key"]:
                lock.unlink(missing_ok=True)


def _take(lock: StorePath, folder: StorePath, kind: str, mine: dict[str, Any]) -> None:
    try:
        if not _put_new(lock, mine):
            found = _read(lock) or {}
            # a request that was answered with an error may have been done
            if found.get("key") != mine["key"]:
                if not _left_behind(found):
                    raise _refused(folder, found)
                lock.unlink(missing_ok=True)
                if not _put_new(lock, mine):
                    raise _refused(folder, _read(lock) or {})
        time.sleep(SETTLE)
        found = _read(lock) or {}
    except OSError as error:
        raise SoritesError(f"cannot make the {kind} folder {folder}: {error}") from error
    if found.get("key") != mine["key"]:
        raise _refused(folder, found)


def _put_new(lock: StorePath, mine: dict[str, Any]) -> bool:
    try:
        lock.put(_told(mine), only_new=True)
    except FileExistsError:
        return False
    return True


def _told(mine: dict[str, Any]) -> bytes:
    return json.dumps({**mine, "time": time.time()}).encode()


def _read(lock: StorePath) -> dict[str, Any] | None:
    try:
        found = json.loads(lock.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _left_behind(found: dict[str, Any]) -> bool:
    """Return whether the process of a lock is gone: not on this machine any more, or silent for long."""
    if found.get("host") == platform.node() and isinstance(found.get("pid"), int):
        return _started(found["pid"]) != found.get("started")
    when = found.get("time")
    return not isinstance(when, int | float) or time.time() - when > STALE


def _started(pid: int) -> str | None:
    """Return when a process of this machine started, or that it is there where that cannot be
    known; None where it is gone.
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


def _refused(folder: StorePath, found: dict[str, Any]) -> SoritesError:
    who = f" (process {found.get('pid')} on {found.get('host')})" if found else ""
    return SoritesError(
        f"another sorites is writing into {folder}{who}; wait for it, or choose another --out DIR. If it is"
        f" dead, its lock is taken over {STALE:.0f} s after its last sign of life."
    )


def _renew(lock: StorePath, mine: dict[str, Any], ended: threading.Event) -> None:
    """Renew the lock until the work ends; where another took it over, end this process: it was
    taken for dead.
    """
    while not ended.wait(RENEW):
        try:
            found = _read(lock)
            if found and found.get("key") not in (None, mine["key"]):
                _stop(lock, found)
                return
            lock.put(_told(mine))
        except OSError:  # the store may answer the next time
            continue


def _stop(lock: StorePath, found: dict[str, Any]) -> None:
    import _thread
    import warnings

    warnings.warn(
        f"{lock} was taken over by process {found.get('pid')} on {found.get('host')}; stopping here",
        stacklevel=2,
    )
    _thread.interrupt_main()
