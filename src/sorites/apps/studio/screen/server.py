"""Server of the page that shows images: the page polls for the next image, paints it and acknowledges its
number.
"""

from __future__ import annotations

import functools
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sorites.apps.serving import (
    LOOPBACK,
    Server,
    Turn,
    application,
    error_reply,
    json_body,
    new_token,
    owner_of,
    reply,
    require,
    token_page,
)
from sorites.core import ImageU8
from sorites.core.errors import MissingExtra, SoritesError
from sorites.io.decode import decode
from sorites.io.readers import parse_integer

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

# Seconds that a request for the next image is kept open.
POLL_S = 20.0
PLACES = ("centre", "left-top")
# Maximum size and position that a page may report.
MAX_SCREEN_PX = 1 << 15


@dataclass(frozen=True)
class Shown:
    """State of the screen: number of the item, size of the screen, and position of the image in its
    pixels.
    """

    number: int
    screen: tuple[int, int]
    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class Item:
    """The next image to show, as PNG or JPEG, or black."""

    number: int = 0
    name: str = ""
    data: bytes | None = None


class Screen:
    """Server of one page; every path starts with the token."""

    def __init__(
        self, place: str = "centre", host: str = LOOPBACK, port: int = 0, token: str | None = None
    ) -> None:
        if place not in PLACES:
            raise SoritesError(f"place: expected {' or '.join(PLACES)}, got {place!r}")
        self.place, self.token = place, token or new_token()
        self._turn = Turn()
        # A random start, so that pages left open from an earlier server have another number.
        first = secrets.randbelow(1 << 30) + 1
        self._item, self._shown = Item(first), Shown(0, (0, 0), 0, 0, 0, 0)
        self._last_poll, self._stopped = 0.0, False
        endpoints = [
            *token_page("sorites.apps.studio.screen", self._is_ours),
            ("GET", "/{token}/next", require(self._is_ours, 404, self._next)),
            ("GET", "/{token}/image/{number}", require(self._is_ours, 404, self._image)),
            ("POST", "/{token}/shown", require(self._is_ours, 404, self._acknowledge)),
        ]
        self._server = Server(application(endpoints, host), host, port)
        self.url = f"{self._server.url}/{self.token}/"
        self.port = self._server.port

    def stop(self) -> None:
        """Stop the server; open pages poll until a server is back."""
        with self._turn:
            self._stopped = True
            self._turn.notify_all()
        self._server.stop()

    def show(self, name: str, data: bytes | None, wait: float = 30.0) -> Shown:
        """Show an image and return once the page has painted it.

        Args:
            name: Name of the image.
            data: PNG or JPEG data, None for black.
            wait: Seconds to wait for the page.

        Raises:
            ScreenError: No page painted it in time.
        """
        with self._turn:
            self._item = Item(self._item.number + 1, name, data)
            self._turn.notify_all()
            if not self._turn.wait_for(lambda: self._shown.number == self._item.number, wait):
                raise ScreenError(self._timeout_message(wait))
            return self._shown

    def seen(self) -> tuple[int, ImageU8 | None]:
        """Return the acknowledged number and the pixels of the whole screen, None if nothing current is
        shown.
        """
        with self._turn:
            item, shown = self._item, self._shown
        if shown.number == 0 or shown.number != item.number:
            return shown.number, None
        return shown.number, render_screen(item.data, shown)

    def _timeout_message(self, wait: float) -> str:
        if time.monotonic() - self._last_poll < POLL_S + 5:
            return (
                f"the page on the screen did not paint the image within {wait:.0f} s; check it, or open it"
                f" again: {self.url}"
            )
        return (
            f"no screen is connected. Open this link full screen in the browser of the television: {self.url}"
        )

    def _is_ours(self, request: Request) -> bool | None:
        return owner_of(request.path_params["token"], {self.token: True})

    async def _next(self, request: Request, _: bool) -> Response:
        """Answer as soon as there is an item after the page's current one."""
        current = parse_integer(request.query_params.get("after", "")) or 0
        self._last_poll = time.monotonic()
        await self._turn.until(lambda: self._stopped or self._item.number != current, POLL_S)
        if self._stopped:
            return error_reply(503, "the studio has stopped")
        self._last_poll = time.monotonic()
        item = self._item
        return reply(
            {"number": item.number, "place": self.place, "idle": not item.name, "black": item.data is None}
        )

    async def _image(self, request: Request, _: bool) -> Response:
        item = self._item
        if item.data is None or request.path_params["number"] != str(item.number):
            return error_reply(404, "this image is no longer shown")
        kind = "image/png" if item.data.startswith(b"\x89PNG") else "image/jpeg"
        return reply(item.data, kind=kind)

    async def _acknowledge(self, request: Request, _: bool) -> Response:
        content = await json_body(request)
        try:
            numbers = [float(content[key]) for key in ("left", "top", "width", "height")]
            size = (int(content["screen"][0]), int(content["screen"][1]))
            shown = Shown(int(content["number"]), size, *numbers)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            return error_reply(400, "expected number, screen, left, top, width and height")
        if not all(-MAX_SCREEN_PX <= value <= MAX_SCREEN_PX for value in (*size, *numbers)) or min(size) < 0:
            return error_reply(400, f"expected a screen of at most {MAX_SCREEN_PX} pixels per side")
        with self._turn:
            if shown.number == self._item.number:
                self._shown = shown
                self._turn.notify_all()
        return reply({})


class ScreenError(SoritesError):
    """No page shows the image; the message contains the link to open."""


@functools.lru_cache(maxsize=4)
def render_screen(data: bytes | None, shown: Shown) -> ImageU8:
    """Return the pixels of a whole screen that shows an image on black."""
    from PIL import Image as Pillow

    screen = np.zeros((shown.screen[1], shown.screen[0], 3), np.uint8)
    if data is None:
        return screen
    image = decode(data, "the image on the screen")
    size = (max(1, round(shown.width)), max(1, round(shown.height)))
    if size != (image.shape[1], image.shape[0]):
        image = np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BICUBIC))
    top, left = round(shown.top), round(shown.left)
    screen[top : top + size[1], left : left + size[0]] = image[
        : shown.screen[1] - top, : shown.screen[0] - left
    ]
    screen.setflags(write=False)
    return screen


# A virtual screen that talks to the server like the page does

RETRY_S = 0.1


class VirtualTv:
    """A virtual screen that shows what the server at ``url`` asks for, and reconnects if the server
    restarts.
    """

    def __init__(self, url: str, size: tuple[int, int] = (1280, 720)) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("the studio", "studio") from error
        self._http = httpx.Client(base_url=url, timeout=POLL_S + 10, trust_env=False)
        self._size, self._number = size, 0
        self._pixels: ImageU8 = np.zeros((size[1], size[0], 3), np.uint8)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> tuple[int, ImageU8 | None]:
        """Return the number of the item and the pixels of the whole screen."""
        return self._number, self._pixels

    def stop(self) -> None:
        """Switch the screen off."""
        self._ended.set()
        self._http.close()

    def _run(self) -> None:
        import httpx

        while not self._ended.is_set():
            try:
                item = self._http.get("next", params={"after": self._number}).raise_for_status().json()
                if item["number"] != self._number:
                    self._show(item)
            except (httpx.HTTPError, RuntimeError, ValueError, KeyError):
                self._ended.wait(RETRY_S)

    def _show(self, item: dict[str, Any]) -> None:
        data = None if item["black"] else self._http.get(f"image/{item['number']}").raise_for_status().content
        shown = self._place(item, data)
        self._pixels, self._number = render_screen(data, shown), shown.number
        acknowledgement = {
            "number": shown.number,
            "screen": shown.screen,
            "left": shown.left,
            "top": shown.top,
        }
        self._http.post(
            "shown", json={**acknowledgement, "width": shown.width, "height": shown.height}
        ).raise_for_status()

    def _place(self, item: dict[str, Any], data: bytes | None) -> Shown:
        """Place an image like the page does: at its true pixels, scaled down only if it exceeds the
        screen.
        """
        if data is None:
            return Shown(item["number"], self._size, 0, 0, 0, 0)
        high, wide = decode(data, "the image").shape[:2]
        shrink = min(1.0, self._size[0] / wide, self._size[1] / high)
        width, height = round(wide * shrink), round(high * shrink)
        centred = item["place"] == "centre"
        left, top = ((self._size[0] - width) // 2, (self._size[1] - height) // 2) if centred else (0, 0)
        return Shown(item["number"], self._size, left, top, width, height)
