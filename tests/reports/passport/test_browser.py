"""The page of a passport in Chromium, from a file, without network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sorites.reports.passport.passport import passport

pytestmark = pytest.mark.slow


def test_it_fits_every_screen_and_paper_and_asks_for_nothing(home: Path, browser: Any) -> None:
    passport("python:guessing:logits", battery="mine.toml", out="p")
    address = (home / "p/passport.html").as_uri()
    for width, scheme in ((390, "light"), (1280, "dark"), (1920, "light")):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        page, asked, said = context.new_page(), [], []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        page.on("console", lambda message, said=said: said.append(message.text))
        page.goto(address)
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert [url for url in asked if url != address and not url.startswith("data:")] == []
        assert said == []
        assert page.locator(".ladder li:not(.part)").count() == 3
        assert page.locator("details[open]").count() == 0
        context.close()
    page = browser.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()
