"""The site is built without a warning, has no broken link and fetches nothing; its search answers the questions."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote, urldefrag, urlsplit

import pytest

from sorites.apps.asking import questions
from sorites.io import packages

ROOT = Path(__file__).parents[2]
AXE = ("axe-core@4.14.0", "2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af")
LOOKED_AT = (
    "index", "start", "why", "search", "ci", "metrics", "generated/questions", "generated/questions/which-lens",
    "generated/suites/optics_bench", "generated/verbs",
)  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="needs the extra docs: make docs"),
]


class Page(HTMLParser):
    """The anchors, links and loaded files of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in ("script", "link", "img", "iframe"):
            self.loaded += [found[name] for name in ("src", "href") if name in found]


def html_files(site: Path) -> list[Path]:
    """Return the pages of a site, without the templates of its theme."""
    return [path for path in site.rglob("*.html") if "_static" not in path.relative_to(site).parts]


def broken(site: Path) -> list[str]:
    """List the links and loaded files of a site that lead nowhere."""
    pages = {path: Page(path) for path in html_files(site)}
    wrong = []
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            where, anchor = urldefrag(link)
            if urlsplit(where).scheme:
                continue
            target = (path.parent / unquote(urlsplit(where).path)).resolve() if where else path
            if not target.is_file() or (
                anchor and target in pages and unquote(anchor) not in pages[target].ids
            ):
                wrong.append(f"{path.relative_to(site)}: {link}")
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site").resolve() / "site"
    command = [sys.executable, "-m", "tools.site", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_no_link_is_broken_and_nothing_is_fetched(site: Path) -> None:
    assert broken(site) == []
    loaded = [file for path in html_files(site) for file in Page(path).loaded]
    assert len(loaded) > 100
    assert [
        file for file in loaded if urlsplit(file).scheme not in ("", "data") or file.startswith("//")
    ] == []


def test_a_broken_link_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x">1</a><a href="b.html#y">2</a><img src="c.png">')
    (tmp_path / "b.html").write_text('<p id="x"><a href="a.html">3</a><a href="https://example.org">4</a>')
    assert broken(tmp_path) == ["a.html: b.html#y", "a.html: c.png"]


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# What a user of timm would type, and the pages of which one must be among the first three results.
TYPED = {
    "timm resnet50": ("generated/questions/own-images", "start"),
    "timm preprocessing": ("models", "generated/questions/own-images"),
    "mCE ImageNet-C": ("generated/questions/mce",),
    "jpeg quality": ("generated/questions/jpeg",),
    "threshold reject": ("generated/questions/threshold",),
    "int8 onnx": ("generated/questions/quantised",),
    "augmentation dataloader": ("generated/questions/in-my-pipeline",),
    "CI regression": ("ci", "generated/questions/ci-gate"),
    "FPR95": ("generated/questions/which-scorer", "scorers"),
    "custom corruption": ("generated/questions/own-shift",),
    "expected calibration error": ("generated/questions/calibration",),
    "resume interrupted": ("generated/questions/large-runs",),
    "jupyter": ("generated/questions/python",),
    "sample size": ("generated/questions/how-many",),
    "wandb": ("generated/questions/other-tools", "integrations"),
}


def searched(address: str, browser: Any, asked: Iterable[str]) -> dict[str, list[str]]:
    """Type each text into the search of the site; return the pages of its first three results."""
    found = {}
    page = browser.new_page()
    page.set_default_timeout(120_000)
    for text in asked:
        page.goto(f"{address}/search.html?q={quote_plus(text)}")
        page.wait_for_function(
            "document.querySelector('.search-summary') && /found|did not match/.test(document.querySelector('.search-summary').innerText)"
        )
        links = page.eval_on_selector_all(
            "ul.search li > a", "found => found.slice(0, 3).map(a => a.getAttribute('href'))"
        )
        found[text] = [re.split(r"\.html", link)[0] for link in links]
    page.close()
    return found


def test_the_search_of_the_site_answers_every_question(address: str, browser: Any) -> None:
    found = searched(address, browser, [*(one.question for one in questions()), *TYPED])
    right = {one.question: (f"generated/questions/{one.name}",) for one in questions()} | TYPED
    assert {text: pages for text, pages in found.items() if not set(pages) & set(right[text])} == {}


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    if shutil.which("npm") is None:
        pytest.skip("npm fetches axe-core")
    archive = packages.pack(
        *AXE, tmp_path_factory.mktemp("axe"), "Fetching axe-core (MPL-2.0).", "Install npm."
    )
    with tarfile.open(archive) as tar:
        found = tar.extractfile("package/axe.min.js")
        assert found is not None
        return found.read().decode("utf-8")


def test_ten_pages_are_accessible_and_fit_a_phone(address: str, browser: Any, axe: str) -> None:
    for width in (390, 1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(120_000)
        for name in LOOKED_AT:
            page.goto(f"{address}/{name}.html")
            page.evaluate(axe)
            found = page.evaluate("axe.run()")
            assert [fault["id"] for fault in found["violations"]] == [], (name, width)
            assert len(found["passes"]) > 10
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        page.close()
