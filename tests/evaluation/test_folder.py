from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sorites.core import Attr, Generated, Model, Sample, Setting, Source, table
from sorites.core.errors import Damaged, SoritesError
from sorites.evaluation import plan, runner
from sorites.evaluation.plan import Plan
from sorites.evaluation.storage import folder, shards
from sorites.evaluation.storage.record import describe, read_record
from sorites.io.digests import write_sealed
from sorites.io.listed import write_listed
from sorites.suites.suite import parse

SUITE = {"name": "s", "shifts": ["jpeg"], "models": ["tiny"]}


@pytest.fixture
def make(photos: Path, tiny: Callable[..., Model]) -> Callable[..., Plan]:
    def planned(**more: Any) -> Plan:
        suite = parse({**SUITE, "source": f"folder:{photos}", "limit": 4, **more}, "test")
        return plan.make(suite, models={name: tiny(name) for name in suite.models})

    return planned


def test_a_new_folder_gets_its_story_and_its_samples(make: Callable[..., Plan], tmp_path: Path) -> None:
    with folder.open_run(tmp_path / "deep" / "run", make(about="why"), describe(make(about="why"))) as held:
        assert held == read_record(tmp_path / "deep" / "run")
    assert held.suite.about == "why"
    manifest = pl.read_parquet(tmp_path / "deep" / "run" / "manifest.parquet")
    assert manifest.height == manifest["sample_id"].n_unique() == 4
    assert manifest["label"].to_list() == [accept[0] for accept in manifest["accept"]]


def test_the_manifest_has_a_row_for_every_captured_image(tiny: Callable[..., Model]) -> None:
    attrs = (Attr("time", "night", False),)
    samples = [
        Sample("a", Generated(lambda: None), 1, attrs=attrs),  # type: ignore[arg-type, return-value]
        Sample("a", Generated(lambda: None), 1, shift="mist", setting=Setting(2.0, {"lamp": "on"}, 1)),  # type: ignore[arg-type, return-value]
    ]
    held = folder.manifest_of(
        plan.make(parse({"name": "s", "shifts": ["mist", "jpeg"]}, "t"), Source("mine", samples))
    )
    assert held.select("sample_id", "shift", "severity", "params").rows() == [
        ("a", "clean", 0.0, "{}"),
        ("a", "mist", 2.0, '{"lamp": "on"}'),
    ]
    assert held["attrs"].to_list() == [[{"key": "time", "value": "night", "common": False}], []]


@pytest.mark.parametrize("left", ["manifest.parquet", "sorites-0123456789abcdef-99.tmp"])
def test_a_run_killed_before_its_story_was_written_goes_on(
    make: Callable[..., Plan], tmp_path: Path, left: str
) -> None:
    (tmp_path / left).write_bytes(b"half")
    runner.execute(runner.prepare(make()), tmp_path)
    assert table.read(tmp_path).collect().height == 4 * 6
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "{}", '{"run_id": "x"}'])
def test_a_damaged_story_is_a_clear_error(make: Callable[..., Plan], tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(Damaged) as told:
        read_record(tmp_path)
    assert told.value.fields["path"] == str(tmp_path / "run.json")
    with pytest.raises(Damaged):
        runner.execute(runner.prepare(make()), tmp_path)


WRONG = {
    "run_id": 3,
    "suite": [],
    "suite.models": "tiny",
    "settings": {"jpeg": 4},
    "models": ["tiny"],
    "versions": [],
    "scored": "msp",
    "parameters": {"tiny": "many"},
    "imported": {"as": "csv"},
    "classes": {"a": 1},
    "places": ["x"],
}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_another_type_is_named(make: Callable[..., Plan], tmp_path: Path, field: str) -> None:
    with folder.open_run(tmp_path, make(), describe(make())) as record:
        pass
    held = record.as_json()
    head, _, deeper = field.partition(".")
    wrong = {**held, head: {**held[head], deeper: WRONG[field]} if deeper else WRONG[field]}
    write_sealed(wrong, tmp_path / "run.json")
    with pytest.raises(Damaged) as told:
        read_record(tmp_path)
    assert field in str(told.value.fields["reason"])


def test_an_unknown_or_missing_field_is_named(make: Callable[..., Plan], tmp_path: Path) -> None:
    with folder.open_run(tmp_path, make(), describe(make())) as record:
        pass
    held = record.as_json()
    without = {key: value for key, value in held.items() if key != "models"}
    for wrong, field in (({**held, "unknown": 1}, "unknown"), (without, "models")):
        write_sealed(wrong, tmp_path / "run.json")
        with pytest.raises(Damaged) as told:
            read_record(tmp_path)
        assert field in str(told.value.fields["reason"])


@pytest.mark.parametrize("data", [None, b"", b"PAR1 not really"])
def test_a_damaged_manifest_is_a_clear_error(
    make: Callable[..., Plan], tmp_path: Path, data: bytes | None
) -> None:
    with folder.open_run(tmp_path, make(), describe(make())):
        pass
    path = tmp_path / "manifest.parquet"
    whole = path.read_bytes()
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(Damaged, match=r"manifest\.parquet cannot be"):
        folder.read_manifest(tmp_path)
    runner.execute(runner.prepare(make()), tmp_path)
    assert path.read_bytes() == whole


def test_a_manifest_of_changed_images_cannot_be_recreated(make: Callable[..., Plan], tmp_path: Path) -> None:
    with folder.open_run(tmp_path, make(), describe(make())):
        pass
    write_listed(tmp_path / "run.json", "manifest.parquet", b"other contents")
    (tmp_path / "manifest.parquet").write_bytes(b"")
    with pytest.raises(Damaged, match=r"manifest\.parquet cannot be"):
        runner.execute(runner.prepare(make()), tmp_path)


def test_what_is_not_a_run_folder_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"no run\.json.*run"):
        read_record(tmp_path)
    with pytest.raises(SoritesError, match="not a run folder"):
        read_record(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match=r"run\.json|not a run folder"):
        read_record(tmp_path / "file")


def test_a_folder_that_cannot_be_made_or_locked_is_a_clear_error(
    make: Callable[..., Plan], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SoritesError, match="cannot create the run folder"):
        runner.execute(runner.prepare(make()), tmp_path / "file")
    (tmp_path / "run" / "run.lock").mkdir(parents=True)
    with pytest.raises(SoritesError, match="cannot create the run folder"):
        runner.execute(runner.prepare(make()), tmp_path / "run")


def test_the_lock_is_given_back_after_an_error(make: Callable[..., Plan], tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), folder.open_run(tmp_path, make(), describe(make())):
        raise RuntimeError
    runner.execute(runner.prepare(make()), tmp_path)


def test_file_names_are_plain_and_tell_models_apart() -> None:
    assert shards.slug("lite0") == "lite0"
    assert shards.slug("resnet50.a1_in1k") == "resnet50.a1_in1k"
    names = ["onnx:a/b.onnx", "onnx:a_b.onnx", "onnx:a-b.onnx", "../x", "/x", "x" * 80, "x" * 81, "é", "è"]
    slugs = [shards.slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert all(
        slug.isascii() and "/" not in slug and slug not in {".", ".."} and len(slug) < 60 for slug in slugs
    )
