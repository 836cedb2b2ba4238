"""Server of the review: shows contact sheets and appends each reviewer's verdicts to one file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sorites.apps.serving import (
    LOOPBACK,
    Server,
    application,
    error_reply,
    json_body,
    new_token,
    owner_of,
    reply,
    require,
    token_page,
)
from sorites.apps.studio.folder import KINDS, REVIEWS_NAME, CaptureFolder, flagged, suspicious, verdicts
from sorites.apps.studio.sheets import (
    TILE,
    caption,
    images_of,
    layout,
    sample_of,
    sheet_path,
    write_sheets,
)
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.core.messages import option
from sorites.io.files import read_json, write_bytes
from sorites.io.readers import parse_integer
from sorites.sources.captures import ImageVerdict

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

LINKS = "reviewers.json"
MAX_NOTE = 2000


class Review:
    """A running review; ``links`` maps reviewers to their pages."""

    def __init__(
        self, folder: CaptureFolder, reviewers: list[str], host: str = LOOPBACK, port: int = 0
    ) -> None:
        self._folder, self._log = folder, folder.open_log(REVIEWS_NAME)
        samples = sample_of(folder)
        self._images = [(samples.get(name, name), name) for name, _ in images_of(folder)]
        self._layout = layout(folder.grid)
        self._suspicious = suspicious(folder)
        self._tokens = load_tokens(folder, reviewers)
        endpoints = [
            *token_page("sorites.apps.studio.review", self._reviewer),
            ("GET", "/{token}/state", require(self._reviewer, 404, self._state)),
            ("GET", "/{token}/sheet/{number}", require(self._reviewer, 404, self._sheet)),
            ("POST", "/{token}/verdict", require(self._reviewer, 404, self._verdict)),
        ]
        self._server = Server(application(endpoints, host), host, port)
        self.links = {name: f"{self._server.url}/{token}/" for name, token in self._tokens.items()}

    def stop(self) -> None:
        """End the review; verdicts are kept."""
        self._server.stop()
        self._log.close()

    def _reviewer(self, request: Request) -> str | None:
        return owner_of(request.path_params["token"], {token: name for name, token in self._tokens.items()})

    async def _state(self, request: Request, name: str) -> Response:
        by_reviewer = await asyncio.to_thread(verdicts, self._folder)
        images = []
        for sample, shown in self._images:
            own = by_reviewer.get((name, sample))
            verdict = {
                "seen": own is not None,
                "flags": own.flags if own else [],
                "shots": self._numbered(shown, own.shots) if own else {},
                "note": own.note if own else "",
            }
            doubts = {
                number: self._suspicious[path]
                for number, path in enumerate(self._paths(shown))
                if path in self._suspicious
            }
            images.append({"name": describe_image(shown), "doubts": doubts, **verdict})
        return reply({"reviewer": name, "kinds": KINDS, "images": images, "sheet": self._tiles()})

    def _tiles(self) -> dict[str, Any]:
        """Return the size of a sheet and the places of the photographs on it, in pixels."""
        tiles = [
            {"name": f"lamp {tile.params['light']}, {caption(tile.params)}", "at": [tile.left, tile.top]}
            for tile in self._layout.tiles
        ]
        return {"size": self._layout.size, "side": TILE, "tiles": tiles}

    def _paths(self, image: str) -> list[str]:
        """Return the paths of the photographs of an image, in the order of the tiles."""
        return [tile.path(self._folder, image) for tile in self._layout.tiles]

    def _numbered(self, image: str, shots: Mapping[str, list[str]]) -> dict[int, list[str]]:
        """Return the flags of photographs by the number of their tile."""
        return {number: shots[path] for number, path in enumerate(self._paths(image)) if path in shots}

    async def _sheet(self, request: Request, name: str) -> Response:
        number = parse_integer(request.path_params["number"])
        if number is not None and number < len(self._images):
            path = sheet_path(self._folder, self._images[number][1])
            if path.is_file():
                return reply(path.read_bytes(), kind="image/jpeg")
        return error_reply(404, "there is no such sheet")

    async def _verdict(self, request: Request, name: str) -> Response:
        content = await json_body(request)
        number, flags, note = content.get("number"), kinds_of(content.get("flags")), content.get("note", "")
        refusal = error_reply(400, f"expected number, flags of {', '.join(KINDS)}, shots, and note")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self._images):
            return refusal
        sample, image = self._images[number]
        shots = shots_of(content.get("shots", {}), self._paths(image))
        if flags is None or shots is None or not isinstance(note, str):
            return refusal
        verdict = ImageVerdict(reviewer=name, sample=sample, flags=flags, shots=shots, note=note[:MAX_NOTE])
        await asyncio.to_thread(self._log.write, verdict)
        return reply({})


def kinds_of(flags: object) -> list[str] | None:
    """Return the flags of a request, sorted; None unless they are known."""
    if not isinstance(flags, list) or not set(map(str, flags)) <= set(KINDS):
        return None
    return sorted(set(map(str, flags)))


def shots_of(shots: object, paths: Sequence[str]) -> dict[str, list[str]] | None:
    """Return the flags of a request by path of the photograph, without empty ones.

    Args:
        shots: Flags by the number of a tile, as text.
        paths: The paths of the photographs, in the order of the tiles.

    Returns:
        None unless numbers and flags are known.
    """
    if not isinstance(shots, dict):
        return None
    found: dict[str, list[str]] = {}
    for key, flags in shots.items():
        number, kinds = parse_integer(str(key)), kinds_of(flags)
        if number is None or not 0 <= number < len(paths) or kinds is None:
            return None
        if kinds:
            found[paths[number]] = kinds
    return found


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
    again = f"; to take them again, repeat the command of the capture with {option('reshoot')}"
    say(f"{len(to_reshoot)} photographs are flagged" + (again if to_reshoot else ""))
