from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from sorites import reports
from sorites.core.errors import SoritesError
from sorites.reports.view import RunView

EVIL = "<script>alert('m')</script>\"><img src=x onerror=alert(1)>%{x}"


class Scripts(HTMLParser):
    """Collect the scripts and tags of a page with the standard library."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.kinds: list[str | None] = []
        self.images: list[str] = []
        self.links: list[str] = []
        self._inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert not any(name.startswith("on") for name in given), given
        if tag == "script":
            self.scripts.append("")
            self.kinds.append(given.get("type"))
            self._inside = True
        self.images += [given["src"] or ""] if tag == "img" else []
        self.links += [value or "" for name, value in given.items() if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def text(run: RunView, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "deep" / "report.html"
    assert reports.page([run], out) == out
    return out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_one_file_that_points_nowhere_else(text: str) -> None:
    links = Scripts(text).links
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)


def test_only_our_two_scripts_may_run(text: str) -> None:
    read = Scripts(text)
    code = [script for script, kind in zip(read.scripts, read.kinds, strict=True) if kind is None]
    assert len(code) == 2
    allowed = re.findall(r"'sha256-([^']+)'", text.partition("Content-Security-Policy")[2].partition(">")[0])
    assert allowed == [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in code]


def test_the_drawing_library_is_inlined_once(text: str) -> None:
    assert text.count("plotly.js v") == 1
    assert len(text) < 4.9e6 + 1.5e6


def test_the_footer_says_what_made_it(text: str) -> None:
    footer = text.partition("<footer>")[2]
    for told in (
        "made_up",
        "numpy 2.4.0",
        "5d41402abc4b2a76",
        "resize 200",
        "<dt>seed</dt><dd>7</dd>",
        "Wilson",
        "Survivors",
    ):
        assert told in footer


def test_every_chart_has_words_for_those_who_cannot_see_it(text: str) -> None:
    charts = re.findall(r'<div class="chart"[^>]*>', text)
    assert len(charts) == 3 * 4 + 2 + 3, "and one of abstaining for each of three models"
    assert all('role="figure"' in chart and 'aria-label="' in chart for chart in charts)


@pytest.mark.slow
def test_hostile_names_stay_words(run: RunView, tmp_path: Path) -> None:
    evil = run.table.with_columns(
        pl.when(pl.col("model") == "lite1").then(pl.lit(EVIL)).otherwise("model").alias("model"),
        pl.lit(EVIL).alias("sample_id") + pl.col("sample_id"),
        pl.when(pl.col("error").is_not_null()).then(pl.lit(EVIL)).alias("error"),
    )
    suite = run.suite.model_copy(update={"about": EVIL, "source": EVIL, "reference": EVIL})
    record = run.record.having(run_id=EVIL, suite=suite)
    hostile = dataclasses.replace(
        run, table=evil, name=EVIL, record=record, image=lambda *_: run.image("a", "clean", 0)
    )  # type: ignore[misc]
    text = reports.page([hostile], tmp_path / "r.html").read_text(encoding="utf-8")
    read = Scripts(text)
    assert sum(kind is None for kind in read.kinds) == 2
    assert all(image.startswith("data:image/webp") for image in read.images)
    assert "<script>alert" not in text
    assert "<img src=x" not in text


@pytest.mark.slow
def test_the_same_run_gives_the_same_page(run: RunView, tmp_path: Path) -> None:
    light = dataclasses.replace(run, image=None)
    shuffled = dataclasses.replace(
        light, table=run.table.collect().sample(fraction=1, shuffle=True, seed=1).lazy()
    )
    pages = [reports.page([each], tmp_path / "r.html").read_bytes() for each in (light, shuffled)]
    assert pages[0] == pages[1]


@pytest.mark.slow
def test_a_bare_table_and_an_empty_one(run: RunView, tmp_path: Path) -> None:
    bare = reports.page([reports.RunView(run.table, "bare")], tmp_path / "bare.html").read_text(
        encoding="utf-8"
    )
    assert 'id="curves"' in bare
    assert 'id="strips"' not in bare
    empty = reports.page([reports.RunView(run.table.head(0), "empty")], tmp_path / "empty.html").read_text(
        encoding="utf-8"
    )
    assert "No image was evaluated." in empty
    assert len(empty) < 60_000, "a page without charts does not carry the drawing library"


def test_the_numbers_can_be_copied(text: str) -> None:
    table = text.partition("<details>")[2].partition("</details>")[0]
    assert table.count("<tr>") == 1 + 3 * (1 + 3 * 5)


@pytest.mark.slow
def test_a_place_that_cannot_be_written_is_a_clear_error(run: RunView, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="cannot write"):
        reports.page([dataclasses.replace(run, image=None)], tmp_path)
