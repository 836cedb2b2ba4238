"""The screen's page and the review's page in real Chromium: painted, acknowledged, reconnected;
flagged by keyboard alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.apps.studio.conftest import STAGE, capture_of
from tests.apps.studio.test_markers import png
from tests.conftest import scene

from sorites.apps.studio.calibration import calibrate, decode_photo
from sorites.apps.studio.devices import DeviceOptions, Devices, open_devices
from sorites.apps.studio.folder import CaptureFolder, flagged, to_retake, verdicts
from sorites.apps.studio.markers import rectify
from sorites.apps.studio.references import Reference
from sorites.apps.studio.review.server import Review
from sorites.apps.studio.screen.server import Screen
from sorites.apps.studio.sheets import TILE, images_of, layout, write_sheets

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    opened = context.new_page()
    opened.complaints = []
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    yield opened
    context.close()


def test_image_is_on_the_screen_pixel_by_pixel_when_it_is_acknowledged(page: Any, tmp_path: Path) -> None:
    screen = Screen()
    try:
        page.goto(screen.url)
        image = scene(5, 375, 500)
        shown = screen.show("image", png(image))
        assert (shown.screen, shown.left, shown.top, shown.width, shown.height) == (
            (1280, 720),
            390,
            172,
            500,
            375,
        )
        shot = np.asarray(_pixels(page.screenshot()))
        assert np.array_equal(shot[172:547, 390:890], image)
        assert shot.sum() == image.sum(dtype=np.int64)
        assert page.evaluate("getComputedStyle(document.body).cursor") == "none"
        large = screen.show("large", png(scene(6, 900, 1200)))
        assert (large.width, large.height) == (960, 720)
        screen.show("black", None)
        assert np.asarray(_pixels(page.screenshot())).sum() == 0
        page.set_viewport_size({"width": 390, "height": 800})
        again = screen.show("phone", png(image))
        assert again.screen == (390, 800)
        assert again.width == 390
        assert page.complaints == []
    finally:
        screen.stop()


def _pixels(data: bytes) -> Any:
    import io

    from PIL import Image as Pillow

    return Pillow.open(io.BytesIO(data)).convert("RGB")


def test_the_page_comes_back_by_itself(page: Any) -> None:
    first = Screen()
    page.goto(first.url)
    first.show("one", png(scene(1)))
    first.stop()
    page.wait_for_timeout(300)
    second = Screen(port=first.port, token=first.token)
    try:
        assert second.show("two", png(scene(2)), wait=20).width == 80
    finally:
        second.stop()


def test_single_photographs_are_flagged_by_a_click_and_no_request_fails(
    page: Any, devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    """The place that is clicked is the photograph of its setting; the log of requests has no error."""
    capture_of(folder, devices).run(held)
    write_sheets(folder)
    review, answers = Review(folder, ["ada"]), []
    page.on("response", lambda answer: answers.append((answer.status, answer.url)))
    try:
        page.goto(review.links["ada"])
        page.wait_for_selector("html[data-ready]", timeout=30_000)
        box = page.locator("#sheet").bounding_box()
        placed = layout(folder.grid)
        tile = placed.tiles[3]
        scale = box["width"] / placed.size[0]
        page.mouse.click(box["x"] + scale * (tile.left + TILE / 2), box["y"] + scale * (tile.top + TILE / 2))
        page.keyboard.press("2")
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
        page.get_by_text("sheet 2 of 3, 1 seen").wait_for(timeout=20_000)
        name = images_of(folder)[0][0]
        assert flagged(folder) == {tile.path(folder, name): frozenset({"missed"})}
        page.keyboard.press("ArrowLeft")
        page.locator("#tiles button.flagged").wait_for(timeout=20_000)
        assert page.locator("#tiles button.flagged").count() == 1
        icon = "/".join([*review.links["ada"].split("/")[:3], "favicon.ico"])
        answers.append((page.request.get(icon).status, icon))
        assert answers
        assert [answer for answer in answers if answer[0] >= 400] == []
        assert page.complaints == []
    finally:
        review.stop()


@pytest.mark.parametrize("window", [(1280, 720), (1500, 940), (700, 420), (150, 100)])
def test_the_virtual_camera_photographs_what_chromium_shows(page: Any, window: tuple[int, int]) -> None:
    """The camera looks at the middle of the window, also at one in which the image does not fit."""
    devices = open_devices(DeviceOptions(browser=True, megapixels=0.25), STAGE)
    try:
        page.set_viewport_size({"width": window[0], "height": window[1]})
        page.goto(devices.screen.url)
        found = calibrate(devices.camera, devices.screen, STAGE)
        image = scene(3, STAGE[1], STAGE[0])
        shown = devices.screen.show("image", png(image))
        devices.camera.set({"mode": "manual", "iso": 400, "shutter": 1 / 15, "aperture": 8.0})
        flat = rectify(decode_photo(devices.camera.shoot()), found.matrix, shown, STAGE)
        assert np.corrcoef(flat.ravel(), image.ravel())[0, 1] > 0.95
    finally:
        devices.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_a_review_by_keyboard_alone(
    page: Any, devices: Devices, folder: CaptureFolder, held: list[Reference], width: int
) -> None:
    capture_of(folder, devices).run(held)
    write_sheets(folder)
    review = Review(folder, ["ada", "bo"])
    try:
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(review.links["ada"])
        page.wait_for_selector("html[data-ready]", timeout=30_000)
        for key in ("1", "n"):
            page.keyboard.press(key)
        page.keyboard.type("cut at the left")
        page.keyboard.press("Enter")
        page.get_by_text("sheet 2 of 3, 1 seen").wait_for(timeout=20_000)
        page.keyboard.press("ArrowRight")
        page.get_by_text("sheet 3 of 3").wait_for(timeout=20_000)
        page.keyboard.press("3")
        page.keyboard.press("3")
        page.keyboard.press("Enter")
        page.get_by_text("all 3 seen").wait_for(timeout=20_000)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.getElementById('sheet').naturalWidth > 0")
        assert page.complaints == []
        said = {sample: line for (who, sample), line in verdicts(folder).items() if who == "ada"}
        assert len(said) == 3
        assert [verdict.flags for verdict in said.values() if verdict.note] == [["crop"]]
        wrong = to_retake(folder)
        assert len({path.rpartition("/")[2] for path in flagged(folder)}) == 1
        assert len(wrong) == 8
        capture = capture_of(folder, devices)
        capture.run(held, again=wrong)
        assert capture.taken == 8
        assert flagged(folder) == {}
    finally:
        review.stop()
