"""Progress where bars cannot be drawn: a line now and then."""

from __future__ import annotations

import re

import pytest

from sorites.core import progress


def test_a_pipe_gets_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.text_bars() as bar:
        tick = bar("short", 40, 10)
        for seconds in (4, 4, 4, 4, 4, 4):
            now[0] += seconds
            tick(4, "optics")
    lines = [line for line in capsys.readouterr().err.splitlines() if " after " in line]
    assert lines == ["short: 22 of 40 after 12 s, optics", "short: 34 of 40 after 24 s, optics"]


def test_short_work_has_no_such_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bars() as bar:
        tick = bar("evaluating", 3)
        for _ in range(3):
            tick(1)
    said = capsys.readouterr().err
    assert " after " not in said
    assert re.search("3/3", said)
