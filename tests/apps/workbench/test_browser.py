"""Every flow of the workbench in real Chromium, with no way out to the network."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from tests.conftest import scene

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Any, served: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.complaints, opened.outside = [], []
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on(
        "console",
        lambda message: opened.complaints.append(message.text) if message.type == "error" else None,
    )
    here = served.split("/")[2]

    def only_here(route: Any) -> None:
        if route.request.url.startswith(("data:", "blob:")) or here in route.request.url:
            route.continue_()
        else:
            opened.outside.append(route.request.url)
            route.abort()

    opened.route("**/*", only_here)
    yield opened
    assert opened.complaints == []
    assert opened.outside == []
    context.close()


def until(page: Any, expression: str, seconds: float = 30) -> None:
    """Wait until an expression is true; the page's policy does not let ``wait_for_function`` do it."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def test_runs_have_curves_and_links(page: Any, served: str) -> None:
    page.goto(f"{served}#/runs")
    page.wait_for_selector(".panel svg polyline", state="attached")
    assert page.locator(".panel").count() == 2
    page.locator("td a", has_text="explore").click()
    page.wait_for_selector(".tile img")


def test_filter_open_a_trajectory_and_come_back_by_the_address(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    assert page.locator("#status").inner_text().startswith("88 images")
    page.get_by_label("Column to filter by").select_option("shift")
    page.get_by_label("shift is").select_option("defocus_disk")
    until(page, "document.getElementById('status').textContent.startsWith('40 images')")
    page.locator(".tile button").first.click()
    page.wait_for_selector("dialog .here img")
    assert page.locator("dialog section").count() == 3
    address = page.url
    page.keyboard.press("Escape")
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("dialog .here img")
    page.keyboard.press("Escape")
    page.get_by_label("Remove the filter on shift").click()
    until(page, "document.getElementById('status').textContent.startsWith('88 images')")


def test_scrolling_shows_every_image_once(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    seen: set[str] = set()
    for _ in range(40):
        seen |= set(page.eval_on_selector_all(".tile img", "images => images.map(image => image.src)"))
        page.evaluate("document.getElementById('grid').scrollBy(0, 300)")
        page.wait_for_timeout(60)
    assert len(seen) == 88


def test_the_dial_moves_image_and_answers(page: Any, served: str) -> None:
    page.goto(f"{served}#/turn")
    page.wait_for_selector(".answers article")
    before = page.locator(".stage img").get_attribute("src")
    slider = page.get_by_role("slider").first
    slider.focus()
    slider.press("End")
    until(page, f"document.querySelector('.stage img').src !== {json.dumps(before)}")
    assert page.locator(".answers article").count() == 2
    page.keyboard.press("b")
    until(page, "[...document.querySelectorAll('.answers article')].every(a => /fail/.test(a.textContent))")
    page.get_by_label("Shift 2").select_option("gaussian_noise")
    page.get_by_role("button", name="map of both dials (m)").click()
    until(page, "document.querySelectorAll('.map td').length === 2 * 49")


def test_a_file_of_ones_own_can_be_turned(page: Any, served: str, tmp_path: Path) -> None:
    Pillow.fromarray(scene(9, 200, 300)).save(tmp_path / "mine.png")
    page.goto(f"{served}#/turn")
    page.wait_for_selector(".answers article")
    page.get_by_label("Your own image").set_input_files(tmp_path / "mine.png")
    until(page, "location.hash.includes('dropped')")
    page.wait_for_selector(".answers article")
    (tmp_path / "text.png").write_text("no image")
    page.get_by_label("Your own image").set_input_files(tmp_path / "text.png")
    page.wait_for_selector("#status.error")
    page.complaints.clear()  # the browser reports the refusal of the text in its console


def test_a_phone_needs_no_sideways_scrolling(page: Any, served: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for view, ready in (("runs", ".panel"), ("explore", ".tile img"), ("turn", ".answers article")):
        page.goto("about:blank")
        page.goto(f"{served}#/{view}")
        page.wait_for_selector(ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
