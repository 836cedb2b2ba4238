"""The generated pages of the site: everything registered has its entry, and protocols belong to suites and papers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.apps.test_asking import leaf
from tools.site import ABOUT_SHIFTS, COMMON, metrics_page, plain, scorers_page
from tools.suite_pages import protocols, suite_pages, suites_page

from sorites.cli.about import papers, works
from sorites.core import METRICS, SCORERS
from sorites.suites.suite import builtin_suites

DOCS = Path(__file__).parents[2] / "docs"


def headings(text: str) -> set[str]:
    return {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}


def test_every_metric_and_scorer_has_an_entry_with_its_interval_or_paper() -> None:
    metrics, scorers = metrics_page(), scorers_page()
    assert headings(metrics) == set(METRICS.names())
    assert headings(scorers) == set(SCORERS.names())
    entries = re.split(r"^## ", metrics, flags=re.MULTILINE)[1:]
    assert [text.split("\n")[0] for text in entries if "\nInterval: " not in text] == []
    assert [text.split("\n")[0] for text in entries if "\nDefinition: " not in text] == []
    assert all("\nPaper: " in text for text in re.split(r"^## ", scorers, flags=re.MULTILINE)[1:])


def test_every_suite_has_a_page_and_is_listed() -> None:
    pages = suite_pages(lambda key: key)
    assert set(pages) == set(builtin_suites())
    listed = suites_page()
    for name, text in pages.items():
        assert f"suites/{name}" in listed
        assert text.startswith(f"# {name}\n")
        assert "## What it runs" in text


# Suites that follow no paper's protocol: images, models or shifts are ours, and only parts are from the papers.
OWN = {"boxes_demo", "cifar_optics", "is_ood_demo", "slider_demo", "tolerances"}


def test_every_suite_of_a_paper_has_its_protocol_beside_ours() -> None:
    told = protocols()
    assert set(told) <= set(builtin_suites())
    assert set(works()["suites"]) - OWN <= set(told)
    assert not OWN & set(told)
    pages = suite_pages(lambda key: key)
    for name, protocol in told.items():
        assert len(protocol["rows"]) >= 2, name
        assert {len(row) for row in protocol["rows"]} == {3}, name
        assert "## The paper's protocol beside ours" in pages[name]
        assert (DOCS / protocol["page"].partition("#")[0]).is_file(), name


@pytest.mark.parametrize("name", sorted(protocols()))
def test_the_command_of_a_protocol_is_one_that_there_is(name: str) -> None:
    found, words = leaf(shlex.split(protocols()[name]["command"])[1:])
    found.make_context(found.name, words)


def test_pages_about_shifts_exist() -> None:
    for page in (*(f"{name}.md" for name in ABOUT_SHIFTS), COMMON.partition("#")[0]):
        assert (DOCS / page).is_file()


def test_accents_of_bibtex_become_letters() -> None:
    assert plain(r"M{\"u}ller and Doll{\'a}r, {OpticsBench}") == "Müller and Dollár, OpticsBench"
    assert not [key for key, entry in papers().items() if "\\" in plain(entry) or '"u' in plain(entry)]
