"""Text files, JSON and TOML.

A byte order mark is no part of the text; nesting without end and numbers of thousands of digits are
mistakes of the file and not of the program.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.io.paths import reason, whole_bytes

# The most bytes of a text file.
LARGEST = 256 << 20

# The most digits of a whole number in a name or an option: every such number fits into 64 bits.
DIGITS = 18


# The most bytes of a JSON file of which only some keys are kept; parsed whole, it would take
# several times as much memory.
LARGEST_JSON = 1 << 30

# Takes each object of a JSON file as it is read, and returns what is kept of it.
Slim = Callable[[dict[str, Any]], Any]


def text(path: Path, wanted: str = "", most: int = LARGEST) -> str:
    """Return a file as UTF-8 text, without its byte order mark; ``wanted`` says in messages what
    the file should be.
    """
    try:
        return whole_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SoritesError(f"cannot read {path}: it is not UTF-8 ({reason(error)}){_hint(wanted)}") from error
    except SoritesError as error:
        raise SoritesError(f"{error}{_hint(wanted)}") from error


def lines(path: Path, wanted: str = "") -> list[str]:
    """Return the lines of a text file."""
    return text(path, wanted).splitlines()


def json_file(path: Path, wanted: str = "", slim: Slim | None = None) -> Any:
    """Return what a JSON file holds, or what ``slim`` keeps of it, so that a large file of
    annotations fits into memory.
    """
    if slim is None:
        return _parsed(path, json_value, "JSON", wanted)
    return _parsed(path, lambda content: json_value(content, slim), "JSON", wanted, LARGEST_JSON)


def toml_file(path: Path, wanted: str = "") -> dict[str, Any]:
    """Return the table of a TOML file."""
    found: dict[str, Any] = _parsed(path, toml_table, "TOML", wanted)
    return found


def _parsed(path: Path, parse: Callable[[str], Any], kind: str, wanted: str, most: int = LARGEST) -> Any:
    content = text(path, wanted, most)
    try:
        return parse(content)
    except ValueError as error:
        raise SoritesError(f"{path}: not valid {kind}: {error}{_hint(wanted)}") from error


def json_value(content: str | bytes, slim: Slim | None = None) -> Any:
    """Return the value that JSON text stands for; anything that is wrong with it is a ``ValueError``."""
    try:
        found = json.loads(content, object_hook=slim)
        if "\\u" in (content if isinstance(content, str) else str(content)):
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text in it ends in half a character (a lone surrogate)") from None
    return found


def json_object(content: str | bytes) -> dict[str, Any]:
    """Return the object that JSON text stands for; anything else is a ``ValueError``."""
    found = json_value(content)
    if not isinstance(found, dict):
        raise ValueError(f"wanted an object {{...}}, got {type(found).__name__}")
    return found


def toml_table(content: str) -> dict[str, Any]:
    """Return the table that TOML text stands for; anything that is wrong with it is a ``ValueError``."""
    try:
        return tomllib.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def whole(digits: str) -> int | None:
    """Return decimal digits as a number, or None where they are none or more than ``DIGITS``."""
    plain = digits.strip()
    return int(plain) if plain.isdecimal() and len(plain) <= DIGITS else None


def numbers(content: str, called: str) -> tuple[float, ...]:
    """Return the finite numbers of a text such as ``1,5,10``; ``called`` is what messages call it."""
    try:
        found = tuple(float(part) for part in content.split(","))
    except ValueError:
        found = (math.nan,)
    if not all(map(math.isfinite, found)):
        raise SoritesError(
            f"{called} wants numbers with commas between them, such as 1,5,10, got {content[:80]!r}"
        )
    return found


def _hint(wanted: str) -> str:
    return f". Wanted {wanted}" if wanted else ""
