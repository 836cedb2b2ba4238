"""docs/fidelity.md names tests and pages that exist, and every claim that is said to be checked names one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
STATUSES = (
    "reproduced from released data",
    "from an independent computation",
    "not checkable here",
    "not built",
)


def parts() -> dict[str, list[list[str]]]:
    """Return the table rows of each paper, a row as its four cells."""
    found = {}
    for text in PAGE.split("\n## ")[1:]:
        name = re.split(r"[ ,]", text)[0]
        lines = [(line.strip("| ") + " ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        found[name] = [[cell.strip() for cell in [*line, ""][:4]] for line in lines[1:]]
    return found


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def named(cell: str) -> list[tuple[str, str]]:
    """Return the tests of a cell as (file, function); a function alone is in the file before it, a
    file alone has none.
    """
    found: list[tuple[str, str]] = []
    for one in re.findall(r"`([^`]*)`", cell):
        file, _, function = one.partition("::")
        found.append((file or found[-1][0], function.split("[")[0]))
    return found


@pytest.mark.parametrize("paper", parts())
def test_every_test_that_is_named_exists(paper: str) -> None:
    for what, _, status, checks in parts()[paper]:
        for file, function in named(checks):
            assert (ROOT / file).is_file(), f"{what}: no file {file}"
            assert not function or function in functions(file), f"{what}: {file} has no function {function}"
        for link in re.findall(r"\]\((.*?)\)", status + checks):
            assert (ROOT / "docs" / link).is_file(), f"{what}: no page {link}"


@pytest.mark.parametrize("paper", parts())
def test_every_line_has_a_status_and_what_is_said_to_be_checked_says_where(paper: str) -> None:
    for what, says, status, checks in parts()[paper]:
        assert says, what
        assert status.startswith(tuple(f"*{name}*" for name in STATUSES)), f"{what}: {status}"
        if status.startswith(tuple(f"*{name}*" for name in STATUSES[:2])):
            assert "tests/" in checks or ".md)" in checks, f"{what}: no test and no page is named"
