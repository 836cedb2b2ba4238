"""The page in real Chromium: two people at once, through everything that can go wrong between a
click and the disk.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.apps.annotation.conftest import Server
from tests.conftest import BROWSER_MS

from sorites.apps.annotation.clicks import current_answers, replay_answers
from sorites.apps.annotation.formats import read_into, write
from sorites.apps.annotation.images import from_source
from sorites.apps.annotation.status import annotators, images
from sorites.apps.annotation.store import open_labelling

pytestmark = pytest.mark.slow

WAIT_MS = BROWSER_MS
KEYS = {"1": "class", "2": "partly", "3": "not class"}
SHOWN = '#stage:not([data-shown=""])[data-shown]'


class Person:
    """Somebody at a page, who writes down every click."""

    def __init__(self, browser: Any, link: str, width: int = 1280) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800})
        self.context.set_default_timeout(WAIT_MS)
        self.link, self.log, self.complaints = link, [], []  # type: ignore[var-annotated]
        self.fetched: set[int] = set()
        self.open()

    def open(self) -> None:
        self.page = self.context.new_page()
        self.fetched.clear()
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfinished", self._note)
        self.page.goto(self.link)
        self.page.wait_for_selector("html[data-ready]", timeout=WAIT_MS)
        if self.page.locator("#sheet").get_attribute("open") is not None:
            self.page.click("#begin")

    def _note(self, request: Any) -> None:
        found = re.search(r"/api/image/(\d+)$", request.url)
        if found:
            self.fetched.add(int(found[1]))

    def hold(self, images: int) -> None:
        """Wait until the page holds so many images that were not answered yet."""
        for _ in range(WAIT_MS // 50):
            answered = {number for number, action, _ in self.log if action == "answer"}
            if len(self.fetched - answered) >= images:
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"the page holds {len(self.fetched)} images, expected {images} more to answer")

    def shown(self) -> int | None:
        """Return what is on the page, None where there is nothing left."""
        self.page.wait_for_selector(
            f'{SHOWN}, #notice:has-text("nothing left"), #notice:has-text("Thank you")', timeout=WAIT_MS
        )
        text = self.page.locator("#stage").get_attribute("data-shown")
        return int(text) if text else None

    def answer(self, key: str) -> bool:
        number = self.shown()
        if number is None:
            return False
        self.page.keyboard.press(key)
        self.log.append((number, "answer", KEYS[key]))
        return True

    def undo(self, number: int) -> None:
        self.page.keyboard.press("Backspace")
        self.page.wait_for_selector(f'#stage[data-shown="{number}"]', timeout=WAIT_MS)
        self.log.append((number, "undo", None))

    def kept(self, clicks: int) -> None:
        """Wait until the page says that it is offline, and how many clicks it keeps."""
        self.page.wait_for_selector(f'#connection:text-is("offline · {clicks} kept here")', timeout=WAIT_MS)

    def saved(self) -> None:
        self.page.wait_for_selector('#connection[data-state="saved"]:text-is("saved")', timeout=WAIT_MS)


def known_file(tmp_path: Path) -> Path:
    names = [entry.name for entry in from_source("stamps")][:12]
    path = tmp_path / "known.csv"
    path.write_text("image,class\n" + "".join(f"{name},class\n" for name in names))
    return path


def test_no_click_is_lost_or_doubled(browser: Any, server: type[Server], tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    served = server("in_class", "--source", "stamps", "--out", str(path), "--known", str(known_file(tmp_path)), "--limit", "72",
                    "--annotator", "ann", "--annotator", "ben")  # fmt: skip
    served.start()
    ann, ben = Person(browser, served.links["ann"]), Person(browser, served.links["ben"], 390)
    for _ in range(10):  # the qualification
        assert ann.answer("1")
        assert ben.answer("1")
    for i in range(12):
        assert ann.answer("123"[i % 3])
        assert ben.answer("1")
    ann.undo(ann.log[-1][0])
    ann.undo(ann.log[-3][0])  # the one before the one that was just taken away
    assert ann.answer("2")
    assert ann.answer("1")
    ann.hold(5)
    ann.saved()
    ann.context.set_offline(True)
    for _ in range(5):
        assert ann.answer("1")
        assert ben.answer("3")
    ann.kept(5)
    ann.page.close()  # the clicks wait in the browser
    ann.context.set_offline(False)
    ann.open()
    ann.saved()
    ann.hold(5)
    ben.hold(5)
    served.kill()
    for _ in range(4):
        assert ann.answer("2")
        assert ben.answer("1")
    ben.undo(ben.log[-1][0])
    served.start()
    for one in (ann, ben):
        one.page.evaluate("dispatchEvent(new Event('online'))")
        one.saved()
    working = [True, True]
    while any(working):
        working = [one.answer("1") if on else False for one, on in zip((ann, ben), working, strict=True)]
    for one in (ann, ben):
        one.saved()
        assert one.complaints == []
    compare(path, {"ann": ann.log, "ben": ben.log})
    back(path, tmp_path)


def compare(path: Path, logs: dict[str, list[tuple[int, str, str | None]]]) -> None:
    """Replay what each person did and compare it with the record, click by click, and with what stands."""
    query = """SELECT c.assignment, c.action, c.value FROM clicks c JOIN assignments a ON a.id = c.assignment
      JOIN annotators w ON w.id = a.annotator WHERE w.name = ? ORDER BY c.id"""
    model: dict[int, dict[str, str]] = {}
    with open_labelling(path) as database:
        for name, log in logs.items():
            rows = database.execute(query, (name,)).fetchall()
            kept = [
                (
                    row["assignment"],
                    row["action"],
                    json.loads(row["value"])["class"] if row["value"] else None,
                )
                for row in rows
            ]
            assert kept == log
            for number, action, word in log:
                model.pop(number, None)
                if action == "answer" and word is not None:
                    model[number] = {"class": word}
        assert current_answers(database) == replay_answers(database) == model
    counts = images(path)
    assert (counts["images"], counts["done"], counts["unreadable"]) == (60, 60, 0)
    assert (
        annotators(path).select(pl.col("qualification_n") + pl.col("checks_n")).min().item() >= 14
    )  # the qualification, and two in each of the batches


def back(path: Path, tmp_path: Path) -> None:
    """What is exported is read back equal."""
    for name, file in (("csv", "a.csv"), ("label_studio", "a.json")):
        write(path, name, tmp_path / file, all_answers=True)
        again = tmp_path / f"{name}.sqlite"
        read_into(tmp_path / file, name, again, task="in_class")
        write(again, "csv", tmp_path / "again.csv")
        write(path, "csv", tmp_path / "first.csv")
        query = """SELECT p.name, w.name, s.value FROM answers s JOIN assignments a ON a.id = s.assignment
          JOIN images p ON p.id = a.image JOIN annotators w ON w.id = a.annotator WHERE a.role = 'work' ORDER BY 1, 2"""
        with open_labelling(path) as one, open_labelling(again) as other:
            assert [tuple(r) for r in one.execute(query)] == [tuple(r) for r in other.execute(query)]


EVIL = '<img src=x onerror=document.title="caught">'


def test_markup_in_names_is_only_text_and_boxes_are_drawn_in_pixels_of_the_image(
    browser: Any, server: type[Server], tmp_path: Path, photos: Path
) -> None:
    task = tmp_path / "boxes.toml"
    task.write_text(
        f"name = 'evil'\ntitle = '''{EVIL}'''\ninstructions = '''{EVIL}'''\n[[questions]]\nid = 'objects'\nask"
        f" = '''{EVIL}'''\nkind = 'boxes'\nchoices = [{{ value = '''{EVIL}''', key = '1' }}, {{ value ="
        " 'dog', key = '2' }]\n"
    )
    root = tmp_path / "images" / EVIL
    root.mkdir(parents=True)
    for i, image in enumerate(sorted(photos.rglob("*.png"))[:3]):
        shutil.copy(image, root / f"{EVIL[:20]}{i}.png")
    path = tmp_path / "l.sqlite"
    served = server(
        str(task), "--source", f"folder:{tmp_path / 'images'}", "--out", str(path), "--annotator", "ann"
    )
    served.start()
    ann = Person(browser, served.links["ann"])
    assert ann.page.title() == EVIL
    ann.page.locator("legend", has_text=EVIL[:4]).wait_for()
    assert ann.page.locator("legend").inner_text() == EVIL
    assert ann.page.locator("main img").count() == 1
    for _ in range(3):
        assert ann.shown()
        frame = ann.page.locator("#world").bounding_box()
        for (x0, y0), (x1, y1), key in (((0.1, 0.2), (0.5, 0.6), "2"), ((0.9, 0.9), (0.6, 0.7), "1")):
            ann.page.mouse.move(frame["x"] + x0 * frame["width"], frame["y"] + y0 * frame["height"])
            ann.page.mouse.down()
            ann.page.mouse.move(frame["x"] + x1 * frame["width"], frame["y"] + y1 * frame["height"], steps=4)
            ann.page.mouse.up()
            ann.page.keyboard.press(key)
        ann.page.keyboard.press("Enter")
        ann.page.wait_for_timeout(100)
    ann.saved()
    assert ann.complaints == []
    assert ann.page.title() == EVIL
    with open_labelling(path) as database:
        rows = database.execute(
            """SELECT s.value, p.width, p.height FROM answers s JOIN assignments a ON a.id = s.assignment
              JOIN images p ON p.id = a.image"""
        ).fetchall()
    assert len(rows) == 3
    for row in rows:
        dog, evil = json.loads(row["value"])
        width, height = row["width"], row["height"]
        assert (dog["label"], evil["label"]) == ("dog", EVIL)
        assert dog["box"] == pytest.approx([0.1 * width, 0.2 * height, 0.5 * width, 0.6 * height], abs=0.5)
        assert evil["box"] == pytest.approx([0.6 * width, 0.7 * height, 0.9 * width, 0.9 * height], abs=0.5)
