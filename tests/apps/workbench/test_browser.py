"""Every flow of the workbench in real Chromium, with no way out to the network."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow
from tests.conftest import BROWSER_MS, QUIET, scene

from sorites.apps.serving import Server
from sorites.apps.workbench.library import Library
from sorites.apps.workbench.server import Workbench, workbench_app
from sorites.io import packages
from sorites.io.files import cache

pytestmark = pytest.mark.slow

AXE = "axe-core@4.10.3"
AXE_SHA256 = "0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292"


@pytest.fixture
def page(browser: Any, served: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(BROWSER_MS)
    opened = context.new_page()
    opened.complaints, opened.outside = [], []
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on(
        "console",
        lambda message: opened.complaints.append(message.text) if message.type == "error" else None,
    )
    here = served.split(":")[1]  # this machine, at any port

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


@pytest.fixture(scope="module")
def served_boxes(detected: Path) -> Iterator[str]:
    workbench = Workbench(Library([detected]), detected.parent / "selections")
    server = Server(workbench_app(workbench))
    yield f"{server.url}/{workbench.token}/"
    server.stop()


@pytest.fixture
def chromium_page(browser: Any, chromium: Path) -> Iterator[Any]:
    """A page of a browser with a webcam that films a test pattern."""
    flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    opened = browser.browser_type.launch(
        executable_path=str(chromium), args=[*QUIET, "--no-first-run", *flags], timeout=BROWSER_MS
    )
    page = opened.new_page()
    page.set_default_timeout(BROWSER_MS)
    yield page
    opened.close()


def until(page: Any, expression: str, seconds: float = BROWSER_MS / 1000) -> None:
    """Wait until an expression is true; the page's policy does not let ``wait_for_function`` do it."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def drawn(page: Any) -> None:
    """Wait until the page has drawn two frames, after events such as that of scrolling."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_runs_have_curves_and_links(page: Any, served: str) -> None:
    page.goto(f"{served}#/runs")
    page.wait_for_selector(".panel svg polyline", state="attached")
    assert page.locator(".panel").count() == 2
    assert "10 px out of focus" in page.locator(".panel").first.text_content()
    page.locator("td a", has_text="explore").click()
    page.wait_for_selector(".tile img")


def test_a_report_that_opens_from_the_list_has_its_styles_and_scripts(
    page: Any, served: str, finished: Path
) -> None:
    own = "<style>p { color: rgb(1, 2, 3) }</style><p>a</p><script>document.title = 'ran'</script>"
    (finished / "report.html").write_text(f"<!doctype html><title>t</title>{own}")
    page.goto(f"{served}#/runs")
    with page.context.expect_page() as opening:
        page.locator("td a", has_text="report.html").click()
    report = opening.value
    report.wait_for_load_state()
    assert report.title() == "ran"
    assert report.evaluate("getComputedStyle(document.querySelector('p')).color") == "rgb(1, 2, 3)"
    assert report.evaluate("origin") == "null"
    report.close()
    (finished / "report.html").unlink()


@pytest.fixture
def second(finished: Path) -> Iterator[str]:
    """The name of another run, beside the first."""
    other = finished.with_name("other")
    shutil.copytree(finished, other)
    yield other.name
    shutil.rmtree(other)


def test_two_runs_are_shown_side_by_side_and_keep_the_focus(page: Any, served: str, second: str) -> None:
    page.goto(f"{served}#/runs")
    page.wait_for_selector("[data-beside]")
    page.locator("[data-beside]").focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.pair .panel').length === 4")
    assert second in page.locator(".pair h2").last.inner_text()
    with page.expect_response("**/api/curves*"):  # it asks again every few seconds
        pass
    drawn(page)
    assert page.evaluate("document.activeElement.dataset.beside")
    page.goto(f"{page.url}&again")
    until(page, "document.querySelectorAll('.pair .panel').length === 4")


def test_the_keyboard_moves_in_the_grid_and_draws_a_lasso(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    page.get_by_role("button", name="beside clean").click()
    until(page, "document.querySelectorAll('.tile:first-child img').length === 2")
    page.locator(".tile button").first.focus()
    row = (
        "new URL(document.activeElement.querySelector('.images img:last-child').src).searchParams.get('row')"
    )
    page.keyboard.press("ArrowRight")
    until(page, f"{row} === '1'")
    for _ in range(8):
        page.keyboard.press("ArrowDown")
        drawn(page)
    assert int(page.evaluate(row)) > 16
    assert page.evaluate("document.getElementById('grid').scrollTop") > 100
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog .here img")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="map", exact=True).click()
    page.wait_for_selector(".plot circle")
    inside = page.eval_on_selector_all(
        ".plot circle", "dots => dots.filter(dot => dot.cx.baseVal.value < 200).length"
    )
    page.locator(".plot").focus()
    for keys in (("ArrowUp", 20), (" ", 1), ("ArrowLeft", 20), (" ", 1), ("ArrowDown", 40), (" ", 1)):
        for _ in range(keys[1]):
            page.keyboard.press(keys[0])
    for _ in range(20):
        page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    page.keyboard.press("Enter")
    until(page, f"document.getElementById('status').textContent.startsWith('{inside} images')")


def test_a_tag_is_a_filter_at_once_and_the_order_can_be_reversed(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    first = page.locator(".tile").first.inner_text()
    page.get_by_label("Reverse the order").click()
    until(page, f"![{json.dumps(first)}, '', undefined].includes(document.querySelector('.tile')?.innerText)")
    page.get_by_role("button", name="tag", exact=True).click()
    page.get_by_label("Name").fill("seen")
    page.get_by_role("button", name="make").click()
    page.wait_for_selector("dialog pre")
    assert "attrs.tag.seen" in page.locator("dialog pre").inner_text()
    page.keyboard.press("Escape")
    until(page, "[...document.querySelectorAll('option')].some(option => option.value === 'tag.seen')")


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
    shown = page.locator("dialog .here").get_attribute("data-row")
    address = page.url
    assert "image=" in address
    page.keyboard.press("Escape")
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("dialog .here img")
    assert page.locator("dialog .here").get_attribute("data-row") == shown
    page.keyboard.press("Escape")
    page.get_by_label("Remove the filter on shift").click()
    until(page, "document.getElementById('status').textContent.startsWith('88 images')")


def test_a_lasso_on_the_map_becomes_a_filter(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    page.get_by_role("button", name="map", exact=True).click()
    page.wait_for_selector(".plot circle")
    assert page.locator(".plot circle").count() == 88
    box = page.locator(".plot").bounding_box()
    left, top, middle = box["x"] + 2, box["y"] + 2, box["x"] + box["width"] / 2
    inside = page.eval_on_selector_all(
        ".plot circle", "dots => dots.filter(dot => dot.cx.baseVal.value < 200).length"
    )
    page.mouse.move(left, top)
    page.mouse.down()
    for x, y in ((middle, top), (middle, top + box["height"] - 4), (left, top + box["height"] - 4)):
        page.mouse.move(x, y)
    page.mouse.up()
    until(page, f"document.getElementById('status').textContent.startsWith('{inside} images')")
    until(page, f"document.querySelectorAll('.plot circle').length === {inside}")
    assert 0 < inside < 88
    assert "map=1" in page.url


def test_a_trajectory_has_explanation_maps(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore?row=9")
    page.wait_for_selector("dialog .here img")
    page.locator("dialog summary").first.click()
    assert page.locator("dialog details[open] li").count() == 4
    page.get_by_label("explanation map").select_option("coarse")
    until(page, "document.querySelectorAll('dialog .here img.why').length === 1")
    assert "RISE" in page.locator("dialog .here small.why").inner_text()
    page.get_by_label("explanation map").select_option("")
    assert page.locator(".why").count() == 0
    # A printed trajectory stands alone, and the grid is whole again afterwards.
    page.emulate_media(media="print")
    assert not page.locator("#grid").is_visible()
    page.emulate_media(media="screen")
    page.keyboard.press("Escape")
    until(page, "document.querySelectorAll('.tile').length > 4")
    assert page.locator(".tile").first.bounding_box()["width"] > 100


def test_a_selection_is_annotated(page: Any, served: str, workbench: Workbench) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    page.get_by_role("button", name="annotate").click()
    page.get_by_label("Name").fill("all")
    page.get_by_label("Task").select_option("visible")
    page.get_by_role("button", name="make").click()
    page.wait_for_selector("dialog pre")
    assert "sorites annotate serve visible" in page.locator("dialog pre").inner_text()
    assert (workbench.selections / "all.sqlite").is_file()


def test_scrolling_shows_every_image_once(page: Any, served: str) -> None:
    page.goto(f"{served}#/explore")
    page.wait_for_selector(".tile img")
    seen: set[str] = set()
    for _ in range(40):
        seen |= set(page.eval_on_selector_all(".tile img", "images => images.map(image => image.src)"))
        page.evaluate("document.getElementById('grid').scrollBy(0, 300)")
        drawn(page)
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


def test_the_pointer_moves_over_the_field_of_a_lens(page: Any, served: str) -> None:
    page.goto(f"{served}#/lens")
    page.wait_for_selector(".answers article")
    page.locator("select[aria-label=Lens]").select_option("CookeTriplet")
    field = page.locator("svg.field").bounding_box()
    page.mouse.move(field["x"] + field["width"] / 2, field["y"] + field["height"] / 2)
    until(page, "/field=0(\\.0\\d*)?&/.test(location.hash) && location.hash.includes('CookeTriplet')")
    sharp = page.locator(".lens p.soft").last.inner_text()
    page.mouse.move(field["x"] + field["width"] * 0.8, field["y"] + field["height"] * 0.7)
    until(page, f"[...document.querySelectorAll('.lens p.soft')].at(-1).textContent !== {json.dumps(sharp)}")
    assert page.locator(".answers article").count() == 2
    page.get_by_role("slider", name="field").focus()
    page.keyboard.press("Home")
    until(page, "/field=0&/.test(location.hash)")
    page.locator("select[aria-label=Lens]").select_option("error decentre")
    page.get_by_role("slider", name="decentre, um").press("End")
    until(page, "location.hash.includes('error=decentre&size=40')")


def test_objects_that_a_detector_does_not_find_are_marked(
    page: Any, detected: Path, served_boxes: str
) -> None:
    page.goto(f"{served_boxes}#/runs")
    page.wait_for_selector(".panel svg polyline", state="attached")
    assert "Mean average precision" in page.locator("main").inner_text()
    page.goto(f"{served_boxes}#/turn")
    page.wait_for_selector(".answers article")
    count = page.locator(".answers article").inner_text()
    found, total = (int(part) for part in re.findall(r"finds (\d+) of (\d+)", count)[0])
    assert page.locator(".stage rect[stroke='#3fbf6a']").count() == found
    assert page.locator(".stage rect[stroke='#ff4d4d']").count() == total - found > 0
    page.goto(f"{served_boxes}#/explore?row=0")
    page.wait_for_selector("dialog .here rect[stroke='#ff4d4d']", state="attached")
    assert "finds" in page.locator("dialog .here").inner_text()


def test_a_webcam_gives_an_image(chromium_page: Any, served: str) -> None:
    chromium_page.goto(f"{served}#/turn")
    chromium_page.wait_for_selector(".answers article")
    chromium_page.get_by_role("button", name="webcam").click()
    until(chromium_page, "location.hash.includes('dropped')")
    until(chromium_page, "document.querySelector('.stage img').naturalWidth === 224")


READY = {
    "runs": ".panel",
    "explore": ".tile img",
    "explore?map=1": ".plot circle",
    "explore?row=9": "dialog .here img",
    "turn": ".answers article",
    "lens": ".answers article",
}


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core (MPL-2.0), from npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm fetches axe-core")
    archive = packages.pack(
        AXE, AXE_SHA256, cache("axe", AXE_SHA256[:16]), "Fetching axe-core (MPL-2.0).", "Install npm."
    )
    with tarfile.open(archive) as files:
        script = files.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser: Any, served: str, axe: str, scheme: str) -> None:
    # The page's policy admits no other script, so the checker needs a context without it.
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    context.set_default_timeout(BROWSER_MS)
    page = context.new_page()
    for view, ready in READY.items():
        page.goto("about:blank")
        page.goto(f"{served}#/{view}")
        page.wait_for_selector(ready)
        page.evaluate(axe)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        assert [(fault["id"], fault["impact"], fault["nodes"][0]["html"]) for fault in found] == [], view
    context.close()


def test_a_phone_needs_no_sideways_scrolling(page: Any, served: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for view, ready in READY.items():
        page.goto("about:blank")
        page.goto(f"{served}#/{view}")
        page.wait_for_selector(ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
