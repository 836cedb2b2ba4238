"""Long phases are named while they last, and only where somebody listens."""

from __future__ import annotations

import threading

import pytest

from sorites.core import phases
from sorites.core.phases import phase, telling_phases


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
    monkeypatch.setattr(phases, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(phases, "AGAIN_SECONDS", 0.01)
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
