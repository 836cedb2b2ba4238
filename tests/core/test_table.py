from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from sorites.core import table
from sorites.core.errors import Damaged, SoritesError
from sorites.core.table import CLASSES, SCHEMA
from sorites.io import digests


def record(image: str, model: str = "m", **more: Any) -> dict[str, Any]:
    base = {
        "run_id": "r",
        "image_id": image,
        "model": model,
        "output": "label",
        "probe": False,
        "sample_id": image,
        "shift": "clean",
    }
    return {**base, "correct": True, **more}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two shards, one of them with nothing in its nested columns."""
    full = record(
        "a",
        accept=[1, 2],
        top5=[1, 2, 3],
        attrs=[{"key": "time", "value": "night", "common": False}],
        severity=0.0,
    )
    boxed = record(
        "b", boxes=[{"x0": 0, "y0": 1, "x1": 2, "y1": 3, "label": 4, "conf": 0.5}], severity=1.5, level=2
    )
    table.write_shard(table.rows([full, boxed]), tmp_path, "one")
    table.write_shard(table.rows([record("c"), record("a", "other")]), tmp_path, "two")
    digests.write_sealed({"run_id": "r"}, tmp_path / "run.json")
    return tmp_path


def test_what_is_written_is_read(run: Path) -> None:
    held = table.read(run).collect()
    assert held.schema == {**SCHEMA, CLASSES: pl.Int32}
    assert held["image_id"].to_list() == ["a", "b", "c", "a"]
    assert held.row(0, named=True)["attrs"] == [{"key": "time", "value": "night", "common": False}]
    assert held.row(1, named=True)["boxes"] == [
        {"x0": 0, "y0": 1, "x1": 2, "y1": 3, "label": 4, "conf": 0.5, "score": None}
    ]
    assert table.check(held) == []


def test_missing_is_null(run: Path) -> None:
    held = table.read(run).collect()
    never = ["ground_truth", "degrees", "sem_level", "score", "error", "valid", "known"]
    assert held.select(never).null_count().row(0) == (4,) * len(never)
    assert held.row(2, named=True)["severity"] is None


def test_other_tools_read_it_without_us(run: Path) -> None:
    found = duckdb.execute(
        f"select image_id, top5, boxes[1].label from '{run}/predictions/*.parquet' order by 1, model"
    )
    assert found.fetchall() == [("a", [1, 2, 3], None), ("a", None, None), ("b", None, 4), ("c", None, None)]


def test_a_folder_name_may_look_like_a_pattern(run: Path, tmp_path: Path) -> None:
    odd = tmp_path / "runs [1]*{2}?"
    table.write_shard(table.rows([record("x")]), odd, "a b%20")
    assert table.read(odd).collect()["image_id"].to_list() == ["x"]


def test_unfinished_files_are_not_read(run: Path) -> None:
    (run / "predictions" / "three.parquet.123.tmp").write_bytes(b"half")
    assert table.read(run).collect().height == 4


@pytest.mark.parametrize("kind", ["predictions", "facts"])
@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-9], lambda data: data[::-1]])
def test_a_damaged_file_is_named_with_what_to_type(
    run: Path, kind: str, change: Callable[[bytes], bytes]
) -> None:
    table.write_facts(run, "mine", pl.DataFrame({"image_id": ["a"], "level": [1]}))
    path = next((run / kind).glob("*.parquet"))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(Damaged, match="check") as caught:
        table.read(run)
    assert caught.value.fields["path"] == str(path)


def test_files_of_others_change_no_number(run: Path) -> None:
    before = table.read(run).collect()
    first, second = sorted((run / "predictions").glob("*.parquet"))
    copies = [first.name.replace(".parquet", " copy.parquet"), "one.parquet", f"{first.name}.tmp"]
    for name in copies:
        (run / "predictions" / name).write_bytes(first.read_bytes())
    (run / "facts").mkdir()
    pl.DataFrame({"image_id": ["a"], "level": [7]}).write_parquet(run / "facts" / "foreign.parquet")
    table.write_shard(table.rows([record("z", run_id="another run")]), run, "foreign")
    assert table.read(run).collect().equals(before)
    (run / "predictions" / second.name.replace("two", "three")).write_bytes(second.read_bytes())
    with pytest.raises(Damaged, match="three"):
        table.read(run)


def test_of_two_shards_of_one_task_one_counts(run: Path) -> None:
    table.write_shard(table.rows([record("c"), record("a", "other", conf=0.5)]), run, "two")
    held = table.read(run).collect()
    assert held["image_id"].to_list() == ["a", "b", "c", "a"]
    assert table.read(run).collect().equals(held)


def test_a_record_of_an_earlier_version_is_refused(run: Path) -> None:
    (run / "run.json").write_text('{"run_id": "r"}')
    with pytest.raises(Damaged, match="an earlier version"):
        table.read(run)


def test_facts_need_a_run(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"run\.json"):
        table.write_facts(tmp_path, "mine", pl.DataFrame({"image_id": ["a"], "level": [1]}))


def test_a_folder_without_predictions_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match="no predictions in"):
        table.read(tmp_path)


def test_degrees_of_facts_add_up_and_later_ones_replace(run: Path) -> None:
    def degrees(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
        return [{"measure": name, "value": value} for name, value in pairs]

    first = {
        "image_id": ["a", "b"],
        "valid": [False, None],
        "degrees": [degrees(("lpips", 0.1)), degrees(("lpips", 0.2))],
    }
    later = {"image_id": ["a"], "valid": [True], "degrees": [degrees(("psnr", 30.0), ("lpips", 0.15))]}
    table.write_facts(run, "1-lpips", pl.DataFrame(first))
    table.write_facts(run, "2-more", pl.DataFrame(later))
    held = table.read(run).sort("image_id", "model").collect()
    assert held.schema == {**SCHEMA, CLASSES: pl.Int32}
    assert held["valid"].to_list() == [False, False, None, None]
    seen = [
        None if d is None else sorted((e["measure"], e["value"]) for e in d)
        for d in held["degrees"].to_list()
    ]
    assert seen == [[("lpips", 0.15), ("psnr", 30.0)]] * 2 + [[("lpips", 0.2)], None]
    assert table.check(held) == []


@pytest.mark.parametrize("names", [("1", "2", "3"), ("3", "2", "1")])
def test_an_image_is_valid_only_if_no_filter_says_no(run: Path, names: tuple[str, str, str]) -> None:
    """False if any says false, else true if any says true, else null; whichever file comes last by
    its name.
    """
    said = {"a": (True, False, None), "b": (True, None, True), "c": (None, None, None)}
    for i, name in enumerate(names):
        frame = pl.DataFrame(
            {"image_id": list(said), "valid": [one[i] for one in said.values()]},
            schema_overrides={"valid": bool},
        )
        table.write_facts(run, name, frame)
    held = table.read(run).collect()
    assert held.schema == {**SCHEMA, CLASSES: pl.Int32}
    assert held.select("image_id", "valid").rows() == [("a", False), ("b", True), ("c", None), ("a", False)]


def test_what_a_row_says_of_itself_counts_as_a_filter(tmp_path: Path) -> None:
    rows = [record("a", valid=False), record("b", valid=True), record("c", valid=True), record("d")]
    table.write_shard(table.rows(rows), tmp_path, "one")
    digests.write_sealed({"run_id": "r"}, tmp_path / "run.json")
    table.write_facts(tmp_path, "f", pl.DataFrame({"image_id": ["a", "b"], "valid": [True, False]}))
    assert table.read(tmp_path).collect()["valid"].to_list() == [False, False, True, None]


def test_a_fact_may_give_a_level_and_leaves_the_rest(run: Path) -> None:
    table.write_facts(run, "levels", pl.DataFrame({"image_id": ["c"], "level": [3], "sem_level": [7]}))
    held = table.read(run).sort("image_id", "model").collect()
    assert held["level"].to_list() == [None, None, 2, 3]
    assert held["sem_level"].to_list() == [None, None, None, 7]


def test_facts_of_nothing_known_change_nothing(run: Path) -> None:
    before = table.read(run).collect()
    table.write_facts(run, "stray", pl.DataFrame({"image_id": ["zz"], "valid": [False]}))
    assert table.read(run).collect().equals(before)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"image_id": ["a"], "pred": [1]}, "facts need image_id and some of"),
        ({"valid": [True]}, "facts need image_id"),
        ({"image_id": ["a", "a"], "valid": [True, False]}, "an image_id"),
    ],
)
def test_facts_are_checked(run: Path, facts: dict[str, Any], said: str) -> None:
    with pytest.raises(SoritesError, match=said):
        table.write_facts(run, "wrong", pl.DataFrame(facts))
    assert not (run / "facts").exists()


def test_check_finds_keys_that_stand_twice(run: Path) -> None:
    held = table.read(run).collect()
    assert table.check(pl.concat([held, held[:2]])) == [
        "2 keys (run_id, image_id, model, output, scorer) occur more than once"
    ]
    scored = held.with_columns(output=pl.lit("ood"), scorer=pl.lit("energy"))
    assert table.check(pl.concat([held, scored, scored.with_columns(scorer=pl.lit("msp"))])) == []


def test_check_finds_wrong_and_missing_columns(run: Path) -> None:
    held = table.read(run).with_columns(pl.col("severity").cast(pl.Float32)).drop("pred")
    assert table.check(held) == [
        "column severity is Float32, not Float64",
        "column pred is missing, not Int32",
    ]


def test_check_finds_a_verdict_on_an_error() -> None:
    assert table.check(table.rows([record("a", error="truncated")])) == [
        "1 rows have both an error and a prediction"
    ]
    assert table.check(table.rows([record("a", error="truncated", correct=None)])) == []


def test_a_path_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="cannot write"):
        table.write(table.rows([]), tmp_path / "file" / "shard.parquet")


def test_no_rows_are_still_a_table() -> None:
    empty = table.rows([])
    assert empty.schema == SCHEMA
    assert table.check(empty) == []


def test_attributes_learnt_later_replace_those_of_their_keys(tmp_path: Path) -> None:
    day, mine = {"key": "time", "value": "day", "common": True}, {"key": "mine", "value": "x", "common": None}
    rows = [
        {"run_id": "r", "image_id": f"i{i}", "model": m, "output": "label", "attrs": [day, mine]}
        for i in range(3)
        for m in "ab"
    ]
    table.write_shard(table.rows(rows), tmp_path, "a")
    digests.write_sealed({"run_id": "r"}, tmp_path / "run.json")
    night, dusk = ({"key": "time", "value": word, "common": None} for word in ("night", "dusk"))
    table.write_facts(
        tmp_path, "a", pl.DataFrame({"image_id": ["i0", "i1"], "attrs": [[night], [night, dusk]]})
    )
    table.write_facts(tmp_path, "b", pl.DataFrame({"image_id": ["i1"], "attrs": [[dusk]]}))
    found = table.read(tmp_path).select("image_id", "attrs").collect()
    assert found["image_id"].to_list() == [f"i{i}" for i in range(3) for _ in "ab"]
    assert found["attrs"].to_list()[::2] == [[mine, night], [mine, dusk], [day, mine]]


def test_the_number_of_classes_is_read_from_the_record(run: Path) -> None:
    assert table.read(run).collect()[CLASSES].null_count() == 4
    digests.write_sealed({"answers": {"m": 3, "gone": 7}}, run / "run.json")
    held = table.read(run).collect()
    assert held.schema[CLASSES] == pl.Int32
    assert {(row["model"], row[CLASSES]) for row in held.to_dicts()} == {("m", 3), ("other", None)}
