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
