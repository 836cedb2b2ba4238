"""Serve sheets to reviewers: crop error, missed picture, label mismatch, note. Each verdict is appended to one file."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

from sorites.errors import SoritesError
from sorites.files import read_json, write_bytes
from sorites.labels import imagenet
from sorites.studio.folder import CaptureFolder
from sorites.studio.log import Log
from sorites.studio.reviews import KINDS, NAME, verdicts
from sorites.studio.serving import LOOPBACK, NOT_FOUND, Reply, Request, Server, in_json, new_token, page, same_token
from sorites.studio.sheets import pictures_of, sample_of, sheet_path

LINKS = "reviewers.json"
LONGEST_NOTE = 2000
_KINDS = {"page.css": "text/css", "page.js": "text/javascript"}


class Review:
    """A running review; ``links`` maps the names of reviewers to their pages."""

    def __init__(self, folder: CaptureFolder, reviewers: list[str], host: str = LOOPBACK, port: int = 0) -> None:
        self._folder, self._log = folder, Log(folder.root / NAME)
        samples = sample_of(folder)
        self._pictures = [(samples.get(name, name), name) for name, _ in pictures_of(folder)]
        self._tokens = kept_tokens(folder, reviewers)
        self._server = Server(self._answer, host, port)
        self.links = {name: f"{self._server.url}/{token}/" for name, token in self._tokens.items()}

    def stop(self) -> None:
        """End the review; the verdicts are kept."""
        self._server.stop()
        self._log.close()

    def _reviewer(self, given: str) -> str | None:
        return next((name for name, token in self._tokens.items() if same_token(given, token)), None)

    def _answer(self, request: Request) -> Reply:
        parts = request.parts
        name = self._reviewer(parts[0]) if parts else None
        if name is None:
            return NOT_FOUND
        what = (request.method, *parts[1:])
        if what == ("GET",):
            return page(_file("page.html")) if request.path.endswith("/") else Reply(308, headers={"Location": f"/{parts[0]}/"})
        if what == ("GET", "state"):
            return in_json(self._state(name))
        if what == ("POST", "verdict"):
            return self._verdict(name, request.json())
        if request.method == "GET" and len(parts) == 3 and parts[1] == "sheet":
            return self._sheet(parts[2])
        if request.method == "GET" and len(parts) == 2 and parts[1] in _KINDS:
            return page(_file(parts[1]), _KINDS[parts[1]])
        return NOT_FOUND

    def _state(self, name: str) -> dict[str, Any]:
        said = verdicts(self._folder)
        pictures = []
        for sample, shown in self._pictures:
            mine = said.get((name, sample), {})
            said_so = {"seen": bool(mine), "flags": mine.get("flags", []), "note": mine.get("note", "")}
            pictures.append({"name": in_words(shown), **said_so})
        return {"reviewer": name, "kinds": KINDS, "pictures": pictures}

    def _sheet(self, number: str) -> Reply:
        if not number.isdigit() or int(number) >= len(self._pictures):
            return NOT_FOUND
        path = sheet_path(self._folder, self._pictures[int(number)][1])
        return Reply(200, path.read_bytes(), "image/jpeg", {"Cache-Control": "no-store"}) if path.is_file() else NOT_FOUND

    def _verdict(self, name: str, said: dict[str, Any]) -> Reply:
        number, flags, note = said.get("number"), said.get("flags"), said.get("note", "")
        right = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(self._pictures)
        if not right or not isinstance(flags, list) or not set(map(str, flags)) <= set(KINDS) or not isinstance(note, str):
            return in_json({"message": f"wanted number, flags of {', '.join(KINDS)}, and note"}, 400)
        sample = self._pictures[int(number or 0)][0]
        self._log.add("verdict", reviewer=name, sample=sample, flags=sorted(map(str, flags)), note=note[:LONGEST_NOTE])
        return in_json({})


def in_words(name: str) -> str:
    """Return the name of a picture with its class in words, where the folder is a WordNet id of ImageNet."""
    class_, _, stem = name.partition("/")
    label = imagenet().get(class_)
    return name if label is None else f"{imagenet().names[label]} ({class_}): {stem}"


def kept_tokens(folder: CaptureFolder, reviewers: list[str]) -> dict[str, str]:
    """Return the token of each reviewer, the same as before where there was one; only the owner can read the file."""
    file = folder.root / LINKS
    try:
        held = read_json(file)
    except SoritesError:
        held = {}
    known = {str(name): str(token) for name, token in held.items()} if isinstance(held, dict) else {}
    tokens = {name: known.get(name) or new_token() for name in reviewers}
    write_bytes(json.dumps({**known, **tokens}).encode(), file)
    file.chmod(0o600)
    return tokens


@functools.cache
def _file(name: str) -> str:
    return files("sorites.studio.review").joinpath(name).read_text(encoding="utf-8")
