"""Records keep their ids, survive reading and writing, and say which field is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sorites.core.errors import Damaged
from sorites.evaluation.storage.record import read_record, write_record
from sorites.evaluation.storage.schema import (
    AttackRecord,
    Causes,
    DatasetRecord,
    DialRecord,
    FirstPlaces,
    ImportRecord,
    ModelFit,
    Place,
    RanOn,
    RunRecord,
    difference,
    hash_of,
    read_model,
    same_run,
)
from sorites.io.digests import read_sealed, write_sealed
from sorites.suites.suite import STORED, Suite

# Files and ids that were written before records were typed; ``ran_on`` has become a list since, and suites
# have ``grid``, ``compose`` and ``unseen_by``.
WRITTEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "records.json").read_text(encoding="utf-8")
)


def stored(data: dict[str, Any]) -> Causes:
    kind = DatasetRecord if "quality" in data else RunRecord
    return kind.model_validate(data, context=STORED)


@pytest.mark.parametrize("data", WRITTEN, ids=lambda data: str(data["run_id"]))
def test_ids_and_contents_of_existing_files_stay_the_same(data: dict[str, Any]) -> None:
    record = stored(data)
    assert record.as_json() == data
    imported = record.imported if isinstance(record, RunRecord) else None
    assert hash_of(imported.identity() if imported else record.identity()) == data["run_id"]


def test_the_examples_have_every_field_that_determines_an_id() -> None:
    fields = {key for data in WRITTEN for key in data}
    assert set(Causes.model_fields) | {"imported", "quality"} <= fields


NAME = st.text("abc_é\udcff", min_size=1, max_size=4)
NUMBER = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
VERSION = st.text(max_size=4) | st.integers()
NAMES = st.lists(NAME, max_size=3).map(tuple)
JSON = st.none() | st.booleans() | NUMBER | NAME | st.lists(NUMBER, max_size=2)


def by_name(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAME, values, max_size=2)


SETTINGS = by_name(st.lists(NUMBER | by_name(JSON), max_size=2).map(tuple))
FILES = st.lists(st.tuples(NAME, NAME), max_size=2).map(tuple)
RECORDS = st.fixed_dictionaries(
    {"run_id": NAME, "suite": st.integers(0, 9).map(lambda seed: Suite(name="s", seed=seed)), "settings": SETTINGS,
     "models": by_name(VERSION)},
    optional={
        "fit": NAME, "validation": NAME, "search": by_name(NAMES), "labels": NAME, "shifts": by_name(VERSION),
        "dials": by_name(st.builds(DialRecord, levels=st.lists(NUMBER, max_size=2).map(tuple), unit=NAME,
                                   family=NAME, version=VERSION)),
        "scorers": by_name(VERSION), "versions": by_name(VERSION),
        "imported": st.builds(ImportRecord, kind=NAME, files=FILES, columns=by_name(NAME), constants=by_name(JSON),
                              higher=NAME, labels=NAME, version=st.integers(), rows=st.integers()),
        "ran_on": st.tuples(st.builds(RanOn, engine=NAME, device=NAME, precision=NAME, batch=st.integers())),
        "attack": st.builds(AttackRecord, norm=NAME, eps=st.lists(NUMBER, max_size=2).map(tuple), losses=NAMES,
                            steps=st.integers(), restarts=st.integers(), version=st.integers()),
        "parameters": by_name(st.none() | st.integers()),
        "places": by_name(st.builds(Place, beside=NAME, absolute=NAME)), "classes": NAMES,
        "inputs": by_name(by_name(JSON)), "not_repeating": NAMES, "slice": st.integers(1, 99),
        "limited": by_name(st.tuples(st.integers(), st.integers())), "scored": NAMES,
        "first_places": st.builds(FirstPlaces, source=NAME, sources=NAMES, fit=st.none() | NAME),
    },
).map(lambda fields: RunRecord(**fields))  # fmt: skip


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(RECORDS)
def test_a_record_is_the_same_after_it_was_written_and_read(record: RunRecord) -> None:
    text = json.dumps(record.as_json())
    again = RunRecord.model_validate(json.loads(text), context=STORED)
    assert again == record
    assert json.dumps(again.as_json()) == text
    assert again.identified().run_id == record.identified().run_id
    assert same_run(record.identified(), again.identified())


def test_a_record_is_read_from_its_folder(tmp_path: Path) -> None:
    record = stored(WRITTEN[0])
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert read_sealed(tmp_path / "run.json", "") == WRITTEN[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"suite": {"name": "s", "seed": "x"}}, "suite.seed"),
        ({"suite": {"name": "s", "frame": {"resize": 0}}}, "suite.frame.resize"),
        ({"settings": {"jpeg": [1, None]}}, "settings.jpeg"),
        ({"ran_on": [{"engine": "local"}]}, "ran_on.0.device"),
        ({"attack": {"norm": 2}}, "attack"),
        ({"slice": 0}, "slice"),
        ({"limited": {"a": ["1", 2]}}, "limited.a"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    held = {"run_id": "r", "suite": {"name": "s"}, "settings": {}, "models": {}}
    write_sealed({**held, **change}, tmp_path / "run.json")
    with pytest.raises(Damaged) as told:
        read_record(tmp_path)
    assert field in str(told.value.fields["reason"])


def test_records_are_compared_by_field() -> None:
    held = RunRecord(
        run_id="", suite=Suite(name="s"), settings={"jpeg": (1,)}, models={"m": "1"}
    ).identified()
    other = held.having(settings={"jpeg": (1, 2)}).identified()
    assert not same_run(held, other)
    assert difference(held, other) == "settings.jpeg: [1] there, [1, 2] here"
    seeded = held.having(suite=held.suite.model_copy(update={"seed": 3})).identified()
    assert difference(held, seeded) == "suite.seed: 0 there, 3 here"
    newer = held.having(models={"m": "2"}).identified()
    assert "m: version 1 there, 2 here" in difference(held, newer)
    added = held.having(suite=held.suite.model_copy(update={"about": "x", "refine": 0.1}), scored=("msp",))
    assert same_run(held, added.identified())


def test_a_run_whose_images_moved_is_the_same_run() -> None:
    def at(path: str) -> RunRecord:
        suite = Suite(name="s", source=f"folder:{path}")
        return RunRecord(run_id="", suite=suite, settings={}, models={"m": "1"}).identified()

    first, moved = at("a"), at("b")
    assert first.run_id != moved.run_id
    assert same_run(first, moved)
    again = moved.having(run_id=first.run_id, first_places=first.first())
    assert same_run(again, at("c"))
    webdataset = moved.having(suite=moved.suite.model_copy(update={"source": "webdataset:b"})).identified()
    assert not same_run(first, webdataset)


def test_fits_are_typed(tmp_path: Path) -> None:
    entry = {"left_out": 2, "scorers": {"knn": {"images": 5}}, "search": {"knn": {"chosen": {"k": 3}}}}
    (tmp_path / "fit.json").write_text(json.dumps(entry))
    fit = read_model(tmp_path / "fit.json", ModelFit, "")
    assert fit.as_json() == entry
    assert fit.chosen() == {"knn": {"k": 3}}
