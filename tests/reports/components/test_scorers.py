"""Shared parts of the sections on OOD scores, and their page in Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sorites import reports
from sorites.reports.components.scorers import estimate, scorer_pen, scorers
from sorites.reports.view import RunView, merge

SECTIONS = ("ood", "histograms", "degrees", "abstain")


def test_scorers_follow_the_suite(ood_run: RunView) -> None:
    assert scorers(merge([ood_run])) == ("msp", "energy", "<b>knn</b>")


def test_a_missing_number_is_a_dash() -> None:
    assert estimate(None) == estimate({"value": None}) == "–"
    assert (
        estimate({"value": 0.5, "low": 0.4, "high": 0.6}, "n = 3")
        == "50.0\u202f%<small>40.0 to 60.0\u202f%, n = 3</small>"
    )


def test_many_scorers_have_distinct_pens() -> None:
    names = [f"s{i}" for i in range(20)]
    assert len({(drawn.colour, drawn.dash) for drawn in (scorer_pen(names, name) for name in names)}) == 20


@pytest.fixture(scope="module")
def ood_page(ood_run: RunView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.page([ood_run], tmp_path_factory.mktemp("scorers") / "odd.html")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
def test_the_page_is_silent_and_fits(browser: Any, ood_page: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(ood_page.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [page.locator(f"#{name}").count() for name in SECTIONS] == [1, 1, 1, 1]
    assert page.locator("#degrees .heat:visible").count() == 2
    page.locator("#degrees .picker label", has_text="energy").click()
    assert page.locator("#degrees .heat:visible").count() == 2
    assert page.locator("#degrees .picks:visible h3").nth(1).text_content() == "lite0 · energy"
    assert page.locator("#histograms .picks:visible h3").nth(1).text_content() == "lite0 · msp"
    hatched = page.locator("#degrees .heat .thin").first
    assert "repeating-linear-gradient" in hatched.evaluate("cell => getComputedStyle(cell).backgroundImage")
    context.close()


@pytest.mark.slow
def test_long_tables_open_by_key_and_on_paper(browser: Any, crowded_run: RunView, tmp_path: Path) -> None:
    path = reports.page([crowded_run], tmp_path / "crowded.html")
    context = browser.new_context(viewport={"width": 390, "height": 900}, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate(
        "[...document.querySelectorAll('.chart')].every(chart => chart.querySelector('.trace'))"
    )
    is_open = "[...document.querySelectorAll('details.fold')].map(fold => fold.open)"
    assert page.evaluate(is_open) == [False] * 7
    page.locator("#ood summary").first.press("Enter")
    assert page.evaluate(is_open) == [True] + [False] * 6
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(is_open) == [True] * 7
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(is_open) == [True] + [False] * 6
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
