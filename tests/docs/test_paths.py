"""Paths that the documentation names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DESIGN = (ROOT / "docs/design.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:[a-z_]+/)+\w+\.py|(?:[a-z_]+/){2,})`", DESIGN)))
)
def test_files_named_by_the_design_exist(path: str) -> None:
    assert (ROOT / "src/sorites" / path).exists() or (ROOT / path).exists()


TRUST = (ROOT / "docs/trust.md").read_text(encoding="utf-8")


def test_tests_named_by_the_guarantees_exist() -> None:
    """A test without a file is one of those that the same cell names before it."""
    files = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    known = {name for text in files.values() for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    paths = set(re.findall(r"`((?:tests|proof|bench)/[\w/]+\.py)", TRUST))
    assert len(paths) > 30
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    assert sorted({name for name in re.findall(r"\b(test_\w+)`", TRUST) if name not in known}) == []
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TRUST)
    assert [one for one in named if f"def {one[1]}(" not in files[ROOT / one[0]]] == []
