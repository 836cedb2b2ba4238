"""Progress where bars cannot be drawn, and the names of long phases where somebody listens."""

from __future__ import annotations

import re
import threading

import pytest

from sorites.core import progress
from sorites.core.progress import phase, telling_phases


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


class Listener:
    """Collects what is said, and lets a test wait for it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = threading.Event()

    def __call__(self, text: str) -> None:
        self.said.append(text)
        self.heard.set()

    def wait(self) -> None:
        self.heard.clear()
        assert self.heard.wait(60)


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(progress, "AGAIN_SECONDS", 0.01)
    return Listener()


def test_a_long_phase_is_named_again_and_again(listener: Listener) -> None:
    with telling_phases(listener), phase("loading a"):
        listener.wait()
        listener.wait()
    assert len(listener.said) >= 2
    assert all(text.startswith("loading a: ") for text in listener.said)


def test_an_inner_phase_is_named_in_place_of_the_outer_one(listener: Listener) -> None:
    with telling_phases(listener), phase("outer"):
        with phase("inner"):
            listener.wait()
            listener.said.clear()
            listener.wait()
            inner = list(listener.said)
        listener.said.clear()
        listener.wait()
        assert listener.said[0].startswith("outer")
    assert all(text.startswith("inner") for text in inner)


def test_a_short_phase_and_one_without_a_listener_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    listener = Listener()
    with telling_phases(listener), phase("short"):
        pass
    with phase("nobody listens"):
        pass
    assert listener.said == []
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_the_phase(listener: Listener) -> None:
    with telling_phases(listener):
        with pytest.raises(ValueError, match="wrong"), phase("failing"):
            raise ValueError("wrong")
        count = len(listener.said)
        threading.Event().wait(0.05)
        assert len(listener.said) == count
