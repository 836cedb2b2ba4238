"""The memory card of the virtual camera: files by name in one folder, listed by pages, fetched and deleted over HTTP."""

from __future__ import annotations

import threading
from typing import Any

from sorites.studio.serving import NOT_FOUND, Reply, Request, in_json
from sorites.studio.virtual.faults import Faults

STORAGE = "/ccapi/ver130/contents/sd"
FOLDER = f"{STORAGE}/100CANON"
PAGE = 100
"""Names per page of a list."""
SHOT_BYTES = 8_000_000


class Card:
    """A card that holds ``shots`` photographs. Files keep their numbers: a number is never used twice."""

    def __init__(self, shots: int) -> None:
        self.room, self._taken, self._files = shots, 0, dict[str, bytes]()
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Return whether no shot fits any more."""
        return len(self._files) >= self.room

    def add(self, data: bytes) -> str:
        """Keep a photograph and return its path."""
        with self._lock:
            self._taken += 1
            path = f"{FOLDER}/IMG_{self._taken:04d}.JPG"
            self._files[path] = data
        return path

    def about(self) -> dict[str, Any]:
        """Return what the camera says of the card."""
        left = (self.room - len(self._files)) * SHOT_BYTES
        size = {"maxsize": self.room * SHOT_BYTES, "spacesize": left, "contentsnumber": len(self._files)}
        return {"name": "sd", "path": STORAGE, "accesscapability": "readwrite", **size}

    def answer(self, request: Request, faults: Faults) -> Reply:
        """Answer a request below ``contents``; whichever version is asked, there is one card."""
        path = "/ccapi/ver130/" + request.path.split("/", 3)[3]
        if path in self._files:
            return self._file(path, request.method, faults)
        if request.method != "GET":
            return NOT_FOUND
        if path == "/ccapi/ver130/contents":
            return in_json({"path": [STORAGE]})
        if path == STORAGE:
            return in_json({"path": [FOLDER]}) if "kind" not in request.query else in_json({"contentsnumber": 1, "pagenumber": 1})
        return self._page(request) if path == FOLDER else NOT_FOUND

    def _file(self, path: str, method: str, faults: Faults) -> Reply:
        if method == "DELETE":
            with self._lock:
                self._files.pop(path, None)
            return in_json({})
        data = self._files[path]
        return Reply(200, data, "image/jpeg", cut=len(data) // 2 if faults.take("truncate") else None)

    def _page(self, request: Request) -> Reply:
        names = sorted(self._files)
        if request.query.get("kind") == "number":
            return in_json({"contentsnumber": len(names), "pagenumber": -(-len(names) // PAGE)})
        asked = request.query.get("page", "1")
        first = (int(asked) - 1 if asked.isdigit() else 0) * PAGE
        return in_json({"path": names[first : first + PAGE]})
