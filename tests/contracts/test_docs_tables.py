"""Tables of the docs, held against the code: every suite key, every scorer with its parameters and
paper, every framework.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from sorites import core
from sorites.metrics.separation import FRAMEWORKS
from sorites.models.onnx import KEYS
from sorites.suites.suite import Composition, Dial, Distance, Fit, Frame, Grid, SourceEntry, Suite, Validation

DOCS = Path(__file__).parents[2] / "docs"
PARTS: dict[str, type[BaseModel]] = {
    "": Suite,
    "frame": Frame,
    "shifts": Dial,
    "grid": Grid,
    "compose": Composition,
    "sources": SourceEntry,
    "fit": Fit,
    "fit.validation": Validation,
    "distance": Distance,
}


def lines(page: str, heading: str) -> Iterator[list[str]]:
    """Yield the cells of the first table after a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    for line in table[0].splitlines()[2:]:
        yield [cell.strip() for cell in line[1:-1].split("|")]


def parameters(name: str) -> dict[str, Any]:
    known = inspect.signature(core.SCORERS.get(name)).parameters.values()
    return {one.name: one.default for one in known if one.name != "outputs"}


def test_every_scorer_stands_there_with_its_parameters_needs_and_paper() -> None:
    rows = {cells[0].strip("`"): cells for cells in lines("scorers.md", "## All of them")}
    assert list(rows) == core.SCORERS.names()
    paper = ""
    for name, (_, typed, needs, _, told) in rows.items():
        paper = paper if told == "the same" else told
        written = dict(part.split("=") for part in re.findall(r"`([^`]+)`", typed))
        assert written == {key: str(value) for key, value in parameters(name).items()}, name
        assert [need for need in needs.split(", ") if need] == sorted(core.scorer(name).needs), name
        authors = re.search(
            r"\(([^()]*\d{4})\)", " ".join((inspect.getdoc(core.SCORERS.get(name)) or "").split())
        )
        assert authors is not None
        assert paper.startswith(authors[1]), name


def test_every_framework_stands_there() -> None:
    found = [cells[0].strip("`") for cells in lines("scorers.md", "## Which framework asks what")]
    assert found == list(FRAMEWORKS)


@pytest.mark.parametrize("part", PARTS)
def test_every_key_of_a_suite_stands_there_with_its_default(part: str) -> None:
    brackets = f"[[{part}]]" if part in ("shifts", "grid", "compose", "sources") else f"[{part}]"
    heading = f"## `{brackets}`" if part else "## The suite itself"
    rows = {cells[0].strip("`"): cells[1] for cells in lines("suites.md", heading)}
    fields = PARTS[part].model_fields
    assert list(rows) == list(fields)
    for key, default in rows.items():
        if (part, key) == ("", "name"):
            continue  # a file's name, which the reader puts in
        assert default == spelled(fields[key]), f"{part}.{key}"


def spelled(field: Any) -> str:
    """A default as the docs spell it: nothing for a key that must be given, and for one that is absent."""
    if field.default is PydanticUndefined:
        return "" if field.default_factory is not None else "must be given"
    if field.default is None or field.default in ((), ""):
        return ""
    return (
        f"`{str(field.default).lower() if isinstance(field.default, bool) else repr(field.default)}`".replace(
            "'", '"'
        )
    )


def test_every_key_of_an_onnx_files_json_stands_there() -> None:
    found = [cells[0].strip("`") for cells in lines("models.md", "### What an ONNX file cannot say itself")]
    assert found == list(KEYS)
