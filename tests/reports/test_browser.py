"""The page in Chromium, from a file, without network."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sorites import reports
from sorites.reports.view import RunView

pytestmark = pytest.mark.slow

VISIBLE = (
    # Charts of one model each, whose lines are scorers, are not switched.
    "Array.from(document.querySelectorAll('.chart')).filter(c => !c.closest('#abstain')).map(c =>"
    " c.data.filter(t => t.visible === true).map(t => t.legendgroup))"
)


class Visit:
    """An open page, with its requests and console errors."""

    def __init__(self, browser: Any, path: Path, width: int, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)


@pytest.fixture(scope="module")
def path(run: RunView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.page([run], tmp_path_factory.mktemp("browser") / "report.html")


@pytest.fixture(scope="module")
def visit(browser: Any, path: Path) -> Iterator[Visit]:
    """The page, opened once: tests that hide models show them again."""
    made = Visit(browser, path, 1400)
    yield made
    made.context.close()


@pytest.mark.long
def test_it_opens_from_a_file_without_a_request_or_a_complaint(visit: Visit, path: Path) -> None:
    outside = [url for url in visit.requests if url != path.as_uri() and not url.startswith("data:")]
    assert outside == []
    assert visit.complaints == []
    assert visit.page.locator(".chart .main-svg").count() >= 14
    assert visit.page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")


def test_a_click_in_a_legend_hides_the_model_everywhere_and_another_brings_it_back(visit: Visit) -> None:
    before = visit.page.evaluate(VISIBLE)
    curves = visit.page.locator("#curves .chart").first.locator(".scatterlayer .trace")
    assert curves.count() == 6
    toggle = visit.page.locator("#curves .chart").first.locator(".legendtoggle").first
    toggle.click()
    visit.page.wait_for_function(
        f"{VISIBLE}.every(shown => !shown.includes('lite0') && shown.includes('lite1'))"
    )
    assert curves.count() == 4
    toggle.click()
    visit.page.wait_for_function(f"{VISIBLE}.every(shown => shown.includes('lite0'))")
    assert visit.page.evaluate(VISIBLE) == before
    assert curves.count() == 6


def test_a_double_click_shows_a_model_alone_and_another_shows_all(visit: Visit) -> None:
    before = visit.page.evaluate(VISIBLE)
    legend = visit.page.locator("#ranks .chart").first.locator(".legendtoggle").nth(1)
    legend.dblclick()
    visit.page.wait_for_function(
        f"{VISIBLE}.every(shown => shown.length && shown.every(model => model === 'lite1'))"
    )
    visit.page.wait_for_timeout(500)
    legend.dblclick()
    visit.page.wait_for_function(f"{VISIBLE}.every(shown => shown.includes('lite0'))")
    assert visit.page.evaluate(VISIBLE) == before


def test_keys_hide_a_model_as_a_click_does(visit: Visit) -> None:
    key = visit.page.locator("#curves .chart").first.locator(".legendtoggle").first
    assert key.get_attribute("tabindex") == "0"
    key.focus()
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function(
        f"{VISIBLE}.every(shown => !shown.includes('lite0') && shown.includes('lite1'))"
    )
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_function(f"{VISIBLE}.every(shown => shown.includes('lite0'))")


def test_hover_shows_n(visit: Visit) -> None:
    chart = visit.page.locator("#curves .chart").first
    chart.scroll_into_view_if_needed()
    chart.locator(".scatterlayer .points path").nth(1).hover(force=True)
    visit.page.wait_for_selector("#curves .hoverlayer text >> text=n = 60")


def test_the_gallery_shows_what_its_menus_choose(visit: Visit) -> None:
    gallery = visit.page.locator("#strips .gallery")
    shown = "g => [...g.querySelectorAll('[data-facts]')].filter(i => !i.hidden).map(i => JSON.parse(i.dataset.facts))"
    assert {facts["shift"] for facts in gallery.evaluate(shown)} == {"defocus_disk"}
    gallery.locator("[data-fact=shift]").select_option("jpeg")
    gallery.locator("[data-fact=model]").select_option("lite1")
    chosen = gallery.evaluate(shown)
    assert {(facts["shift"], facts["model"]) for facts in chosen} == {("jpeg", "lite1")}
    assert gallery.locator(".shown").inner_text().startswith(f"{len(chosen)} of ")
    gallery.locator("[data-fact=shift]").select_option("")
    assert len(gallery.evaluate(shown)) > len(chosen)


@pytest.mark.parametrize("widths", [(360, 420, 768), (1400, 2200)])
def test_no_screen_scrolls_sideways(browser: Any, path: Path, widths: tuple[int, ...]) -> None:
    """The page is opened on a phone and on a screen, and the window is then made wider."""
    visit = Visit(browser, path, widths[0])
    visit.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for width in widths:
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.wait_for_function(f"innerWidth === {width}")
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    visit.context.close()


def test_dark_and_light_follow_the_reader(browser: Any, path: Path) -> None:
    visit = Visit(browser, path, 800, color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('.chart').layout.font.color"
    dark = visit.page.evaluate(f"[{ground}, {ink}]")
    visit.page.emulate_media(color_scheme="light")
    visit.page.wait_for_function(f"{ink} !== '{dark[1]}'")
    assert visit.page.evaluate(ground) != dark[0]
    visit.context.close()


def test_it_prints(visit: Visit, tmp_path: Path) -> None:
    visit.page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 50_000


@pytest.mark.parametrize(
    ("evil", "legend"),
    [
        (
            "<img src=x onerror=document.title='pwned'><script>document.title='pwned'</script>",
            ".legend-bar button",
        ),
        ("<b>%{x}</b>", ".chart:first-of-type .legendtext"),
    ],
)
def test_hostile_names_are_shown_as_they_are_and_run_nothing(
    browser: Any, run: RunView, tmp_path: Path, evil: str, legend: str
) -> None:
    failed = pl.when(pl.col("error").is_not_null()).then(pl.lit(evil))
    table = run.table.with_columns(pl.col("model").replace("lite1", evil), failed.alias("error"))
    path = reports.page(
        [dataclasses.replace(run, table=table, name=evil, image=None)], tmp_path / "evil.html"
    )
    visit = Visit(browser, path, 1000)
    assert visit.complaints == []
    assert not visit.page.title().startswith("pwned")
    assert visit.page.evaluate("document.querySelectorAll('img').length") == 0
    assert evil in visit.page.locator(f"#curves {legend}").all_text_contents()
    visit.context.close()


def test_many_models_are_switched_by_buttons(browser: Any, run: RunView, tmp_path: Path) -> None:
    long = [run.table.with_columns(model=pl.col("model") + f"-with-a-rather-long-name-{i}") for i in range(3)]
    path = reports.page([reports.RunView(pl.concat(long), "crowd")], tmp_path / "crowd.html")
    visit = Visit(browser, path, 420)
    assert visit.page.locator("section:not(#abstain) .legendtoggle").count() == 0
    button = visit.page.locator("#curves .legend-bar button").first
    name = button.text_content()
    button.click()
    visit.page.wait_for_function(f"{VISIBLE}.every(shown => !shown.includes('{name}'))")
    assert button.get_attribute("aria-pressed") == "false"
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visit.context.close()


@pytest.mark.parametrize("which", ["es_run", "graded_run"])
def test_pages_of_several_sets_fit_every_screen_without_a_complaint(
    browser: Any, request: pytest.FixtureRequest, tmp_path: Path, which: str
) -> None:
    path = reports.page([request.getfixturevalue(which)], tmp_path / "sets.html")
    narrow = (
        "[...document.querySelectorAll('#ood .heat.named tbody th')].filter(t => t.clientHeight > 60).length"
    )
    for width in (360, 1400):
        visit = Visit(browser, path, width)
        visit.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert visit.complaints == []
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.page.evaluate(narrow) == 0
        visit.context.close()
