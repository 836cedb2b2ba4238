"""Read text, JSON and TOML files.

Byte order marks are removed; excessive nesting and huge numbers are reported as errors of the file.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.core.errors import SoritesError
from sorites.io.paths import read_all, reason

# Maximum size of a text file in bytes.
MAX_TEXT_BYTES = 256 << 20

# Maximum number of digits of an integer in a name or an option; such a number fits into 64 bits.
MAX_DIGITS = 18


# Maximum size in bytes of a JSON file that is reduced while it is parsed; parsed completely it would take
# several times as much memory.
MAX_JSON_BYTES = 1 << 30

# Called with each object of a JSON file as it is parsed; returns what replaces it.
Slim = Callable[[dict[str, Any]], Any]


def text(path: Path, expected: str = "", most: int = MAX_TEXT_BYTES) -> str:
    """Return a file as UTF-8 text without byte order mark.

    Args:
        path: The file.
        expected: Description of the expected file, for messages.
        most: Maximum size in bytes.
    """
    try:
        return read_all(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SoritesError(
            f"cannot read {path}: it is not UTF-8 ({reason(error)}){_hint(expected)}"
        ) from error
    except SoritesError as error:
        raise SoritesError(f"{error}{_hint(expected)}") from error


def lines(path: Path, expected: str = "") -> list[str]:
    """Return the lines of a text file."""
    return text(path, expected).splitlines()


def json_file(path: Path, expected: str = "", slim: Slim | None = None) -> Any:
    """Return the content of a JSON file, reduced by ``slim`` if given, so that large annotation files fit
    into memory.
    """
    if slim is None:
        return _parse_file(path, json_value, "JSON", expected)
    return _parse_file(path, lambda content: json_value(content, slim), "JSON", expected, MAX_JSON_BYTES)


def toml_file(path: Path, expected: str = "") -> dict[str, Any]:
    """Return the table of a TOML file."""
    table: dict[str, Any] = _parse_file(path, toml_table, "TOML", expected)
    return table


def _parse_file(
    path: Path, parse: Callable[[str], Any], kind: str, expected: str, most: int = MAX_TEXT_BYTES
) -> Any:
    content = text(path, expected, most)
    try:
        return parse(content)
    except ValueError as error:
        raise SoritesError(f"{path}: not valid {kind}: {error}{_hint(expected)}") from error


def json_value(content: str | bytes, slim: Slim | None = None) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: It is invalid.
    """
    try:
        value = json.loads(content, object_hook=slim)
        if "\\u" in (content if isinstance(content, str) else str(content)):
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it contains a lone surrogate") from None
    return value


def json_object(content: str | bytes) -> dict[str, Any]:
    """Parse JSON text that must be an object.

    Raises:
        ValueError: It is invalid or not an object.
    """
    value = json_value(content)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object {{...}}, got {type(value).__name__}")
    return value


def toml_table(content: str) -> dict[str, Any]:
    """Parse TOML text.

    Raises:
        ValueError: It is invalid.
    """
    try:
        return tomllib.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_integer(digits: str) -> int | None:
    """Return decimal digits as an integer, or None if they are none or more than ``DIGITS``."""
    plain = digits.strip()
    return int(plain) if plain.isdecimal() and len(plain) <= MAX_DIGITS else None


def numbers(content: str, called: str) -> tuple[float, ...]:
    """Return the finite numbers in a text such as ``1,5,10``; ``called`` names it in messages."""
    try:
        values = tuple(float(part) for part in content.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(map(math.isfinite, values)):
        raise SoritesError(
            f"{called}: expected numbers separated by commas, such as 1,5,10, got {content[:80]!r}"
        )
    return values


def _hint(expected: str) -> str:
    return f". Expected {expected}" if expected else ""
