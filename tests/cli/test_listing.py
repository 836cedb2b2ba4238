from __future__ import annotations

import pytest
from tests.cli.conftest import Command

from sorites.cli.about import list_names
from sorites.core import METRICS, MODELS, SCORERS, SHIFTS, SOURCES
from sorites.core.errors import SoritesError
from sorites.suites.suite import builtin_suites


def test_list(command: Command) -> None:
    code, out, _ = command("list")
    assert code == 0
    assert [line for line in out.splitlines() if not line.startswith(" ")] == [
        f"{kind}:"
        for kind in (
            "shifts",
            "models",
            "sources",
            "metrics",
            "scorers",
            "measures",
            "encoders",
            "suites",
            "recipes",
        )
    ]
    assert "  demo" in command("list", "suites")[1]
    assert "levels 75, 82, 85, 90, 93" in command("list", "shifts")[1]


def test_lists_hold_every_name_with_a_line() -> None:
    for kind, names in {
        "shifts": SHIFTS.names(), "models": MODELS.names(), "sources": SOURCES.names(),
        "metrics": METRICS.names(), "scorers": SCORERS.names(), "suites": builtin_suites(),
    }.items():  # fmt: skip
        lines = list_names(kind).splitlines()
        assert [line.split()[0] for line in lines] == names
        assert all(len(line.split()) > 1 for line in lines), "each says what it is"
    with pytest.raises(SoritesError, match="Did you mean models"):
        list_names("modles")
