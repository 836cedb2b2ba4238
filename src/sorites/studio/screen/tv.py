"""A television without a browser: it speaks to the screen server as the page does, and keeps the pixels that it would show."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from sorites.core import Picture
from sorites.errors import MissingExtra
from sorites.sources._decode import decode
from sorites.studio.screen.server import POLL_S, Shown, composed

RETRY_S = 0.1


class VirtualTv:
    """A screen of so many pixels that shows what the server at ``url`` asks for, and comes back when the server does."""

    def __init__(self, url: str, size: tuple[int, int] = (1280, 720)) -> None:
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("the studio", "studio") from error
        self._http = httpx.Client(base_url=url, timeout=POLL_S + 10, trust_env=False)
        self._size, self._number = size, 0
        self._pixels: Picture = np.zeros((size[1], size[0], 3), np.uint8)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> tuple[int, Picture | None]:
        """Return the number of what is shown, and the pixels of the whole screen."""
        return self._number, self._pixels

    def stop(self) -> None:
        """Switch the television off."""
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
        data = None if item["black"] else self._http.get(f"picture/{item['number']}").raise_for_status().content
        shown = self._placed(item, data)
        self._pixels, self._number = composed(data, shown), shown.number
        said = {"number": shown.number, "screen": shown.screen, "left": shown.left, "top": shown.top}
        self._http.post("shown", json={**said, "width": shown.width, "height": shown.height}).raise_for_status()

    def _placed(self, item: dict[str, Any], data: bytes | None) -> Shown:
        """Lay a picture on the screen as the page does: at true pixels, smaller only if it is larger than the screen."""
        if data is None:
            return Shown(item["number"], self._size, 0, 0, 0, 0)
        high, wide = decode(data, "the picture").shape[:2]
        shrink = min(1.0, self._size[0] / wide, self._size[1] / high)
        width, height = round(wide * shrink), round(high * shrink)
        centred = item["place"] == "centre"
        left, top = ((self._size[0] - width) // 2, (self._size[1] - height) // 2) if centred else (0, 0)
        return Shown(item["number"], self._size, left, top, width, height)
