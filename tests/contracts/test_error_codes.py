"""Every code of an error and of a notice is listed in docs/errors.md, with its class and fields."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import sorites
from sorites.core import errors

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
SOURCE = Path(sorites.__file__).parent


def section(title: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading by their first cell."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:2] == "| "
    ]
    return {row[0].strip("`"): row[1:] for row in rows[1:] if not row[0].startswith("--")}


def test_every_error_of_the_core_is_listed_with_its_class() -> None:
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    expected = {kind.code: f"`{kind.__name__}`" for kind in classes if issubclass(kind, errors.SoritesError)}
    assert {code: row[0] for code, row in section("Codes of errors").items()} == expected


def test_every_notice_of_the_library_is_listed() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")]
    used = {code for text in texts for code in re.findall(r"\bcode=\"([^\"]*)\"", text)}
    assert section("Codes of notices").keys() == used


def test_errors_keep_class_code_and_fields_across_processes() -> None:
    made = [
        errors.InvalidOption("bins", "too small", got=0),
        errors.MissingFile("a/b", "gone"),
        errors.UnfinishedRun("run", "not done"),
        errors.IncompatibleRun("run", "other", differs="seed"),
        errors.TooManyErrors("run", 4, 3, "x"),
        errors.BatchTooLarge("m", 8),
    ]
    listed = section("Codes of errors")
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), again.code, again.fields, again.message) == (
            type(error),
            error.code,
            error.fields,
            error.message,
        )
        documented = set(re.findall(r"`(\w+)`", listed[error.code][1]))
        assert documented <= error.fields.keys()
