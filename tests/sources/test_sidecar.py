"""What a built dataset says of itself comes back as it was."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sorites.core import Attr, Box, Model, Outputs, Sample, Setting
from sorites.core.errors import BadImage, SoritesError
from sorites.core.labels import imagenet, labels
from sorites.evaluation.run import run
from sorites.sources import sidecar
from sorites.sources.folder import folder
from sorites.suites.suite import parse

IDS = imagenet().ids
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
scalar = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), text)
attr = st.fixed_dictionaries({"key": text, "value": text, "common": st.one_of(st.none(), st.booleans())})
record = st.fixed_dictionaries(
    {
        "path": st.from_regex(r"[a-z0-9 é]{1,8}(/[a-z0-9]{1,8}){0,2}\.png", fullmatch=True),
        "sample_id": text,
        "image_id": text,
        "label": st.one_of(st.none(), st.sampled_from(IDS)),
        "accept": st.lists(st.sampled_from(IDS), max_size=3),
        "split": st.sampled_from(["", "test", "val"]),
        "attrs": st.lists(attr, max_size=2),
        "family": text,
        "shift": text,
        "severity": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        "level": st.one_of(st.none(), st.integers(0, 9)),
        "params": st.dictionaries(text, scalar, max_size=3).map(json.dumps),
        "framed": st.booleans(),
        "seed": st.integers(0, 2**62),
    }
)
records = st.lists(record, max_size=5, unique_by=lambda row: row["image_id"])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(records)
def test_round_trip(rows: list[dict[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder_:
        sidecar.frame(rows).write_parquet(Path(folder_) / sidecar.NAME)
        samples = sidecar.read(folder_, imagenet())
    assert len(samples) == len(rows)
    for sample, row in zip(samples, rows, strict=True):
        assert (sample.id, sample.image_id, sample.split) == (row["sample_id"], row["image_id"], row["split"])
        assert sample.label == (None if row["label"] is None else IDS.index(row["label"]))
        assert sample.accept == {IDS.index(name) for name in row["accept"]}
        assert sample.attrs == tuple(Attr(**a) for a in row["attrs"])
        assert (sample.shift, sample.framed) == (row["shift"], row["framed"])
        assert sample.setting == Setting(row["severity"], json.loads(row["params"]), row["level"])


def write(root: Path, **changed: object) -> Path:
    row = {
        "path": "coma/a.png",
        "sample_id": "a",
        "image_id": "i",
        "label": "n02123045",
        "shift": "coma",
        "severity": 2.0,
    } | changed
    (root / "coma").mkdir(exist_ok=True)
    Image.new("L", (2, 2), 7).save(root / "coma" / "a.png")
    made = {name: [row.get(name)] for name in sidecar.SCHEMA}
    pl.DataFrame(made, schema=sidecar.SCHEMA).write_parquet(root / sidecar.NAME)
    return root


def test_the_folder_source_reads_the_sidecar(tmp_path: Path) -> None:
    write(tmp_path, framed=True, params='{"iso": 200}')
    [sample] = folder(str(tmp_path), imagenet())
    assert (sample.id, sample.shift, sample.label, sample.framed) == ("a", "coma", 281, True)
    assert sample.setting == Setting(2.0, {"iso": 200}, None)
    assert np.array_equal(sample.load(), np.full((2, 2, 3), 7, np.uint8))


def test_missing_is_null(tmp_path: Path) -> None:
    [sample] = sidecar.read(write(tmp_path, label=None, shift=None, severity=None), imagenet())
    assert (sample.label, sample.accept, sample.attrs, sample.split, sample.framed) == (
        None,
        frozenset(),
        (),
        "",
        False,
    )
    assert (sample.shift, sample.setting) == ("clean", Setting(None))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/a.png",
        "../a.png",
        "a/../../b.png",
        "",
        "C:/a.png",
        "C:a.png",
        r"\\host\a.png",
        r"..\a.png",
        "a\0.png",
    ],
)
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(SoritesError, match="paths inside the folder"):
        sidecar.read(write(tmp_path, path=path), imagenet())
    with pytest.raises(SoritesError, match="paths inside the folder"):
        sidecar.frame([{"path": path, "sample_id": "a", "image_id": "i"}])


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    root = write(tmp_path / "data")
    (root / "coma" / "a.png").rename(tmp_path / "a.png")
    (root / "coma" / "a.png").symlink_to(tmp_path / "a.png")
    [sample] = sidecar.read(root, imagenet())
    with pytest.raises(BadImage, match="dataset folder"):
        sample.load()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"label": "n00000001"}, "no class named 'n00000001'"),
        ({"accept": ["nobody"]}, "was built"),
        ({"params": "{"}, "JSON object: Expecting"),
        ({"params": "[1]"}, "as a JSON object"),
        ({"params": "[" * 5000}, "nested too deeply"),
        ({"params": '{"n": ' + "9" * 5000 + "}"}, "digits"),
        ({"severity": float("nan")}, "severity"),
        ({"severity": float("inf")}, "severity"),
        ({"image_id": None}, "image_id has gaps"),
    ],
)
def test_bad_rows_are_reported(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    with pytest.raises(SoritesError, match=message):
        sidecar.read(write(tmp_path, **changed), imagenet())


def test_bad_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=r"cannot read .*sorites\.parquet"):
        sidecar.read(tmp_path, imagenet())
    (tmp_path / sidecar.NAME).write_bytes(b"PAR1 nothing")
    with pytest.raises(SoritesError, match=r"cannot read .*sorites\.parquet"):
        sidecar.read(tmp_path, imagenet())
    pl.DataFrame({"path": [1]}).write_parquet(tmp_path / sidecar.NAME)
    with pytest.raises(SoritesError, match="column path is Int64"):
        sidecar.read(tmp_path, imagenet())
    for wrong, said in (
        ({"sample_id": ["a"]}, "column path is missing"),
        ({"path": ["a.png"], "severity": ["high"]}, "String, not Float64"),
        ({"path": ["a.png"], "level": [1.5]}, "column level is Float64"),
        ({"path": ["a.png"], "level": [2**40]}, "`i64` to `i32` failed"),
        ({"path": ["a.png", "a.png"]}, "expected each path once"),
        ({"path": ["a.png"], "boxes": [[{"x0": 1}]]}, "column boxes is List"),
    ):
        pl.DataFrame(wrong).write_parquet(tmp_path / sidecar.NAME)
        with pytest.raises(SoritesError, match=said):
            sidecar.read(tmp_path, imagenet())


def test_a_sidecar_by_hand_needs_little_more_than_paths(tmp_path: Path) -> None:
    obj = {"x0": 1, "y0": 2, "x1": 3, "y1": 4, "label": "dog"}
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / name)
    pl.DataFrame({"path": ["a.png", "b.png"], "boxes": [[obj], []]}).write_parquet(tmp_path / sidecar.NAME)
    first, second = sidecar.read(tmp_path, labels("coco"))
    assert (first.id, first.shift, first.framed, first.image_id) == ("a.png", "clean", False, None)
    assert (first.ground_truth, second.ground_truth) == ((Box((1, 2, 3, 4), 16),), ())
    model = Model(
        "det", lambda seen: Outputs(boxes=[()] * len(seen)), labels=("dog",), output="boxes", version="1"
    )
    suite = parse({"name": "s", "labels": "coco", "shifts": ["brightness"]}, "test")
    table = run(
        suite, source=f"folder:{tmp_path}", models=[model], levels=[1], out=tmp_path / "run"
    ).collect()
    assert table["image_id"].n_unique() == table.height == 4
    assert table["error"].null_count() == 4
    pl.DataFrame({"path": ["a.png"], "label": ["dog"], "severity": [1]}).write_parquet(
        tmp_path / sidecar.NAME
    )
    assert sidecar.read(tmp_path, labels("coco"))[0].label == 16


def test_records_are_checked_when_written() -> None:
    with pytest.raises(SoritesError, match="colour"):
        sidecar.frame([{"path": "a.png", "sample_id": "a", "image_id": "i", "colour": 1}])
    with pytest.raises(SoritesError, match="twice"):
        sidecar.frame([{"path": "a.png", "sample_id": "a", "image_id": "i"}] * 2)
    assert sidecar.frame([]).schema == sidecar.SCHEMA


def test_labels_are_by_id_whatever_their_order(tmp_path: Path) -> None:
    [sample] = sidecar.read(write(tmp_path, label="cat"), labels(["dog", "cat"]))
    assert sample.label == 1


def boxed(folder_: Path, cells: list[dict[str, object]] | None) -> list[Sample]:
    row = {"path": "a.png", "sample_id": "a", "image_id": "1", "boxes": cells}
    other = {"path": "b.png", "sample_id": "b", "image_id": "2", "boxes": []}
    sidecar.frame([row, other]).write_parquet(folder_ / sidecar.NAME)
    return sidecar.read(folder_, labels("coco"))


def cell(**more: object) -> dict[str, object]:
    return {"x0": 1.0, "y0": 2.0, "x1": 30.5, "y1": 40.0, "label": "dog", "area": 99.5, "crowd": True, **more}


def test_boxes_come_back_with_class_area_and_crowd(tmp_path: Path) -> None:
    ground_truth = (Box((1.0, 2.0, 30.5, 40.0), 16, area=99.5, crowd=True), Box((0.1, 0.2, 0.3, 0.4), 0))
    first, second = boxed(tmp_path, sidecar.boxes(ground_truth, labels("coco").ids))
    assert first.ground_truth == ground_truth
    assert second.ground_truth == (), "nothing there"
    assert boxed(tmp_path, None)[0].ground_truth is None, "not known"


def test_boxes_that_cannot_be(tmp_path: Path) -> None:
    broken = boxed(tmp_path, [cell(x0=float("nan"))])[0]
    with pytest.raises(BadImage, match="box of finite numbers"):
        broken.load()
    with pytest.raises(SoritesError, match="no class named 'gnome'"):
        boxed(tmp_path, [cell(label="gnome")])
    with pytest.warns(UserWarning, match="1 box has no width or height"):
        assert boxed(tmp_path, [cell(x1=1.0)])[0].ground_truth == ()


def test_a_sidecar_without_boxes_has_no_such_column() -> None:
    assert "boxes" not in sidecar.frame([{"path": "a.png", "sample_id": "a", "image_id": "1"}]).columns
