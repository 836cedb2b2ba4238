"""The server over real sockets: tokens, other sites, and what a request may not do."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.apps.annotation.conftest import Answer, ask
from tests.conftest import scene

from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.images import Album, Entry
from sorites.apps.annotation.server import PAGE, application
from sorites.apps.annotation.store import Writer, open_labelling
from sorites.apps.annotation.task import load
from sorites.apps.serving import runner
from sorites.core.errors import BadImage

EVIL = '<img src=x onerror="document.title=1">'


def broken() -> Any:
    raise BadImage("it is cut short")


class Running:
    """A labelling of eight images that is served in a thread, the last of them damaged."""

    def __init__(self, path: Path) -> None:
        names = [f"{EVIL}/{i}.png" for i in range(8)]
        images = [
            Entry(name, name, (lambda: scene(0)) if i < 7 else broken, EVIL) for i, name in enumerate(names)
        ]
        begin(path, load("in_class")[1], images, "source test")
        self.path = path
        self.tokens = {name: token for name, token, _ in add_annotators(path, ["ann", "ben"])}
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = runner(application(path, Album(images)))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        end = time.monotonic() + 60
        while not self.server.started and time.monotonic() < end:
            time.sleep(0.01)

    def ask(self, path: str, name: str | None = "ann", data: Any = None, **headers: str) -> Answer:
        return ask(self.address, path, self.tokens.get(name) if name else None, data, **headers)

    def clicks(self) -> int:
        with open_labelling(self.path) as database:
            return int(database.execute("SELECT count(*) FROM clicks").fetchone()[0])

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=60)
        self.socket.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("served") / "l.sqlite")
    yield made
    made.stop()


def click(assignment: int, id_: str = "a-click-id") -> dict[str, Any]:
    return {
        "clicks": [{"id": id_, "assignment": assignment, "action": "answer", "value": {"class": "class"}}]
    }


def test_nothing_is_told_without_a_valid_token(running: Running) -> None:
    for path in ("api/task", "api/work", "api/image/1"):
        assert running.ask(path, None).status == 401
        assert ask(running.address, path, "wrong").status == 401
    assert ask(running.address, "api/clicks", "wrong", click(1)).status == 401
    assert running.ask("api/task", None, Cookie=f"token={running.tokens['ann']}").status == 401
    assert running.ask(f"api/task?token={running.tokens['ann']}", None).status == 401


def test_tokens_are_long_and_each_persons_own(running: Running) -> None:
    assert len(set(running.tokens.values())) == 2
    assert all(len(token) >= 24 for token in running.tokens.values())
    assert running.ask("api/task", "ann").json["annotator"] == "ann"
    assert running.ask("api/task", "ben").json["annotator"] == "ben"


def test_work_does_not_say_which_images_are_known_nor_their_names(running: Running) -> None:
    items = running.ask("api/work").json["items"]
    assert items
    assert all(set(item) == {"assignment", "answered", "class", "shift", "place", "of"} for item in items)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"},
        {"Sec-Fetch-Site": "same-site"}, {"Host": "localhost.evil.example:80"},
    ],
)  # fmt: skip
def test_other_sites_may_not_ask_even_with_the_token(running: Running, headers: dict[str, str]) -> None:
    before = running.clicks()
    item = running.ask("api/work").json["items"][0]["assignment"]
    assert running.ask("api/clicks", "ann", click(item, "from-elsewhere"), **headers).status == 403
    assert running.ask("api/work", "ann", **headers).status == 403
    assert running.clicks() == before


def test_a_form_of_another_site_cannot_send_clicks(running: Running) -> None:
    item = running.ask("api/work").json["items"][0]["assignment"]
    body = json.dumps(click(item, "by-a-form")).encode()
    assert running.ask("api/clicks", "ann", body, **{"Content-Type": "text/plain"}).status == 415
    assert running.ask("api/clicks", "ann", None).status == 405
    assert running.ask("api/clicks", None, body).status == 401


def test_images_and_answers_of_others_are_out_of_reach(running: Running) -> None:
    mine, theirs = (running.ask("api/work", name).json["items"][0]["assignment"] for name in ("ann", "ben"))
    assert running.ask(f"api/image/{theirs}", "ann").status == 404
    found = running.ask("api/clicks", "ann", click(theirs, "not-my-image")).json
    assert found["kept"] == []
    assert "not assigned to you" in found["refused"]["not-my-image"]
    image = running.ask(f"api/image/{mine}", "ann")
    assert image.status == 200
    assert image.body.startswith(b"\x89PNG")
    assert image.headers["X-Width"] == "80"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"clicks": 3}',
        b"[" * 100_000,
        b'{"clicks": [{"id": "\\ud800aaaaaaaa"}]}',
        b"\xff\xfe",
    ],
)
def test_nonsense_is_refused_in_words(running: Running, body: bytes) -> None:
    answer = running.ask("api/clicks", "ann", body)
    assert 400 <= answer.status < 500
    assert answer.json["error"]


BAD_CLICKS: list[dict[str, Any]] = [
    {"seconds": 10**400}, {"seconds": -1}, {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": "1"}, {"seconds": True},
    {"assignment": 2**63}, {"assignment": 2**64}, {"assignment": -1}, {"assignment": 1.5}, {"assignment": [1]}, {"assignment": None},
    {"action": "x" * 100_000}, {"action": ["answer"]}, {"value": {"class": "x" * 100_000}}, {"value": {"class": 10**400}},
    {"value": {"x" * 100_000: 1}}, {"value": {"class": {"class": ["class"]}}}, {"value": 10**400}, {"value": None},
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_CLICKS, ids=str)
def test_a_click_out_of_bounds_is_refused_and_the_others_of_its_request_are_kept(
    running: Running, bad: dict[str, Any]
) -> None:
    item = running.ask("api/work").json["items"][0]["assignment"]
    before, name = running.clicks(), f"{abs(hash(str(bad)))}-bad"[-40:]
    [good], [wrong] = (click(item, id_)["clicks"] for id_ in (f"good-{name}", f"wrong-{name}"))
    answer = running.ask("api/clicks", "ann", {"clicks": [{**wrong, **bad}, good]})
    assert answer.status == 200
    assert answer.json["kept"] == [good["id"]]
    assert list(answer.json["refused"]) == [wrong["id"]]
    assert running.clicks() == before + 1


@pytest.mark.parametrize(
    "body", [b'{"clicks": [{"id": "\xed\xa0\x80aaaaaaaa"}]}', b'{"a": 1' + b"0" * 5000 + b"}"]
)
def test_text_that_cannot_be_stored_is_refused(running: Running, body: bytes) -> None:
    assert running.ask("api/clicks", "ann", body).status == 400


@pytest.mark.parametrize("number", [2**63, 2**64, 10**17, "9" * 5000])
def test_an_id_that_no_database_holds_is_not_found(running: Running, number: object) -> None:
    assert running.ask(f"api/image/{number}").status == 404


def test_one_failing_job_fails_alone(tmp_path: Path) -> None:
    """Whatever a job raises, the jobs that share its transaction are kept."""
    begin(tmp_path / "l.sqlite", load("in_class")[1], [Entry("0", "0", lambda: scene(0))], "source test")

    def job(number: int) -> Callable[[sqlite3.Connection], int]:
        def write(database: sqlite3.Connection) -> int:
            database.execute("INSERT INTO about VALUES (?, ?)", (f"job {number}", ""))
            if number % 3 == 1:
                raise (OverflowError, TypeError, RecursionError)[number % 9 // 3]
            return number

        return write

    async def everybody(database: sqlite3.Connection) -> list[Any]:
        writer = Writer(database)
        outcomes = await asyncio.gather(*(writer.do(job(i)) for i in range(30)), return_exceptions=True)
        await writer.finish()
        return outcomes

    with open_labelling(tmp_path / "l.sqlite", write=True) as database:
        outcomes = asyncio.run(everybody(database))
        kept = {row["key"] for row in database.execute("SELECT key FROM about WHERE key LIKE 'job %'")}
    assert [i for i, outcome in enumerate(outcomes) if outcome == i] == [i for i in range(30) if i % 3 != 1]
    assert kept == {f"job {i}" for i in range(30) if i % 3 != 1}


def _keep_clicking(running: Running, name: str, bad: list[dict[str, Any]], stop: threading.Event) -> int:
    """Send bad clicks until the end, and return how many requests were answered."""
    item, answered = running.ask("api/work", name).json["items"][0]["assignment"], 0
    while not stop.is_set():
        [wrong] = click(item, f"hostile-{name}-{threading.get_ident()}-{answered}"[-64:])["clicks"]
        assert (
            running.ask("api/clicks", name, {"clicks": [{**wrong, **bad[answered % len(bad)]}]}).status < 500
        )
        answered += 1
    return answered


@pytest.mark.parametrize(("clients", "clicks"), [(4, 200), pytest.param(8, 400, marks=pytest.mark.slow)])
def test_hostile_clients_cost_another_annotator_no_click(running: Running, clients: int, clicks: int) -> None:
    stop, before = threading.Event(), running.clicks()
    with ThreadPoolExecutor(clients) as pool:
        hostile = [pool.submit(_keep_clicking, running, "ben", BAD_CLICKS, stop) for _ in range(clients)]
        try:
            item = running.ask("api/work", "ann").json["items"][0]["assignment"]
            sent = [f"honest-{clients}-{i:06d}" for i in range(clicks)]
            kept = [running.ask("api/clicks", "ann", click(item, id_)).json["kept"] for id_ in sent]
        finally:
            stop.set()
        assert min(client.result() for client in hostile) > 0
    assert kept == [[id_] for id_ in sent]
    assert running.clicks() == before + clicks


def test_a_request_without_end_is_cut_off(running: Running) -> None:
    assert running.ask("api/clicks", "ann", b'{"clicks": "' + b"x" * (2 << 20)).status == 413


def test_the_page_runs_no_script_but_its_own_and_loads_nothing_from_elsewhere(running: Running) -> None:
    for name in PAGE:
        answer = running.ask(name.removeprefix("index.html"), None)
        policy = answer.headers["Content-Security-Policy"]
        assert answer.status == 200
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert b"http://" not in answer.body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in answer.body
        assert b"innerHTML" not in answer.body
        assert b"insertAdjacentHTML" not in answer.body


def test_paths_lead_nowhere_else(running: Running) -> None:
    for path in (
        "../server.py",
        "page/../store.py",
        "%2e%2e/store.py",
        "docs",
        "openapi.json",
        "api/image/-1",
        "api/image/x",
    ):
        assert running.ask(path, "ann").status in (401, 404)


def test_a_image_that_cannot_be_read_is_set_aside_with_its_reason(running: Running) -> None:
    items = running.ask("api/work", "ben").json["items"]
    answers = {item["assignment"]: running.ask(f"api/image/{item['assignment']}", "ben") for item in items}
    bad = [number for number, answer in answers.items() if answer.status != 200]
    assert len(bad) == 1
    assert answers[bad[0]].status == 410
    assert "cut short" in answers[bad[0]].json["error"]
    assert bad[0] not in {item["assignment"] for item in running.ask("api/work", "ben").json["items"]}


def test_somebody_who_is_added_later_is_let_in(running: Running) -> None:
    added = {name: token for name, token, _ in add_annotators(running.path, ["late"])}
    assert ask(running.address, "api/task", added["late"]).json["annotator"] == "late"
