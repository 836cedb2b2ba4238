"""The public names and their signatures, compared with a recorded list.

A change of the public API is a decision: record it with ``python tests/contracts/test_public_api.py`` and add a line to
CHANGELOG.md.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("public_api.txt")
MODULES = (
    "sorites",
    "sorites.core",
    "sorites.core.errors",
    "sorites.core.messages",
    "sorites.metrics",
    "sorites.reports",
)


def public_names(module: Any) -> list[str]:
    """List what a module exports: its ``__all__``, else the public names that it defines itself."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def describe(path: str, value: Any) -> Iterator[str]:
    """Yield the line of a public name, and one for each public method of a class."""
    if inspect.isclass(value):
        fields = (
            [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        )
        yield f"class {path}" + (f" [{', '.join(fields)}]" if fields else "")
        for name, member in sorted(vars(value).items()):
            if not name.startswith("_") and inspect.isfunction(member):
                yield f"    {path}.{name}{inspect.signature(member)}"
    elif inspect.isfunction(value):
        yield f"{path}{inspect.signature(value)}"
    else:
        yield f"{path}: {type(value).__name__}"


def public_api() -> list[str]:
    """List all public names of the package with their signatures."""
    lines: list[str] = []
    for name in MODULES:
        module = importlib.import_module(name)
        for public in public_names(module):
            lines.extend(describe(f"{name}.{public}", getattr(module, public)))
    return [re.sub(r" at 0x[0-9a-f]+", "", line) for line in lines]


def test_the_public_api_is_the_recorded_one() -> None:
    recorded = RECORD.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(recorded, public_api(), "recorded", "now", n=0, lineterm=""))
    assert changes == [], f"{__doc__}\n" + "\n".join(changes)


if __name__ == "__main__":
    RECORD.write_text("\n".join(public_api()) + "\n", encoding="utf-8")
