"""Every way out is read back equal, and is what the other tools write."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.apps.annotation.test_clicks import Worker
from tests.conftest import scene

from sorites import core
from sorites.apps.annotation.begin import add_annotators, begin
from sorites.apps.annotation.clicks import receive
from sorites.apps.annotation.formats import read_into, write
from sorites.apps.annotation.formats.rows import labelled
from sorites.apps.annotation.images import Entry
from sorites.apps.annotation.store import open_labelling, task_of
from sorites.apps.annotation.task import load
from sorites.core import table
from sorites.core.errors import SoritesError
from sorites.core.labels import labels
from sorites.io.digests import write_sealed

EVERY = """
name = "every"
title = "Every kind"
instructions = "Look."
[[questions]]
id = "kind"
ask = "Kind <b>?</b>"
choices = [{ value = "cat, wild" }, { value = "<dog>" }, { value = "none" }]
[[questions]]
id = "places"
ask = "Places"
kind = "several"
choices = [{ value = "grass" }, { value = "sand & water" }, { value = "none" }]
[[questions]]
id = "sharp"
ask = "How sharp?"
kind = "scale"
[[questions]]
id = "note"
ask = "Anything?"
kind = "text"
optional = true
[[questions]]
id = "objects"
ask = "Objects"
kind = "boxes"
choices = [{ value = "cat" }, { value = "dög" }]
"""
NAME = "SELECT p.name FROM images p JOIN assignments a ON a.image = p.id WHERE a.id = ?"
BOXES = [{"box": [1.25, 2.0, 30.5, 40.75], "label": "dög"}, {"box": [0.0, 0.0, 80.0, 60.0], "label": "cat"}]


def answers(task: str, i: int, who: int) -> dict[str, Any]:
    """Different answers for images and people."""
    if task == "context":
        weather = ("sunny", "foggy", "none")[i % 3]
        return {
            "category": ("cat", "ship", "none")[(i + who) % 3],
            "time": "night",
            "weather": weather,
            "locations": ["grass", "sand"],
            "humans": "no",
        }
    note = {} if i % 2 else {"note": 'two\nlines, "quoted" ünd <i>'}
    places = ["grass", "sand & water"] if i % 2 else ["none"]
    kind = ("cat, wild", "<dog>", "none")[(i + who) % 3]
    return {"kind": kind, "places": places, "sharp": 1 + i % 5, "objects": BOXES[: i % 3], **note}


def made(tmp_path: Path, task: str) -> Path:
    """A labelling of six images by two people."""
    path, text = tmp_path / f"{task}.sqlite", EVERY if task == "every" else load(task)[1]
    names = [f"cat-night/{i}.jpeg" for i in range(6)]
    begin(path, text, [Entry(name, name, lambda: scene(0), "cat") for name in names], "source test")
    add_annotators(path, ["ann", "ben@example.org"])
    with open_labelling(path, write=True) as database:
        database.execute("UPDATE images SET width = 80, height = 60")
        for who in (1, 2):
            for item in Worker(database, who).items():
                number = int(database.execute(NAME, (item["id"],)).fetchone()[0][10:-5])
                click = {
                    "id": f"click-{who}-{number}",
                    "assignment": item["id"],
                    "action": "answer",
                    "seconds": 1.5,
                }
                worker = Worker(database, who)
                assert receive(database, worker.task, who, [{**click, "value": answers(task, number, who)}])[
                    "kept"
                ]
    return path


def content(path: Path, all_answers: bool) -> dict[str, Any]:
    with open_labelling(path) as database:
        rows = labelled(database, task_of(database), all_answers)
        return {
            row.image: sorted((one.annotator, json.dumps(one.values, sort_keys=True)) for one in row.answers)
            for row in rows
        }


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("csv", "t.csv"),
        ("csv", "t.parquet"),
        ("label_studio", "t.json"),
        ("via2", "t.json"),
        ("via3", "t.json"),
    ],
)
def test_what_is_written_is_read_back_equal(tmp_path: Path, name: str, file: str) -> None:
    path, task = made(tmp_path, "every"), tmp_path / "every.toml"
    task.write_text(EVERY)
    assert write(path, name, tmp_path / file) == 6
    assert read_into(tmp_path / file, name, tmp_path / "again.sqlite", task=str(task), annotator="") == 6
    with open_labelling(tmp_path / "again.sqlite") as database:
        found = {row.image: row.values for row in labelled(database, task_of(database), False)}
    with open_labelling(path) as database:
        assert found == {row.image: row.values for row in labelled(database, task_of(database), False)}


@pytest.mark.parametrize(("name", "file"), [("csv", "t.csv"), ("label_studio", "t.json")])
def test_the_answers_of_everybody_are_read_back_equal_and_not_doubled(
    tmp_path: Path, name: str, file: str
) -> None:
    path, task = made(tmp_path, "every"), tmp_path / "every.toml"
    task.write_text(EVERY)
    write(path, name, tmp_path / file, all_answers=True)
    for _ in range(2):
        read_into(tmp_path / file, name, tmp_path / "again.sqlite", task=str(task))
    assert content(tmp_path / "again.sqlite", True) == content(path, True)
    with open_labelling(tmp_path / "again.sqlite") as database:
        assert database.execute("SELECT count(*), min(seconds) FROM clicks").fetchone()[:] == (12, 1.5)


def test_label_studio_files_have_addresses_and_are_read_without_our_names(tmp_path: Path) -> None:
    """Label Studio needs the address of an image; its own exports lack the name that we add."""
    path, task = made(tmp_path, "every"), tmp_path / "every.toml"
    task.write_text(EVERY)
    write(path, "label_studio", tmp_path / "t.json")
    items = json.loads((tmp_path / "t.json").read_text())
    names = {item["data"].pop("picture") for item in items}
    assert {item["data"]["image"] for item in items} == {f"/data/local-files/?d={name}" for name in names}
    (tmp_path / "theirs.json").write_text(json.dumps(items))
    read_into(tmp_path / "theirs.json", "label_studio", tmp_path / "again.sqlite", task=str(task))
    assert set(content(tmp_path / "again.sqlite", True)) == names


def test_rotated_rectangles_of_label_studio_are_refused(tmp_path: Path) -> None:
    path, task = made(tmp_path, "every"), tmp_path / "every.toml"
    task.write_text(EVERY)
    write(path, "label_studio", tmp_path / "t.json")
    items = json.loads((tmp_path / "t.json").read_text())
    values = [
        result["value"]
        for item in items
        for annotation in item["annotations"]
        for result in annotation["result"]
        if "rectanglelabels" in result["value"]
    ]
    values[0]["rotation"] = 30
    (tmp_path / "turned.json").write_text(json.dumps(items))
    with pytest.raises(SoritesError) as caught:
        read_into(tmp_path / "turned.json", "label_studio", tmp_path / "again.sqlite", task=str(task))
    assert "OBB" in str(caught.value)


def test_focus_is_read_by_our_source_and_by_plain_sqlite(tmp_path: Path) -> None:
    from PIL import Image

    path = made(tmp_path, "context")
    out = tmp_path / "focus" / "annotations.db"
    kept = write(path, "focus", out)
    assert 0 < kept < 6
    query = (
        "SELECT file_name, category, locations FROM annotations WHERE time = 'night' AND (locations LIKE"
        " '%grass%')"
    )
    with sqlite3.connect(out) as database:
        rows = database.execute(query).fetchall()
    database.close()
    assert len(rows) == kept
    assert all(name.startswith("/cat-night/") and where == "grass, sand" for name, _, where in rows)
    (tmp_path / "focus" / "cat-night").mkdir()
    for name, _, _ in rows:
        Image.fromarray(scene(1)).save(tmp_path / "focus" / name.lstrip("/"))
    samples = core.source(f"focus:{tmp_path / 'focus'}").samples
    assert len(samples) == kept
    assert {attr.value for attr in samples[0].attrs if attr.key == "location"} == {"grass", "sand"}
    assert read_into(out, "focus", tmp_path / "again.sqlite") == kept
    write(tmp_path / "again.sqlite", "focus", tmp_path / "again.db")
    with sqlite3.connect(out) as one, sqlite3.connect(tmp_path / "again.db") as other:
        every = "SELECT * FROM annotations ORDER BY file_name"
        assert one.execute(every).fetchall() == other.execute(every).fetchall()
    one.close()
    other.close()


def test_coco_is_read_by_cocos_own_tools_and_by_our_source(tmp_path: Path) -> None:
    from PIL import Image
    from pycocotools.coco import COCO

    path, out = made(tmp_path, "every"), tmp_path / "boxes.json"
    assert write(path, "coco", out) == 6
    coco = COCO(str(out))
    assert len(coco.getImgIds()) == 6
    assert {c["name"] for c in coco.loadCats(coco.getCatIds())} == {"cat", "dög"}
    (tmp_path / "cat-night").mkdir()
    for i in range(6):
        Image.fromarray(scene(i)).save(tmp_path / "cat-night" / f"{i}.jpeg")
    found = core.source(f"coco:{out},images={tmp_path}", labels(["cat", "dög"]))
    boxes = sorted(box.xyxy for sample in found for box in sample.ground_truth or ())
    with open_labelling(path) as database:
        rows = list(labelled(database, task_of(database), False))
    assert np.allclose(
        boxes, sorted(tuple(box["box"]) for row in rows for box in row.values["objects"]), atol=0.01
    )
    assert read_into(out, "coco", tmp_path / "again.sqlite") == 6
    with open_labelling(tmp_path / "again.sqlite") as database:
        again = {row.image: row.values["boxes"] for row in labelled(database, task_of(database), False)}
    assert again == {row.image: row.values["objects"] for row in rows}


def _write_run(rows: list[dict[str, object]], run: Path) -> None:
    """Write a run folder with these rows."""
    table.write_shard(table.rows(rows), run, "a")
    write_sealed({"run_id": "r"}, run / "run.json")


def test_facts_of_a_run_set_images_aside_and_give_attributes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ids = [f"image{i}" for i in range(6)]
    rows = [
        {"run_id": "r", "image_id": id_, "sample_id": "s", "shift": "snow", "model": "m", "output": "label"}
        for id_ in ids
    ]
    _write_run(rows, run)
    path = tmp_path / "l.sqlite"
    begin(
        path,
        load("in_class")[1],
        [Entry(id_, "s", lambda: scene(0), "cat", id_, "snow", 1.0) for id_ in ids[:4]],
        "run r",
    )
    add_annotators(path, ["ann"])
    with open_labelling(path, write=True) as database:
        worker = Worker(database, 1)
        for word, item in zip(("class", "partly", "not class", "class"), worker.items(), strict=True):
            worker.send(item["id"], word)
    assert write(path, "facts", run) == 4
    valid = table.read(run).select("image_id", "valid").collect()
    assert sorted(valid["valid"].to_list(), key=str) == [False, None, None, True, True, True]


def test_an_answer_on_a_captured_image_of_a_source_is_of_that_image(tmp_path: Path) -> None:
    """Images of a source have no id of the run: sample, shift and severity say which one was shown."""
    run, shown = tmp_path / "run", {("clean", None): "a", ("snow", 1.0): "b", ("snow", 2.0): "c"}
    base = {"run_id": "r", "sample_id": "s", "model": "m", "output": "label"}
    _write_run([{**base, "image_id": i, "shift": k, "severity": v} for (k, v), i in shown.items()], run)
    entry = Entry("s snow 2", "s", lambda: scene(0), "cat", None, "snow", 2.0)
    begin(tmp_path / "l.sqlite", load("in_class")[1], [entry], "source test")
    add_annotators(tmp_path / "l.sqlite", ["ann"])
    with open_labelling(tmp_path / "l.sqlite", write=True) as database:
        worker = Worker(database, 1)
        worker.send(worker.items()[0]["id"], "not class")
    assert write(tmp_path / "l.sqlite", "facts", run) == 1
    found = dict(table.read(run).select("image_id", "valid").collect().iter_rows())
    assert found == {"a": None, "b": None, "c": False}


def test_attributes_become_facts_with_what_is_uncommon(tmp_path: Path) -> None:
    run = tmp_path / "run"
    attrs = [{"key": "time", "value": "day", "common": True}, {"key": "mine", "value": "x", "common": None}]
    base = {"run_id": "r", "shift": "clean", "model": "m", "output": "label", "attrs": attrs}
    rows = [{**base, "image_id": f"i{i}", "sample_id": f"cat-night/{i}.jpeg"} for i in range(7)]
    _write_run(rows, run)
    assert write(made(tmp_path, "context"), "facts", run) == 6
    found = {
        row["image_id"]: row["attrs"]
        for row in table.read(run).select("image_id", "attrs").collect().to_dicts()
    }
    ship = next(
        attrs for attrs in found.values() if {"key": "class", "value": "ship", "common": None} in attrs
    )
    assert {"key": "location", "value": "grass", "common": False} in ship
    assert {
        "key": "mine",
        "value": "x",
        "common": None,
    } in ship
    assert {"key": "time", "value": "night", "common": False} in ship
    assert not any(attr["value"] == "day" for attr in ship)
    assert found["i6"] == rows[6]["attrs"]


def test_work_begun_elsewhere_goes_on(tmp_path: Path) -> None:
    rows = pl.DataFrame({"image": ["folder/p000.png", "folder/p001.png"], "class": ["class", "partly"]})
    rows.write_csv(tmp_path / "before.csv")
    path = tmp_path / "l.sqlite"
    assert read_into(tmp_path / "before.csv", "csv", path, task="in_class", annotator="ann") == 2
    from tests.apps.annotation.conftest import labelling

    labelling(path, n=4, people=2)
    with open_labelling(path, write=True) as database:
        assert [Worker(database, who).work() for who in (2, 3)] == [4, 2]


def test_imported_answers_can_be_the_known_ones(tmp_path: Path) -> None:
    pl.DataFrame({"image": ["a.png", "b.png"], "class": ["class", "partly"]}).write_csv(
        tmp_path / "known.csv"
    )
    read_into(tmp_path / "known.csv", "csv", tmp_path / "l.sqlite", task="in_class", known=True)
    with open_labelling(tmp_path / "l.sqlite") as database:
        assert database.execute("SELECT count(*) FROM known").fetchone()[0] == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csv", "image,class\n../../etc/passwd,class\n"), ("csv", "image,class\na.png,maybe\n"), ("csv", "a,b\n1,2\n"),
        ("label_studio", "{}"), ("label_studio", '[{"data": {"image": "/x.png"}, "annotations": [{"result": [3]}]}]'),
        ("via2", "[]"), ("via2", '{"a": {"filename": "../up.png"}}'), ("via3", "{}"), ("via3", '{"attribute": 3}'),
        ("coco", '{"images": 3}'), ("focus", "no database"), ("csv", ""), ("label_studio", "{" * 5000),
    ],
)  # fmt: skip
def test_files_that_are_something_else_are_refused_in_words(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "wrong"
    path.write_text(text)
    with pytest.raises(SoritesError):
        read_into(path, name, tmp_path / "l.sqlite", task="boxes" if name == "coco" else "in_class")


def test_formats_that_cannot_hold_it_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "context")
    for name, words in (("coco", "no boxes question"), ("via4", "no format")):
        with pytest.raises(SoritesError, match=words):
            write(path, name, tmp_path / "out")
    with pytest.raises(SoritesError, match="one answer"):
        write(path, "via2", tmp_path / "out", all_answers=True)
    with pytest.raises(SoritesError, match="needs the questions"):
        write(made(tmp_path, "every"), "focus", tmp_path / "out")


def test_samples_of_several_sources_with_the_same_name_get_no_facts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    base = {"run_id": "r", "shift": "clean", "model": "m", "output": "label"}
    rows = [
        {**base, "source": source, "image_id": f"{source}{i}", "sample_id": f"cat-night/{i}.jpeg"}
        for source in ("a", "b")
        for i in range(7)
    ]
    _write_run(rows, run)
    with pytest.raises(SoritesError, match="several sources"):
        write(made(tmp_path, "context"), "facts", run)
