"""Faults that a test asks a virtual device for: each happens a given number of times, then the device works again."""

from __future__ import annotations

import threading

KINDS = ("busy", "drop", "drop_after", "duplicate", "late", "truncate", "wrong_exif", "full", "flat", "stuck")


class Faults:
    """The number of times that each fault will still happen."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._lock = threading.Lock()
        self.happened: list[str] = []

    def add(self, kind: str, times: int = 1) -> None:
        """Ask for a fault a number of times."""
        if kind not in KINDS:
            raise ValueError(kind)
        with self._lock:
            self._left[kind] = self._left.get(kind, 0) + times

    def take(self, kind: str) -> bool:
        """Return whether the fault happens now, and count it."""
        with self._lock:
            left = self._left.get(kind, 0)
            if left:
                self._left[kind] = left - 1
                self.happened.append(kind)
            return left > 0

    def left(self, kind: str) -> int:
        """Return how often a fault will still happen."""
        return self._left.get(kind, 0)
