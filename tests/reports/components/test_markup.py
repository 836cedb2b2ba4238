from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sorites.reports.components.markup import (
    Html,
    between,
    count,
    folded,
    grid,
    join,
    number,
    percent,
    points,
    safe,
    several,
    tag,
)


class Reader(HTMLParser):
    """Parse markup with the standard library: tags, attributes and text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attrs: dict[str, str | None] = {}
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attrs |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
@given(st.text(), st.text())
def test_text_and_attributes_come_back_as_they_were_and_never_as_tags(text: str, value: str) -> None:
    read = Reader(tag("p", text, title=value))
    assert read.tags == ["p"]
    assert read.text == text
    assert read.attrs == {"title": value}


def test_markup_is_kept_and_text_is_not() -> None:
    assert join([Html("<b>"), "<b>"]) == "<b>&lt;b&gt;"
    assert tag("p", tag("b", "a&b"), " < c") == "<p><b>a&amp;b</b> &lt; c</p>"
    assert safe(Html("&amp;")) == "&amp;"


def test_attributes() -> None:
    assert (
        tag("input", checked=True, hidden=False, value=None, cls="a", for_="b", data_pick="c")
        == '<input checked class="a" for="b" data-pick="c">'
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.0, "0"),
        (0.131234, "0.131"),
        (10.0, "10"),
        (123456.0, "123,000"),
        (-2.5, "−2.5"),
    ],
)
def test_numbers_are_short_and_missing_is_a_dash(value: float | None, said: str) -> None:
    assert number(value) == said


def test_units() -> None:
    assert percent(0.1234) == "12.3\u202f%"
    assert percent(None) == "–"
    assert points(-0.05) == "−5.0\u202fpoints"
    assert points(None) == "–"
    assert between(percent(0.1), percent(0.2)) == "10.0 to 20.0\u202f%"
    assert between("10\u202f%", "beyond") == "10\u202f% to beyond"
    assert count(1234567) == "1\u202f234\u202f567"
    assert (several(1, "model"), several(2, "model")) == ("1 model", "2 models")


def test_a_grid_sets_numbers_right_and_names_its_rows() -> None:
    made = grid(["shift", "n"], [["<fog>", 3]], caption="counts")
    assert '<th scope="row" class="word">&lt;fog&gt;</th><td class="num">3</td>' in made
    assert "<caption>counts</caption>" in made


def test_a_long_table_is_closed_and_its_line_counts_its_rows() -> None:
    table = grid(["shift"], [["fog"]])
    assert folded("What <it> holds", table, 4) == f'<article class="card">{table}</article>'
    assert (
        folded("What <it> holds", table, 5) == '<details class="fold"><summary>What &lt;it&gt; holds <small>5'
        f" rows</small></summary>{table}</details>"
    )
