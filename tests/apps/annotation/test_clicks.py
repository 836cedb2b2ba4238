"""Who gets which image, and what becomes of clicks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.apps.annotation.conftest import entries, labelling

from sorites.apps.annotation import assign
from sorites.apps.annotation.answers import chosen_answers, given_answers
from sorites.apps.annotation.begin import add_annotators, begin, set_annotator_state
from sorites.apps.annotation.clicks import current_answers, receive, replay_answers
from sorites.apps.annotation.status import annotators, images, owed
from sorites.apps.annotation.store import open_labelling, task_of
from sorites.apps.annotation.task import Pay, load
from sorites.core.errors import SoritesError

KNOWN = {f"folder/p{i:03d}.png": "class" for i in range(14)}


class Worker:
    """A person who answers without a page."""

    def __init__(self, database: sqlite3.Connection, id_: int) -> None:
        self.database, self.id, self.task, self.n = database, id_, task_of(database), 0

    def items(self) -> list[sqlite3.Row]:
        assign.refresh(self.database, self.task, self.id)
        return [item for item in assign.items(self.database, self.id) if not item["answered"]]

    def send(
        self, assignment: int, word: str = "class", action: str = "answer", id_: str = ""
    ) -> dict[str, Any]:
        self.n += 1
        click = {
            "id": id_ or f"{self.id:04d}-{self.n:06d}",
            "assignment": assignment,
            "action": action,
            "value": {"class": word},
        }
        return receive(self.database, self.task, self.id, [click])

    def work(self, word: str = "class") -> int:
        done = 0
        while items := self.items():
            for item in items:
                assert not self.send(item["id"], word)["refused"]
                done += 1
        return done


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with open_labelling(labelling(tmp_path / "l.sqlite", n=60, known=KNOWN), write=True) as found:
        yield found


def roles(database: sqlite3.Connection, who: int) -> list[str]:
    return [
        row["role"]
        for row in database.execute(
            "SELECT role FROM assignments WHERE annotator = ? ORDER BY batch, place", (who,)
        )
    ]


def test_ten_known_images_come_first_then_batches_with_two_hidden(database: sqlite3.Connection) -> None:
    one = Worker(database, 1)
    first = one.items()
    assert len(first) == 10
    assert roles(database, 1) == ["qualification"] * 10
    for item in first:
        one.send(item["id"])
    assert len(one.items()) == 25
    batch = roles(database, 1)[10:]
    assert (batch.count("work"), batch.count("check")) == (23, 2)
    checks = {row[0] for row in database.execute("SELECT image FROM assignments WHERE role = 'check'")}
    seen = {row[0] for row in database.execute("SELECT image FROM assignments WHERE role = 'qualification'")}
    assert not checks & seen


def test_each_image_goes_to_two_and_never_twice_to_one(database: sqlite3.Connection) -> None:
    for who in (1, 2):
        Worker(database, who).work()
    query = "SELECT count(*), count(DISTINCT annotator) FROM assignments WHERE role = 'work' GROUP BY image"
    assert {tuple(row) for row in database.execute(query)} == {(2, 2)}
    assert database.execute("SELECT count(*) FROM images WHERE known = 0 AND given != 2").fetchone()[0] == 0


def test_who_fails_the_qualification_gets_nothing_more_until_admitted(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    one = Worker(database, 1)
    assert one.work("not class") == 10
    assert assign.person(database, 1).state == "refused"
    set_annotator_state(tmp_path / "l.sqlite", "annotator 1")
    assert len(one.items()) == 25


def test_a_click_sent_again_is_kept_once(database: sqlite3.Connection) -> None:
    one = Worker(database, 1)
    item = one.items()[0]["id"]
    for _ in range(3):
        assert one.send(item, id_="the-same-click")["kept"] == ["the-same-click"]
    assert database.execute("SELECT count(*) FROM clicks").fetchone()[0] == 1


def test_undo_takes_the_answer_away_and_the_record_keeps_both(database: sqlite3.Connection) -> None:
    one = Worker(database, 1)
    item = one.items()[0]["id"]
    one.send(item, "partly")
    one.send(item, action="undo")
    assert current_answers(database) == {} == replay_answers(database)
    one.send(item, "class")
    assert current_answers(database) == {item: {"class": "class"}} == replay_answers(database)
    assert [row[0] for row in database.execute("SELECT action FROM clicks ORDER BY id")] == [
        "answer",
        "undo",
        "answer",
    ]


def test_answers_go_only_to_images_that_were_given(database: sqlite3.Connection) -> None:
    one, other = Worker(database, 1), Worker(database, 2)
    item = one.items()[0]["id"]
    other.items()
    for wrong in (item, 99999, -1, True, "1", None, 2**70):
        found = other.send(wrong)  # type: ignore[arg-type]
        assert found["kept"] == []
        assert "not assigned to you" in next(iter(found["refused"].values()))
    assert database.execute("SELECT count(*) FROM clicks").fetchone()[0] == 0


def test_a_click_of_another_cannot_be_claimed(database: sqlite3.Connection) -> None:
    one, other = Worker(database, 1), Worker(database, 2)
    one.send(one.items()[0]["id"], id_="the-same-click")
    assert other.send(other.items()[0]["id"], id_="the-same-click")["kept"] == []


@pytest.mark.parametrize("clicks", [None, {}, [1], [{"id": "short"}], [{"id": 3}], [{}] * 201])
def test_what_is_no_list_of_clicks_is_refused(database: sqlite3.Connection, clicks: object) -> None:
    with pytest.raises(SoritesError):
        receive(database, task_of(database), 1, clicks)


def test_a_wrong_answer_spoils_no_other(database: sqlite3.Connection) -> None:
    one = Worker(database, 1)
    first, second = (item["id"] for item in one.items()[:2])
    clicks = [
        {"id": "click-one", "assignment": first, "action": "answer", "value": {"class": "<script>"}},
        {"id": "click-two", "assignment": second, "action": "answer", "value": {"class": "partly"}},
    ]
    found = receive(database, one.task, 1, clicks)
    assert found["kept"] == ["click-two"]
    assert "expected one of" in found["refused"]["click-one"]


def test_a_closed_qualification_cannot_be_changed(database: sqlite3.Connection) -> None:
    one = Worker(database, 1)
    items = one.items()
    for item in items:
        one.send(item["id"])
    one.items()
    assert "closed" in str(one.send(items[0]["id"], "partly")["refused"])


def test_images_left_lying_go_to_others_and_late_answers_are_kept(tmp_path: Path) -> None:
    with open_labelling(labelling(tmp_path / "l.sqlite", n=5, people=3), write=True) as database:
        one, other, late = (Worker(database, who) for who in (1, 2, 3))
        left = late.items()
        assert one.work() == 5
        assert other.items() == []
        database.execute("UPDATE batches SET last = last - 4000 WHERE annotator = 3")
        assert other.work() == 5
        assert not late.send(left[0]["id"])["refused"]
        rows = {tuple(row) for row in database.execute("SELECT given, wanted FROM images")}
        assert rows == {(2, 2), (3, 2)}


def test_a_third_is_asked_where_two_differ_and_not_where_they_agree_again(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite", n=6, people=3)
    begin(path, load("in_class")[1], entries(6), "source test", third=True)
    with open_labelling(path, write=True) as database:
        one, other, third = (Worker(database, who) for who in (1, 2, 3))
        mine = {item["id"]: item for item in one.items()}
        for number in mine:
            one.send(number)
        theirs = other.items()
        other.send(theirs[0]["id"], "partly")
        other.send(theirs[1]["id"], "partly")
        other.send(theirs[1]["id"], action="undo")
        for item in theirs[1:]:
            other.send(item["id"])
        assert third.work() == 1
    assert images(path)["done"] == 6


def test_a_labelling_told_later_to_ask_a_third_looks_at_what_was_answered(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite", n=4, people=3)
    with open_labelling(path, write=True) as database:
        Worker(database, 1).work("class")
        Worker(database, 2).work("partly")
        assert Worker(database, 3).work() == 0
    begin(path, load("in_class")[1], entries(4), "source test", third=True)
    with open_labelling(path, write=True) as database:
        assert Worker(database, 3).work() == 4


def test_status_and_answers_say_what_was_done(database: sqlite3.Connection, tmp_path: Path) -> None:
    Worker(database, 1).work("class")
    Worker(database, 2).work("class")
    path = tmp_path / "l.sqlite"
    assert images(path) == {
        "images": 46, "known": 14, "begun": 46, "done": 46, "differing": 0, "unreadable": 0, "clicks": 2 * (10 + 46 + 4),
    }  # fmt: skip
    rows = annotators(path)
    assert rows["qualification_right"].to_list() == rows["checks_right"].to_list() == [1.0, 1.0]
    assert rows["qualification_n"].to_list() == [10, 10]
    assert rows["checks_n"].to_list() == [4, 4]
    assert rows["note"].to_list() == ["", ""]
    assert rows["batches"].to_list() == [2, 2]
    frame = chosen_answers(path)
    assert frame.height == 46
    assert set(frame["value"]) == {'"class"'}
    assert set(frame["n"]) == {2}
    assert given_answers(path).height == 120


def test_a_careless_annotator_is_flagged_and_suspended_and_the_images_go_to_others(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite", n=164, known=KNOWN, people=3)
    with open_labelling(path, write=True) as database:
        careless = Worker(database, 1)
        for item in careless.items():
            careless.send(item["id"], "class")
        # Good in the open qualification, careless where nobody seems to look.
        careless.work("partly")
        first = annotators(path).row(0, named=True)
        assert (first["qualification_right"], first["qualification_n"]) == (1.0, 10)
        assert first["checks_n"] == task_of(database).suspension.checks
        assert first["checks_right"] < 0.5
        assert first["state"] == "suspended"
        assert "suspended" in first["note"]
        assert first["answered"] < 150
        assert careless.items() == []
        # Their answers do not count, and every image gets two answers of others.
        assert images(path)["done"] == 0
        assert chosen_answers(path).height == 0
        for who in (2, 3):
            assert Worker(database, who).work("class") == 10 + 150 + 2 * 7
        assert images(path)["done"] == 150
        assert set(chosen_answers(path)["n"]) == {2}
        assert annotators(path)["note"].to_list()[1:] == ["", ""]
        assert given_answers(path).filter(pl.col("annotator") == annotators(path)["annotator"][0]).height > 0


def test_hidden_checks_below_the_bar_are_flagged_before_a_suspension(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite", n=114, known=KNOWN, people=2)
    with open_labelling(path, write=True) as database:
        worker = Worker(database, 1)
        for item in worker.items():
            worker.send(item["id"], "class")
        for item in [*worker.items(), *worker.items()]:
            worker.send(item["id"], "partly")
        for item in worker.items():
            worker.send(item["id"], "partly")
        row = annotators(path).row(0, named=True)
        assert row["state"] == "working"
        assert 4 <= row["checks_n"] < 8
        assert row["note"].startswith("drop")


def test_a_labelling_changed_by_something_else_is_noticed(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    Worker(database, 1).work()
    database.execute("UPDATE answers SET value = '\"partly\"' WHERE assignment = 1")
    with pytest.raises(SoritesError, match="log of clicks"):
        images(tmp_path / "l.sqlite")


def test_another_task_or_source_is_refused(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite")
    with pytest.raises(SoritesError, match="different task"):
        begin(path, load("visible")[1], entries(3), "source test")
    with pytest.raises(SoritesError, match="images of source test"):
        begin(path, load("in_class")[1], entries(3), "source other")


def test_names_of_people_and_known_images_are_checked(tmp_path: Path) -> None:
    path = labelling(tmp_path / "l.sqlite")
    with pytest.raises(SoritesError, match="<b>"):
        add_annotators(path, ["<b>"])
    with pytest.raises(SoritesError, match="not among the images"):
        labelling(tmp_path / "other.sqlite", known={"elsewhere.png": "class"})
    with pytest.raises(SoritesError, match="row 1: question class"):
        labelling(tmp_path / "third.sqlite", known={"folder/p000.png": "maybe"})


def test_only_its_owner_may_read_a_labelling(tmp_path: Path) -> None:
    assert labelling(tmp_path / "l.sqlite").stat().st_mode & 0o077 == 0


def test_other_files_are_no_labelling(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("no database")
    foreign = tmp_path / "b.sqlite"
    sqlite3.connect(foreign).close()
    for path in (text, foreign, tmp_path / "none"):
        with pytest.raises(SoritesError, match="labelling"):
            images(path)


def test_pay_has_the_bonus_of_focus() -> None:
    pay = Pay(batch=0.67, bonus=30, bonus_batches=100)
    assert owed(pay, 99) == pytest.approx(66.33)
    assert owed(pay, 100) == pytest.approx(97.0)
    assert owed(None, 5) is None


def test_a_job_that_fails_undoes_itself_alone_and_all_are_kept_together(database: sqlite3.Connection) -> None:
    import asyncio

    from sorites.apps.annotation.store import Writer

    def add(key: str, fail: bool) -> Any:
        def job(written: sqlite3.Connection) -> str:
            written.execute("INSERT INTO about VALUES (?, '')", (key,))
            if fail:
                raise SoritesError("no")
            return key

        return job

    async def everybody() -> list[Any]:
        writer = Writer(database)
        jobs = [writer.do(add(f"key {i}", i % 3 == 0)) for i in range(9)]
        found = await asyncio.gather(*jobs, return_exceptions=True)
        await writer.finish()
        return found

    found = asyncio.run(everybody())
    assert [isinstance(one, SoritesError) for one in found] == [i % 3 == 0 for i in range(9)]
    assert database.execute("SELECT count(*) FROM about WHERE key LIKE 'key %'").fetchone()[0] == 6
    assert not database.in_transaction
