"""Options of a suite's shifts as they are typed: those with a flag of their own, and any other as KEY=VALUE."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError


def shift_options(others: list[str] | None, **flags: Path | str | None) -> dict[str, Any]:
    """Options for the shifts: a value is read as TOML where it is that (3, true, 0.5), else as text."""
    found: dict[str, Any] = {key: str(value) if isinstance(value, Path) else value for key, value in flags.items()}
    for text in others or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise SoritesError(f"--option wants KEY=VALUE, got {text!r}")
        try:
            found[key] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = value
    return found
