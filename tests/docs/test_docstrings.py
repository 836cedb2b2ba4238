"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

import sorites
from sorites import core

ROOT = Path(sorites.__file__).parent
MODULES = sorted(
    ".".join(("sorites", *file.relative_to(ROOT).with_suffix("").parts))
    for file in ROOT.rglob("*.py")
    if re.search(r"^ +>>> ", file.read_text(encoding="utf-8"), re.MULTILINE)
)
REGISTRIES = (
    core.SHIFTS,
    core.SOURCES,
    core.MODELS,
    core.SCORERS,
    core.METRICS,
    core.MEASURES,
    core.ENCODERS,
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for registry in REGISTRIES:  # forget the plug-ins that the examples register
        registry.names()
        monkeypatch.setattr(registry, "_objects", dict(registry._objects))
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted
    assert not result.failed
