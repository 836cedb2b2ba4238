"""Captures with real Chromium as the screen that are disturbed once: the window is closed, resized, covered or reloaded,
or something stands in front of it.

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


Disturb = Callable[[BrowserScreen], Callable[[], None]]
"""Disturbs a screen, and returns how to put it right."""


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


@dataclass(frozen=True)
class Moment:
    """When a capture is disturbed: after so many photographs, and so many turns of 20 ms later, for so many."""

    shots: int
    turns: int = 0
    length: int = 12


def run_with(
    screen: BrowserScreen, capture: Any, held: list[Reference], disturb: Disturb, moment: Moment
) -> tuple[BaseException | None, bool]:
    """Run a capture in a thread while the main thread drives the browser and disturbs it once.

    Returns:
        What ended the capture early, and whether it was disturbed before it ended.
    """
    ended: list[BaseException | None] = []

    def work() -> None:
        try:
            capture.run(held)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    polls, repair, left = 0, None, moment.turns
    while thread.is_alive():
        screen.serve()
        screen.page.wait_for_timeout(20) if not screen.page.is_closed() else thread.join(0.02)
        polls += 1
        if repair is None and capture.taken >= moment.shots:
            left -= 1
            if left < 0:
                repair, polls = disturb(screen), 0
        elif repair is not None and polls == moment.length:
            repair()
    return ended[0], repair is not None


@dataclass(frozen=True)
class Trial:
    """What a disturbed capture accepted.

    Attributes:
        accepted: Photographs in the log; nine are asked for.
        wrong: Those that were taken while the screen did not show their image, and nothing else.
        flagged: Those that the capture marked as suspicious.
        taken: Photographs that the camera took, those that were taken again included.
        error: What ended the capture early.
        disturbed: Whether the moment came before the end of the capture.
    """

    accepted: int
    wrong: int
    flagged: int
    taken: int
    error: BaseException | None
    disturbed: bool


ASKED = 9


def trial(browser: Any, root: Path, held: list[Reference], disturb: Disturb, moment: Moment) -> Trial:
    """Capture three images at one setting and with two automatic shots, disturbed once."""
    server = Screen()
    window = BrowserScreen(browser, server.url)
    window.open()
    camera = VirtualCamera(Photographer(Room(view_of(STAGE, "centre", 0.06)), window.seen, lambda: 0.0, 0))
    client = CcapiCamera(Calls(camera.url))
    folder = CaptureFolder(root, "test", type(GRID)(GRID.manual[1:], shots=2, lights=("off",)))
    folder.prepare(held)
    capture = capture_of(folder, Devices(server, NoLamps(), client), [])
    try:
        error, disturbed = run_with(window, capture, held, disturb, moment)
    finally:
        client.close()
        camera.stop()
        server.stop()
        if not window.page.is_closed():
            window.page.close()
    done, named = folder.done(), {reference.id: reference for reference in held}
    wrong = sum(
        camera.taken[shot.camera_file][0] not in {screen_key(named[shot.sample], size) for size in SIZES}
        for shot in done.values()
    )
    return Trial(len(done), wrong, len(suspicious(folder)), len(camera.taken), error, disturbed)


DISTURBANCES: tuple[Disturb, ...] = (close, resize, cover, reload, block)
