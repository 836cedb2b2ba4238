"""A server that is killed at any moment has lost nothing that it acknowledged."""

from __future__ import annotations

import http.client
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.apps.annotation.conftest import Server, ask

from sorites.apps.annotation.clicks import current_answers, replay_answers
from sorites.apps.annotation.store import open_labelling

pytestmark = pytest.mark.slow

PEOPLE, MOMENTS = 2, 10


class Sender(threading.Thread):
    """Sends clicks one after the other until the server is gone, and writes down which were acknowledged."""

    def __init__(self, served: Server, name: str, start: int) -> None:
        super().__init__(daemon=True)
        self.served, self.token, self.n = served, served.token(name), start
        self.tag, self.acknowledged = name[-1], []  # type: ignore[var-annotated]

    def run(self) -> None:
        try:
            items = ask(self.served.address, "api/work", self.token).json["items"]
            while True:
                self.n += 1
                item = items[self.n % len(items)]["assignment"]
                click = {"id": f"click-{self.tag}-{self.n:07d}", "assignment": item, "action": "answer"}
                sent = {
                    "clicks": [{**click, "value": {"class": ("class", "partly", "not class")[self.n % 3]}}]
                }
                self.acknowledged += ask(self.served.address, "api/clicks", self.token, sent).json["kept"]
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the server is gone in the middle of an answer


def test_kill_at_ten_moments(server: type[Server], tmp_path: Path, photos: Path) -> None:
    path, rng = tmp_path / "l.sqlite", np.random.default_rng(0)
    names = [f"person {i}" for i in range(PEOPLE)]
    people = [word for name in names for word in ("--annotator", name)]
    served = server("in_class", "--source", f"folder:{photos}", "--out", str(path), *people)
    acknowledged: set[str] = set()
    for moment in range(MOMENTS):
        served.start()
        senders = [Sender(served, name, moment * 100_000) for name in names]
        for sender in senders:
            sender.start()
        end = time.monotonic() + 60
        while not all(sender.acknowledged for sender in senders) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(float(rng.uniform(0, 0.3)))
        served.kill()
        for sender in senders:
            sender.join(timeout=120)
            acknowledged.update(sender.acknowledged)
        with open_labelling(path, write=True) as database:
            kept = {row["click"] for row in database.execute("SELECT click FROM clicks")}
            assert acknowledged <= kept
            assert current_answers(database) == replay_answers(database)
    assert len(acknowledged) > 100
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    database.close()
