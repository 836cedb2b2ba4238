"""A screen that is closed, resized, covered or reloaded during a capture in real Chromium: no wrong photograph is
accepted, and the capture goes on unattended once the screen is back.

The virtual camera sees screenshots of the browser, so it photographs whatever is really on the screen.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from tests.apps.studio.conftest import GRID, STAGE, capture_of

from sorites.apps.studio.ccapi import Calls, CcapiCamera
from sorites.apps.studio.devices import Devices
from sorites.apps.studio.folder import CaptureFolder, suspicious
from sorites.apps.studio.lamps import NoLamps
from sorites.apps.studio.references import Reference
from sorites.apps.studio.screen.server import Screen
from sorites.apps.studio.virtual.camera import VirtualCamera
from sorites.apps.studio.virtual.scene import Photographer, Room
from sorites.apps.studio.virtual.studio import view_of
from sorites.core import ImageU8

pytestmark = pytest.mark.slow

SIZES = ((1280, 720), (1000, 600))
SIZE, SMALL = ({"width": width, "height": height} for width, height in SIZES)
COVER = "document.body.insertAdjacentHTML('beforeend', '<div id=cover style=\"position:fixed;inset:0;background:#876\">')"


@dataclass
class BrowserScreen:
    """A window of Chromium, driven by the main thread, and what it showed in every photograph.

    Playwright belongs to one thread, so the camera's thread asks the main thread for a screenshot.
    """

    browser: Any
    url: str
    page: Any = None
    wanted: threading.Event = field(default_factory=threading.Event)
    taken: threading.Event = field(default_factory=threading.Event)
    blocked: bool = False
    pixels: ImageU8 = field(default_factory=lambda: np.zeros((720, 1280, 3), np.uint8))

    def open(self) -> None:
        self.page = self.browser.new_page(viewport=SIZE)
        self.page.goto(self.url)

    def seen(self) -> tuple[int, ImageU8 | None]:
        """Return what the window shows, for the camera."""
        self.taken.clear()
        self.wanted.set()
        assert self.taken.wait(30)
        return 0, self.pixels

    def serve(self) -> None:
        """Take a screenshot if the camera waits for one; a closed window is black."""
        if not self.wanted.is_set():
            return
        self.wanted.clear()
        shown = np.zeros((720, 1280, 3), np.uint8)
        if self.page is not None and not self.page.is_closed():
            pixels = np.asarray(Pillow.open(io.BytesIO(self.page.screenshot())).convert("RGB"))[:720, :1280]
            shown[: pixels.shape[0], : pixels.shape[1]] = pixels
        if self.blocked:
            shown[200:520, 400:900] = 90
        self.pixels = shown
        self.taken.set()


def screen_key(reference: Reference, size: tuple[int, int]) -> str:
    """Return the hash of the pixels that show nothing but a reference in a window of this size."""
    image = reference.image()
    left, top = (size[0] - image.shape[1]) // 2, (size[1] - image.shape[0]) // 2
    shown = np.zeros((720, 1280, 3), np.uint8)
    shown[top : top + image.shape[0], left : left + image.shape[1]] = image
    return hashlib.blake2b(shown.tobytes(), digest_size=8).hexdigest()


def close(screen: BrowserScreen) -> Callable[[], None]:
    screen.page.close()
    return screen.open


def resize(screen: BrowserScreen) -> Callable[[], None]:
    screen.page.set_viewport_size(SMALL)
    return lambda: screen.page.set_viewport_size(SIZE)


def cover(screen: BrowserScreen) -> Callable[[], None]:
    screen.page.evaluate(COVER)
    return lambda: screen.page.evaluate("document.getElementById('cover').remove()")


def block(screen: BrowserScreen) -> Callable[[], None]:
    """Something stands between the screen and the camera, which no page can know."""
    screen.blocked = True
    return lambda: setattr(screen, "blocked", False)


def reload(screen: BrowserScreen) -> Callable[[], None]:
    screen.page.reload()
    return lambda: None


def run_with(
    screen: BrowserScreen, capture: Any, held: list[Reference], disturb: Any, moment: int, steps: int = 12
) -> BaseException | None:
    """Run a capture in a thread while the main thread drives the browser and disturbs it once."""
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            capture.run(held)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    polls, repair = 0, None
    while thread.is_alive():
        screen.serve()
        screen.page.wait_for_timeout(20) if not screen.page.is_closed() else thread.join(0.02)
        polls += 1
        if repair is None and capture.taken >= moment:
            repair, polls = disturb(screen), 0
        elif repair is not None and polls == steps:
            repair()
    return ended[0]


@pytest.mark.parametrize("moment", [1, 4])
@pytest.mark.parametrize("disturb", [close, resize, cover, block, reload])
def test_no_wrong_photograph_is_accepted(
    browser: Any, tmp_path: Path, held: list[Reference], disturb: Any, moment: int
) -> None:
    server = Screen()
    window = BrowserScreen(browser, server.url)
    window.open()
    camera = VirtualCamera(Photographer(Room(view_of(STAGE, "centre", 0.06)), window.seen, lambda: 0.0, 0))
    client = CcapiCamera(Calls(camera.url))
    grid = type(GRID)(GRID.manual[1:], shots=2, lights=("off",))
    folder = CaptureFolder(tmp_path / "es", "test", grid)
    folder.prepare(held)
    said: list[str] = []
    capture = capture_of(folder, Devices(server, NoLamps(), client), said)
    try:
        assert run_with(window, capture, held, disturb, moment) is None
    finally:
        client.close()
        camera.stop()
        server.stop()
        if not window.page.is_closed():
            window.page.close()
    done = folder.done()
    assert len(done) == 9
    assert suspicious(folder) == {}
    for shot in done.values():
        reference = next(reference for reference in held if reference.id == shot.sample)
        assert camera.taken[shot.camera_file][0] in {screen_key(reference, size) for size in SIZES}
