"""What to cite for a suite."""

from __future__ import annotations

import re

import pytest

from sorites.cli.about import cite, keys_of, papers, works
from sorites.core import SCORERS, SHIFTS
from sorites.core.errors import SoritesError
from sorites.suites.suite import builtin_suites, load


def test_every_key_has_an_entry_and_every_name_exists() -> None:
    known = works()
    assert set(known["suites"]) <= set(builtin_suites())
    assert {name for names in known["shifts"].values() for name in names} <= set(SHIFTS.names())
    assert set(known["scorers"]) == set(SCORERS.names())
    used = {key for keys in (*known["suites"].values(), *known["scorers"].values()) for key in keys} | set(
        known["shifts"]
    )
    assert used == set(papers())


def test_entries_are_whole_bibtex() -> None:
    for key, entry in papers().items():
        assert entry.count("{") == entry.count("}")
        assert re.match(rf"@\w+\{{{key},\n", entry)
        for field in ("title", "author", "year"):
            assert re.search(rf"^  {field} = \{{.+\}},?$", entry, re.MULTILINE), (key, field)


@pytest.mark.parametrize("name", builtin_suites())
def test_every_suite_has_papers_or_only_what_is_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    cite(name)
    text = capsys.readouterr().out
    assert text.startswith("@software{sorites,")
    assert all(papers()[key] in text for key in keys_of(load(name)))


def test_a_suite_brings_its_shifts_and_scorers() -> None:
    assert keys_of(load("optics_bench"))[:2] == ["muller2025aberrations", "muller2023opticsbench"]
    assert "hendrycks2019imagenetc" in keys_of(load("demo"))
    assert "liu2020energy" in keys_of(load("stamps_ood"))
    with pytest.raises(SoritesError, match="Did you mean demo"):
        cite("dmo")
