"""Detectors in ONNX files: how they are read, what is refused, and how invalid outputs are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tests.models import box_graphs as graphs

from sorites import core
from sorites.core import ImageU8
from sorites.core.errors import SoritesError, UnknownName
from sorites.core.labels import coco
from sorites.evaluation.predict import evaluate_images

GREY: ImageU8 = np.full((50, 80, 3), 128, np.uint8)


def v8(
    path: Path, classes: int = 3, metadata: dict[str, str] | None = None, fill: float = 0.5, size: int = 64
) -> str:
    rows = np.zeros((1, 4 + classes, sum((size // s) ** 2 for s in (8, 16, 32))), np.float32)
    rows[0, :5, 7] = 24, 28, 16, 16, fill
    inputs = {"images": (TensorProto.FLOAT, (1, 3, size, size))}
    return graphs.constant(path, {"output0": rows}, inputs, metadata)


def test_ultralytics_metadata_are_read_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {0: "cat", 1: "guide dog", 2: "owl"}
    path = v8(
        tmp_path / "m.onnx",
        metadata={"names": str(names), "task": "detect", "imgsz": "[64, 64]", "channels": "3"},
    )
    model = core.model(f"boxes:{path}")
    assert model.labels == ("cat", "guide dog", "owl")
    core.model(f"boxes:{path}")
    printed = capsys.readouterr().err
    assert printed.count("is read as layout v8") == 1
    for part in (
        "output0 1 x 7 x 84",
        "input 64 x 64: letterbox, filled with 114, bilinear, RGB 0..1",
        "classes: 3 by name, such as cat",
        "scores from 0.001 up, class-wise NMS at IoU 0.7, at most 300 boxes",
    ):
        assert part in printed


def test_nothing_in_the_metadata_is_run(tmp_path: Path) -> None:
    code = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    with pytest.raises(SoritesError, match="names are not a Python literal"):
        core.model(f"boxes:{v8(tmp_path / 'm.onnx', metadata={'names': code})}")
    assert not (tmp_path / "ran").exists()


def test_eighty_classes_without_names_are_cocos(tmp_path: Path) -> None:
    assert core.model(f"boxes:{v8(tmp_path / 'm.onnx', 80)}").labels == coco().ids
    nameless = core.model(f"boxes:{v8(tmp_path / 'n.onnx', 5)}")
    assert (nameless.labels, nameless.background) == (None, True)


def test_the_file_beside_and_options_override_metadata(tmp_path: Path) -> None:
    path = v8(tmp_path / "m.onnx", metadata={"names": "['x', 'y', 'z']"})
    first = core.model(f"boxes:{path}")
    Path(f"{path}.json").write_text(json.dumps({"labels": {"0": "a", "1": "b", "2": "c"}, "score": 0.6}))
    second = core.model(f"boxes:{path}")
    assert (first.labels, second.labels) == (("x", "y", "z"), ("a", "b", "c"))
    third = core.model(f"boxes:{path}?score=0.4")
    assert [len(model([GREY]).boxes[0]) for model in (first, second, third)] == [1, 0, 1]  # type: ignore[index]
    assert len({model.version for model in (first, second, third)}) == 3
    assert core.model(f"boxes:{path}?score=0.4").version == third.version


@pytest.mark.parametrize("batch", [1, 2, "n"])
def test_boxes_do_not_depend_on_the_batch(batch: Any, tmp_path: Path, noise: list[ImageU8]) -> None:
    rows = np.zeros((2 if batch == 2 else 1, 7, graphs.CELLS), np.float32)
    rows[:, :5, 7] = np.array([24, 28, 16, 16, 0.5])
    inputs = {"images": (TensorProto.FLOAT, (batch, 3, 64, 64))}
    model = core.model(f"boxes:{graphs.constant(tmp_path / 'm.onnx', {'o': rows}, inputs)}")
    together = model(noise).boxes
    assert together == [model([image]).boxes[0] for image in noise]  # type: ignore[index]
    assert all(
        box.xyxy[2] <= p.shape[1] and box.xyxy[3] <= p.shape[0]
        for p, (box,) in zip(noise, together or (), strict=True)
    )


def test_a_free_size_is_640_or_what_is_reported(tmp_path: Path) -> None:
    rows = np.zeros((1, 7, 8400), np.float32)
    free = {"images": (TensorProto.FLOAT, ("n", 3, "h", "w"))}
    path = graphs.constant(tmp_path / "m.onnx", {"o": rows}, free)
    assert core.model(f"boxes:{path}")([GREY]).boxes == [()]
    with pytest.raises(SoritesError, match="outputs o 1 x 7"):
        core.model(f"boxes:{path}?size=320")


def test_another_size_than_a_graph_fixes_is_refused(tmp_path: Path) -> None:
    path = v8(tmp_path / "m.onnx", metadata={"imgsz": "[640, 640]"})
    core.model(f"boxes:{path}?size=64")
    with pytest.raises(SoritesError, match="64 x 64 px.*320 x 320"):
        core.model(f"boxes:{path}?size=320")
    Path(f"{path}.json").write_text('{"size": [64, 96]}')
    with pytest.raises(SoritesError, match="64 x 96"):
        core.model(f"boxes:{path}")


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"o": np.zeros((1, 39, 84)), "p": np.zeros((1, 32, 16, 16))}, "look like masks"),
        ({"o": np.zeros((1, 56, 84))}, "look like"),
        ({"o": np.zeros((1, 8, 84))}, "look like"),
        ({"o": np.zeros((1, 9, 84))}, "do not fit 3 classes"),
        ({"o": np.zeros((1, 5, 5))}, "do not fit 3 classes"),
        ({"o": np.zeros((1, 1000))}, "outputs o 1 x 1000"),
    ],
)
def test_outputs_that_are_no_boxes_are_reported(
    outputs: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    path = graphs.constant(tmp_path / "m.onnx", outputs, metadata={"names": "['a', 'b', 'c']"})
    with pytest.raises(SoritesError, match=message) as error:
        core.model(f"boxes:{path}")
    assert f"into {path}.json" in str(error.value)
    assert '"layout"' in str(error.value)


@pytest.mark.parametrize(
    ("task", "message"), [("segment", "masks"), ("pose", "keypoints"), ("obb", "oriented boxes")]
)
def test_other_tasks_are_refused_by_name(task: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SoritesError, match=f"returns .*{message}.*task {task}"):
        core.model(f"boxes:{v8(tmp_path / 'm.onnx', metadata={'task': task})}")


def test_other_mistakes_are_reported(tmp_path: Path) -> None:
    path = v8(tmp_path / "m.onnx")
    for spec, error, message in (
        ("boxes", SoritesError, "boxes:PATH.onnx"),
        ("boxes:nowhere.onnx", SoritesError, "file, got nowhere.onnx"),
        (f"boxes:{path}?scor=1", UnknownName, "Did you mean score"),
        (f"boxes:{path}?score", SoritesError, "expected options as"),
        (f"boxes:{path}?score=2", SoritesError, "number below 1,"),
        (f"boxes:{path}?layout=v9", UnknownName, "Did you mean v8 or v5"),
        (f"boxes:{path}?layout=paddle", SoritesError, "boxes in the layout paddle"),
        (f"boxes:{path}?labels=voc", SoritesError, "one of coco, coco91, coco90"),
        (f"boxes:{path}?labels=[]", SoritesError, "expected labels"),
    ):
        with pytest.raises(error, match=message):
            core.model(spec)
    Path(f"{path}.json").write_text("{")
    with pytest.raises(SoritesError, match="is not JSON"):
        core.model(f"boxes:{path}")
    two = dict.fromkeys(("a", "b"), (TensorProto.FLOAT, (1, 3, 64, 64)))
    with pytest.raises(SoritesError, match="3, 64,"):
        core.model(f"boxes:{graphs.constant(tmp_path / 'two.onnx', {'o': np.zeros((1, 7, 84))}, two)}")
    (tmp_path / "text.onnx").write_text("text")
    with pytest.raises(SoritesError, match="is not an ONNX model"):
        core.model(f"boxes:{tmp_path / 'text.onnx'}")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("column", [0, 4])
def test_numbers_that_are_not_finite_become_an_error(value: float, column: int, tmp_path: Path) -> None:
    rows = np.array([[[16, 20, 32, 36, 0.5, 0]]], np.float32)
    rows[0, 0, column] = value
    model = core.model(f"boxes:{graphs.constant(tmp_path / 'm.onnx', {'o': rows})}")
    _, (error,) = evaluate_images(model, [GREY], False)
    assert error is not None
    assert "not finite" in error or "not a number" in error or "finite numbers" in error


def test_none_and_ten_thousand_boxes(tmp_path: Path) -> None:
    none = core.model(f"boxes:{graphs.constant(tmp_path / 'none.onnx', {'o': np.zeros((1, 0, 6))})}")
    outputs, errors = evaluate_images(none, [GREY, GREY], False)
    assert (outputs.boxes, errors) == ([(), ()], [None, None])
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 50, (10_000, 2))
    rows = np.concatenate(
        [corner, corner + 5, rng.random((10_000, 1)), rng.integers(0, 3, (10_000, 1))], axis=1
    )
    many = core.model(f"boxes:{graphs.constant(tmp_path / 'many.onnx', {'o': rows})}")
    best = many([GREY]).boxes[0]  # type: ignore[index]
    assert len(best) <= 300
    assert [box.conf for box in best] == sorted((box.conf for box in best), reverse=True)  # type: ignore[type-var]


def test_a_class_beyond_the_names_is_an_error(tmp_path: Path) -> None:
    rows = np.array([[[16, 20, 32, 36, 0.5, 7]]])
    model = core.model(f'boxes:{graphs.constant(tmp_path / "m.onnx", {"o": rows})}?labels=["a","b"]')
    _, (error,) = evaluate_images(model, [GREY], False)
    assert "box of class 7" in str(error)
