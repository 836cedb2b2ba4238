"""The log of a capture: one JSON object a line, only ever appended to, each line on the disk before the next shot."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError
from sorites.reading.places import reason

NAME = "shots.jsonl"


class Log:
    """An append-only file of events. A line that a killed process left unfinished is passed over, never joined to the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        except OSError as error:
            raise SoritesError(f"cannot write {path}: {reason(error)}") from error
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            os.write(self._file, b"\n")

    def add(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append one event with the time, and wait until the disk has it."""
        line = {"event": event, "time": round(time.time(), 3), **facts}
        try:
            os.write(self._file, json.dumps(line, ensure_ascii=False).encode() + b"\n")
            os.fsync(self._file)
        except OSError as error:
            raise SoritesError(f"cannot write {self.path}: {reason(error)}. Make room, then type the same command") from error
        return line

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the events of a log in their order; there are none if the file is missing. Broken lines are passed over."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    held = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(held, dict) and "event" in held:
                    yield held
    except FileNotFoundError:
        return
    except OSError as error:
        raise SoritesError(f"cannot read {path}: {reason(error)}") from error
