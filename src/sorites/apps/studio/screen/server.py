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
# Maximum characters of a page's id, and number of earlier pages that are remembered.
MAX_PAGE_ID, MAX_PAGES = 64, 1000


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
    origin: tuple[int, int] = (0, 0)
    """Position of the window on the display."""
    page: str = ""
    """Random id of the page; a reloaded page has another."""
    paint: int = 0
    """Number of paints of the page so far: a window that was resized and resized back has another."""

    @property
    def window(self) -> tuple[object, ...]:
        """The page, its size and its position on the display, for which a calibration is valid."""
        return self.page, self.screen, self.origin


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
        self._check, self._confirmed = 0, 0
        self._pages: list[str] = []
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

    def confirm(self, wait: float = 5.0) -> Shown:
        """Ask the page what it shows now, and return its answer.

        A page that was closed, hidden, or that shows another image does not answer; one that was reloaded,
        resized or painted again answers with another ``Shown`` than before.

        Args:
            wait: Seconds to wait for the page.

        Raises:
            ScreenError: No page confirmed the current item in time.
        """
        with self._turn:
            self._check += 1
            wanted = self._check
            self._turn.notify_all()
            if not self._turn.wait_for(lambda: self._is_confirmed(wanted), wait):
                raise ScreenError(self._timeout_message(wait))
            return self._shown

    def _is_confirmed(self, check: int) -> bool:
        return self._shown.number == self._item.number and self._confirmed >= check

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
                f"the page on the screen does not confirm that it shows the image (waited {wait:.0f} s)."
                f" Check that it is visible and not covered, or open it again: {self.url}"
            )
        return (
            f"no screen is connected. Open this link full screen in the browser of the television: {self.url}"
        )

    def _is_ours(self, request: Request) -> bool | None:
        return owner_of(request.path_params["token"], {self.token: True})

    async def _next(self, request: Request, _: bool) -> Response:
        """Answer as soon as there is an item after the page's current one."""
        query = request.query_params
        current, check = (parse_integer(query.get(key, "")) or 0 for key in ("after", "check"))
        page = query.get("page", "")[:MAX_PAGE_ID]
        self._admit(page)
        self._last_poll = time.monotonic()

        def is_due() -> bool:
            news = self._item.number != current or self._check != check
            return self._stopped or news or self._is_replaced(page)

        await self._turn.until(is_due, POLL_S)
        if self._stopped:
            return error_reply(503, "the studio has stopped")
        if self._is_replaced(page):
            return reply({"replaced": True})
        self._last_poll = time.monotonic()
        item = self._item
        return reply(
            {
                "number": item.number,
                "check": self._check,
                "place": self.place,
                "idle": not item.name,
                "black": item.data is None,
            }
        )

    def _admit(self, page: str) -> None:
        """Make a page that was not seen before the screen; others are told that it replaced them."""
        with self._turn:
            if page not in self._pages:
                self._pages = [*self._pages[-MAX_PAGES:], page]
                self._turn.notify_all()

    def _is_replaced(self, page: str) -> bool:
        return self._pages[-1] != page

    async def _image(self, request: Request, _: bool) -> Response:
        item = self._item
        if item.data is None or request.path_params["number"] != str(item.number):
            return error_reply(404, "this image is no longer shown")
        kind = "image/png" if item.data.startswith(b"\x89PNG") else "image/jpeg"
        return reply(item.data, kind=kind)

    async def _acknowledge(self, request: Request, _: bool) -> Response:
        content = await json_body(request)
        try:
            left, top, width, height = (float(content[key]) for key in ("left", "top", "width", "height"))
            size, origin = _pair(content["screen"]), _pair(content.get("origin", (0, 0)))
            page, paint = str(content.get("page", ""))[:MAX_PAGE_ID], int(content.get("paint", 0))
            shown = Shown(int(content["number"]), size, left, top, width, height, origin, page, paint)
            check = int(content.get("check", 0))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            return error_reply(400, "expected number, screen, left, top, width and height")
        extent = (*size, left, top, width, height, *origin)
        if not all(-MAX_SCREEN_PX <= value <= MAX_SCREEN_PX for value in extent) or min(size) < 0:
            return error_reply(400, f"expected a screen of at most {MAX_SCREEN_PX} pixels per side")
        with self._turn:
            if shown.number == self._item.number and not self._is_replaced(page):
                self._shown, self._confirmed = shown, check
                self._turn.notify_all()
        return reply({})


def _pair(values: Any) -> tuple[int, int]:
    return int(values[0]), int(values[1])


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
        self._size, self._number, self._check, self._paint = size, 0, 0, 0
        self._page = secrets.token_hex(8)
        self._placed = Shown(0, size, 0, 0, 0, 0)
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
                asked: dict[str, int | str] = {
                    "after": self._number,
                    "check": self._check,
                    "page": self._page,
                }
                item = self._http.get("next", params=asked).raise_for_status().json()
                if item.get("replaced"):
                    return
                if item["number"] != self._number:
                    self._show(item)
                if item["number"] != self._number or item["check"] != self._check:
                    self._confirm(item)
            except (httpx.HTTPError, RuntimeError, ValueError, KeyError):
                self._ended.wait(RETRY_S)

    def _show(self, item: dict[str, Any]) -> None:
        data = None if item["black"] else self._http.get(f"image/{item['number']}").raise_for_status().content
        self._placed = self._place(item, data)
        self._pixels, self._paint = render_screen(data, self._placed), self._paint + 1

    def _confirm(self, item: dict[str, Any]) -> None:
        keys = ("screen", "left", "top", "width", "height")
        position = {key: getattr(self._placed, key) for key in keys}
        confirmed = {"number": item["number"], "page": self._page, "paint": self._paint}
        self._number = item["number"]
        self._http.post("shown", json={**confirmed, "check": item["check"], **position}).raise_for_status()
        self._check = item["check"]

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
