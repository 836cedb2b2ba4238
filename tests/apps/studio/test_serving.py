"""What every server of the studio owes: loopback, tokens, no listing, no traversal, bounded bodies."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from tests.apps.studio.conftest import GRID, capture_of

from sorites.apps.serving import Server, application, reachable
from sorites.apps.studio.devices import Devices
from sorites.apps.studio.folder import CaptureFolder
from sorites.apps.studio.references import Reference
from sorites.apps.studio.review.server import Review
from sorites.apps.studio.screen.server import Screen
from sorites.apps.studio.sheets import write_sheets
from sorites.core.errors import SoritesError


@pytest.fixture
def screen() -> Iterator[Screen]:
    started = Screen()
    yield started
    started.stop()


def test_the_screen_is_on_loopback_and_hidden_behind_its_token(screen: Screen) -> None:
    assert screen.url.startswith("http://127.0.0.1:")
    base = screen.url.rsplit("/", 2)[0]
    assert len(screen.token) >= 20
    for path in (
        "/",
        "/x/",
        "/x/next",
        "/image/1",
        f"/{screen.token[:-1]}/",
        f"/{screen.token}x/next",
        "/page.js",
    ):
        assert httpx.get(base + path).status_code == 404
    assert httpx.get(screen.url).status_code == 200
    assert httpx.get(screen.url.rstrip("/")).status_code == 308


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "page.html/../server.py",
        "server.py",
        "image/../../x",
        "image/abc",
        "",
    ],
)
def test_nothing_but_the_pages_own_files_is_served(screen: Screen, path: str) -> None:
    answer = httpx.get(screen.url + path)
    assert answer.status_code == (200 if path == "" else 404)
    assert b"import " not in answer.content


def test_pages_may_load_nothing_from_elsewhere(screen: Screen) -> None:
    headers = httpx.get(screen.url).headers
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"


def test_bodies_are_bounded_and_nonsense_is_refused(screen: Screen) -> None:
    assert httpx.post(screen.url + "shown", content=b"{}").status_code == 400
    assert httpx.post(screen.url + "shown", content=b"[" * 10_000).status_code == 400
    host, port = "127.0.0.1", screen.port
    with socket.create_connection((host, port), 5) as raw:
        raw.sendall(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in raw.recv(200)


@pytest.mark.slow
def test_a_review_is_hidden_behind_tokens_and_each_reviewer_has_one(
    devices: Devices, folder: CaptureFolder, held: list[Reference]
) -> None:
    capture_of(folder, devices).run(held[:1])
    assert len(GRID.manual) == 2
    write_sheets(folder)
    review = Review(folder, ["a", "b"])
    try:
        assert len(set(review.links.values())) == 2
        base = review.links["a"].rsplit("/", 2)[0]
        for path in ("/", "/state", "/x/state", "/shots.jsonl", "/sheets/", "/../shots.jsonl"):
            assert httpx.get(base + path).status_code == 404
        for path in ("sheet/x", "sheet/99", "sheet/-1", "sheet/", "sheets", "../shots.jsonl", "server.py"):
            assert httpx.get(review.links["a"] + path).status_code == 404
        assert httpx.get(review.links["b"] + "sheet/0").headers["content-type"] == "image/jpeg"
        kept = folder.root / "reviewers.json"
        assert kept.stat().st_mode & 0o077 == 0
        again = Review(folder, ["a", "b"])
        assert again.links["a"].rsplit("/", 2)[1] == review.links["a"].rsplit("/", 2)[1]
        again.stop()
    finally:
        review.stop()


def test_a_taken_port_is_an_error_in_words(screen: Screen) -> None:
    with pytest.raises(SoritesError, match="127.0.0.1"):
        Server(application([]), port=screen.port)
    assert reachable("10.1.2.3") == "10.1.2.3"
