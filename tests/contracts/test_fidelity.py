"""docs/fidelity.md names tests that exist, has a line for every equation and table, and counts its lines rightly."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
STATUSES = ("reproduced from released data", "from an independent computation", "not checkable here", "not built")
PAPERS = {
    "ImageNet-ES": {"Table": 17, "Figure": 13},
    "CNS-Bench": {"Equation": 6, "Table": 10, "Figure": 35},
    "OpticsBench": {"Equation": 5, "Table": 28, "Figure": 34},
    "FOCUS": {"Equation": 1, "Table": 4, "Figure": 14},
    "IS-OOD": {"Equation": 9, "Table": 8, "Figure": 20},
    "What": {},
}
"""The first word of each heading, and how many numbered equations, tables and figures its paper has."""


def parts() -> dict[str, tuple[str, list[list[str]]]]:
    """Return each paper's first paragraph and lines, a line as its four cells."""
    found = {}
    for text in PAGE.split("\n## ")[1:]:
        name = re.split(r"[ ,]", text)[0]
        lines = [(line.strip("| ") + " ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
        found[name] = (text.split("|")[0], [[cell.strip() for cell in [*line, ""][:4]] for line in lines[1:]])
    return found


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def named(cell: str) -> list[tuple[str, str]]:
    """Return the tests of a cell as (file, function); a function alone is in the file before it, a file alone has none."""
    found: list[tuple[str, str]] = []
    for one in re.findall(r"`([^`]*)`", cell):
        file, _, function = one.partition("::")
        found.append((file or found[-1][0], function.split("[")[0]))
    return found


def numbers(text: str, word: str) -> set[int]:
    """Return the numbers that stand behind a word: "Tables 8, 9 and 13–15", or in Roman numerals."""
    one = r"(?:\d+|[IVXL]+)[ab]?"
    found: set[int] = set()
    for held in re.findall(rf"\b{word}s? ({one}(?:(?:, | and |–){one}\b)*)", text):
        for part in re.split(r", | and ", held):
            first, _, last = part.partition("–")
            found |= set(range(number(first), number(last or first) + 1))
    return found


def number(text: str) -> int:
    plain = text.rstrip("ab")
    if plain.isdigit():
        return int(plain)
    values = [{"I": 1, "V": 5, "X": 10, "L": 50}[letter] for letter in plain]
    return sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0], strict=True))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_test_that_is_named_exists(paper: str) -> None:
    for what, _, status, checks in parts()[paper][1]:
        for file, function in named(checks):
            assert (ROOT / file).is_file(), f"{what}: no file {file}"
            assert not function or function in functions(file), f"{what}: {file} has no function {function}"
        for link in re.findall(r"\]\((.*?)\)", status + checks):
            assert (ROOT / "docs" / link).is_file(), f"{what}: no page {link}"


@pytest.mark.parametrize("paper", PAPERS)
def test_every_line_has_a_status_and_what_is_said_to_be_checked_says_where(paper: str) -> None:
    for what, says, status, checks in parts()[paper][1]:
        assert says, what
        assert status.startswith(tuple(f"*{name}*" for name in STATUSES)), f"{what}: {status}"
        if status.startswith(tuple(f"*{name}*" for name in STATUSES[:2])):
            assert "tests/" in checks or ".md)" in checks, f"{what}: no test and no page is named"


@pytest.mark.parametrize(("paper", "word"), [(paper, word) for paper, kinds in PAPERS.items() for word in kinds])
def test_every_equation_table_and_figure_has_a_line(paper: str, word: str) -> None:
    first, lines = parts()[paper]
    text = "\n".join([first if word == "Figure" else "", *(line[0] for line in lines)])
    assert numbers(text, word) == set(range(1, PAPERS[paper][word] + 1))


def test_the_lines_of_each_status_are_counted() -> None:
    told = {line.split("|")[1].strip(): [int(n) for n in re.findall(r"\d+", line)] for line in PAGE.splitlines() if counted(line)}
    held = [Counter(re.findall(r"^\*(.*?)\*", line[2])[0] for line in parts()[paper][1]) for paper in PAPERS]
    for status in STATUSES:
        each = [counts[status] for counts in held]
        assert told[status] == [*each, sum(each)]
    assert told["all"] == [*(counts.total() for counts in held), sum(counts.total() for counts in held)]


def counted(line: str) -> bool:
    return line.startswith(tuple(f"| {name} | " for name in (*STATUSES, "all")))
