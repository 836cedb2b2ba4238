"""A hub that does not answer costs seconds and one line, and what the cache holds is still found."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest

from sorites.io.hub import download_error, hub, is_reachable, is_unreachable

constants: Any = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_host_that_listens_is_reachable_and_one_that_does_not_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert is_reachable(address)
    assert not is_reachable(address)
    assert not is_reachable("https://no.such.host.invalid")


def test_behind_a_proxy_a_hub_counts_as_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert is_reachable("https://no.such.host.invalid")


def test_without_a_hub_the_library_is_offline_and_silent_inside_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "https://no.such.host.invalid")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    with hub():
        assert constants.HF_HUB_OFFLINE is True
        assert not logger.isEnabledFor(logging.WARNING)
    assert constants.HF_HUB_OFFLINE is False
    assert logger.level == level


def test_the_message_is_one_short_line() -> None:
    error = RuntimeError("try again")
    error.__cause__ = ConnectionError("a long story\nabout sockets")
    assert is_unreachable(error)
    said = str(download_error("the weights of x", error, "Give a file"))
    assert (
        said
        == "cannot download the weights of x: the hub is unreachable and the cache does not contain them. Give"
        " a file"
    )
    assert (
        str(download_error("x", ValueError("no such tag.\nmore"), "Look"))
        == "cannot download x: no such tag. Look"
    )
