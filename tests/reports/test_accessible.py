"""Accessibility checks with axe-core from npm, in light and dark mode, on a phone and a screen."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sorites import reports
from sorites.reports.view import RunView

pytestmark = pytest.mark.slow

VERSION = "axe-core@4"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the script of axe-core; skip if npm cannot fetch it."""
    npm, folder = shutil.which("npm"), tmp_path_factory.mktemp("axe")
    if npm is None:
        pytest.skip("needs npm")
    done = subprocess.run(
        [npm, "install", "--silent", "--no-save", VERSION], cwd=folder, capture_output=True, timeout=120
    )
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if done.returncode or not script.is_file():
        pytest.skip("npm could not fetch axe-core")
    return script.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def path(run: RunView, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reports.page([run], tmp_path_factory.mktemp("accessible") / "report.html")


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("light", 1280), ("dark", 1280)])
def test_no_serious_fault(browser: Any, path: Path, axe: str, scheme: str, width: int) -> None:
    """axe-core reports no serious or critical violation."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True, offline=True
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    context.close()
    assert [
        (fault["id"], fault["nodes"][0]["html"][:200])
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ] == []


def test_charts_have_addresses_and_numbers(browser: Any, path: Path) -> None:
    """Charts have links, numbers are available as CSV, and a search filters sections."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, offline=True, accept_downloads=True
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    ids = page.evaluate("[...document.querySelectorAll('.chart')].map(c => c.id)")
    assert len(set(ids)) == len(ids) > 3
    beside = (
        "[...document.querySelectorAll('.chart')].map(c => c.nextElementSibling.nextElementSibling.className)"
    )
    assert page.evaluate(beside) == ["tools"] * len(ids)
    with page.expect_download(timeout=60_000) as started:
        page.locator("#curves .tools a[download]").first.click()
    lines = Path(started.value.path()).read_text(encoding="utf-8").splitlines()
    assert lines[0] == "series,x,y,error"
    drawn = page.evaluate(
        "document.querySelector('#curves .chart')._fullData.reduce((n, t) => n + t.x.length, 0)"
    )
    assert len(lines) == drawn + 1
    page.get_by_label("Search the sections").fill("zzzz nothing")
    assert page.locator("nav li:visible a").count() == 0
    page.get_by_label("Search the sections").fill("accuracy severity")
    assert page.locator("nav li:visible a").count() > 0
    context.close()
