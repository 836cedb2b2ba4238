from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Command


@pytest.mark.slow
def test_a_page_is_written(command: Command, home: Path, run: Path) -> None:
    code, out, err = command("report", run, "--out", "page.html")
    assert code == 0, err
    assert out.startswith("wrote page.html (")
    assert out.endswith("next: open it in a browser\n")
    assert (home / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
