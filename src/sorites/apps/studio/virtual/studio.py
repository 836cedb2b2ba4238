"""Assembly of the virtual studio: screen, bridge and camera on the loopback address."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sorites.apps.studio.screen.server import Screen, VirtualTv
from sorites.apps.studio.virtual.bridge import VirtualBridge
from sorites.apps.studio.virtual.camera import VirtualCamera
from sorites.apps.studio.virtual.scene import Photographer, Room, Seen, View

MEGAPIXELS = 0.5
# Margin of the virtual screen around the stage, per side.
MARGIN_PX = 120


def tv_size(stage: tuple[int, int]) -> tuple[int, int]:
    """Return the size of a virtual screen that fits the stage."""
    return max(1280, stage[0] + 2 * MARGIN_PX), max(720, stage[1] + 2 * MARGIN_PX)


def view_of(
    stage: tuple[int, int],
    place: str = "centre",
    megapixels: float = MEGAPIXELS,
    screen: tuple[int, int] | None = None,
) -> View:
    """Return a view of the stage in a 3:2 frame, on a screen of this size or on the virtual one."""
    width, height = tv_size(stage) if screen is None else screen
    left, top = ((width - stage[0]) // 2, (height - stage[1]) // 2) if place == "centre" else (0, 0)
    side = math.sqrt(megapixels * 1e6 / 6)
    return View(frame=(2 * round(1.5 * side), 2 * round(side)), stage=(left, top, *stage))


@dataclass
class VirtualStudio:
    """The devices of the virtual studio."""

    camera: VirtualCamera
    bridge: VirtualBridge
    tv: VirtualTv | None

    def stop(self) -> None:
        """Switch everything off."""
        self.camera.stop()
        self.bridge.stop()
        if self.tv is not None:
            self.tv.stop()


def build(
    screen: Screen,
    stage: tuple[int, int],
    browser: bool = False,
    megapixels: float = MEGAPIXELS,
    noise: bool = True,
    seed: int = 0,
) -> VirtualStudio:
    """Build a virtual studio for a screen server.

    With ``browser`` a real browser opens the screen's page, and the camera looks at the middle of its window,
    whatever its size.
    """
    tv = None if browser else VirtualTv(screen.url, tv_size(stage))
    seen: Seen = screen.seen if tv is None else tv.seen
    bridge = VirtualBridge()
    room = Room(view_of(stage, screen.place, megapixels), noise=noise)

    def aim(window: tuple[int, int]) -> View:
        return view_of(stage, screen.place, megapixels, window)

    photographer = Photographer(room, seen, bridge.light, seed, aim=aim if tv is None else None)
    return VirtualStudio(VirtualCamera(photographer), bridge, tv)
