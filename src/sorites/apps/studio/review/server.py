"""Server of the review: shows contact sheets and appends each reviewer's verdicts to one file."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from sorites.apps.studio.folder import KINDS, CaptureFolder, Log, flagged, verdicts
from sorites.apps.studio.folder import REVIEWS_NAME as NAME
from sorites.apps.studio.serving import (
    LOOPBACK,
    NOT_FOUND,
    Reply,
    Request,
    Server,
    in_json,
    new_token,
    page,
    same_token,
)
from sorites.apps.studio.sheets import images_of, sample_of, sheet_path, write_sheets
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.messages import command, option
from sorites.io.files import read_json, write_bytes

LINKS = "reviewers.json"
MAX_NOTE = 2000
_KINDS = {"page.css": "text/css", "page.js": "text/javascript"}


class Review:
    """A running review; ``links`` maps reviewers to their pages."""

    def __init__(
        self, folder: CaptureFolder, reviewers: list[str], host: str = LOOPBACK, port: int = 0
    ) -> None:
        self._folder, self._log = folder, Log(folder.root / NAME)
        samples = sample_of(folder)
        self._images = [(samples.get(name, name), name) for name, _ in images_of(folder)]
        self._tokens = load_tokens(folder, reviewers)
        self._server = Server(self._answer, host, port)
        self.links = {name: f"{self._server.url}/{token}/" for name, token in self._tokens.items()}

    def stop(self) -> None:
        """End the review; verdicts are kept."""
        self._server.stop()
        self._log.close()

    def _reviewer(self, received: str) -> str | None:
        return next((name for name, token in self._tokens.items() if same_token(received, token)), None)

    def _answer(self, request: Request) -> Reply:
        parts = request.parts
        name = self._reviewer(parts[0]) if parts else None
        if name is None:
            return NOT_FOUND
        what = (request.method, *parts[1:])
        if what == ("GET",):
            return (
                page(_file("page.html"))
                if request.path.endswith("/")
                else Reply(308, headers={"Location": f"/{parts[0]}/"})
            )
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
        by_reviewer = verdicts(self._folder)
        images = []
        for sample, shown in self._images:
            own = by_reviewer.get((name, sample), {})
            verdict = {"seen": bool(own), "flags": own.get("flags", []), "note": own.get("note", "")}
            images.append({"name": describe_image(shown), **verdict})
        return {"reviewer": name, "kinds": KINDS, "images": images}

    def _sheet(self, number: str) -> Reply:
        if not number.isdigit() or int(number) >= len(self._images):
            return NOT_FOUND
        path = sheet_path(self._folder, self._images[int(number)][1])
        return (
            Reply(200, path.read_bytes(), "image/jpeg", {"Cache-Control": "no-store"})
            if path.is_file()
            else NOT_FOUND
        )

    def _verdict(self, name: str, content: dict[str, Any]) -> Reply:
        number, flags, note = content.get("number"), content.get("flags"), content.get("note", "")
        valid_number = (
            isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(self._images)
        )
        if (
            not valid_number
            or not isinstance(flags, list)
            or not set(map(str, flags)) <= set(KINDS)
            or not isinstance(note, str)
        ):
            return in_json({"message": f"expected number, flags of {', '.join(KINDS)}, and note"}, 400)
        sample = self._images[int(number or 0)][0]
        self._log.add(
            "verdict", reviewer=name, sample=sample, flags=sorted(map(str, flags)), note=note[:MAX_NOTE]
        )
        return in_json({})


def describe_image(name: str) -> str:
    """Return the name of an image, with the class name if the folder is a WordNet id of ImageNet."""
    class_, _, stem = name.partition("/")
    label = imagenet().get(class_)
    return name if label is None else f"{imagenet().names[label]} ({class_}): {stem}"


def load_tokens(folder: CaptureFolder, reviewers: list[str]) -> dict[str, str]:
    """Return the token of each reviewer, reusing earlier ones, stored in a file that only the owner can
    read.
    """
    file = folder.root / LINKS
    try:
        stored = read_json(file)
    except SoritesError:
        stored = {}
    earlier = {str(name): str(token) for name, token in stored.items()} if isinstance(stored, dict) else {}
    tokens = {name: earlier.get(name) or new_token() for name in reviewers}
    write_bytes(json.dumps({**earlier, **tokens}).encode(), file)
    file.chmod(0o600)
    return tokens


@functools.cache
def _file(name: str) -> str:
    return files("sorites.apps.studio.review").joinpath(name).read_text(encoding="utf-8")


# Running a review
MAX_REVIEWERS = 50


def serve(
    folder: CaptureFolder, names: str, bind: str, port: int, seconds: float | None, say: Callable[[str], None]
) -> None:
    """Serve the review until Ctrl-C or for a number of seconds.

    Args:
        folder: The capture.
        names: Names of the reviewers, separated by commas.
        bind: Address to listen on.
        port: Port to listen on.
        seconds: Duration; until Ctrl-C by default.
        say: Receives messages.
    """
    reviewers = list(dict.fromkeys(name.strip()[:80] for name in names.split(",") if name.strip()))
    if not 0 < len(reviewers) <= MAX_REVIEWERS:
        raise SoritesError(
            f"{option('reviewers', None)}: expected 1 to {MAX_REVIEWERS} names and commas, got {names!r}"
        )
    write_sheets(folder)
    review = Review(folder, reviewers, bind, port)
    try:
        for name, link in review.links.items():
            say(f"{name}: {link}")
        say("Ctrl-C ends the review; verdicts are saved immediately")
        end = float("inf") if seconds is None else time.monotonic() + seconds
        with contextlib.suppress(KeyboardInterrupt):
            while time.monotonic() < end:
                time.sleep(min(0.5, max(0.0, end - time.monotonic())))
    finally:
        review.stop()
    to_reshoot = flagged(folder)
    reshoot = command("studio capture", reshoot=True, out=folder.root)
    say(f"{len(to_reshoot)} images are flagged" + (f"; next: {reshoot}" if to_reshoot else ""))
