"""Every layout of an exported detector against boxes worked out by hand.

The image is 200 x 100 (width x height), the input 64 x 64. In a letterbox the image is 64 x 32,
16 px from the top, so a box (16, 20, 32, 36) of the input is (50, 12.5, 100, 62.5) of the image;
in a corner it is (50, 62.5, 100, 100) after cutting at the edge; squashed it is (50, 31.25, 100,
56.25).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.models import box_graphs as graphs

from sorites import core
from sorites.core import ImageU8

IMAGE: ImageU8 = np.random.default_rng(0).integers(0, 256, (100, 200, 3), np.uint8)
NAMES = "labels=" + '["cat","dog","owl"]'
LETTERBOX, CORNER, SQUASH = (50.0, 12.5, 100.0, 62.5), (50.0, 62.5, 100.0, 100.0), (50.0, 31.25, 100.0, 56.25)


def found(path: str, options: str = NAMES, image: ImageU8 = IMAGE) -> list[tuple[Any, ...]]:
    model = core.model(f"boxes:{path}?{options}" if options else f"boxes:{path}")
    assert model.output == "boxes"
    outputs = model([image])
    assert outputs.boxes is not None
    return [
        (tuple(round(x, 3) for x in box.xyxy), box.label, round(box.conf or 0, 3)) for box in outputs.boxes[0]
    ]


def centred_rows(columns: int) -> np.ndarray:
    """Rows with nothing but the box (16, 20, 32, 36) in two cells and a faint third; centres of the
    others in their cells.
    """
    rows = np.zeros((graphs.CELLS, columns), np.float32)
    rows[[10, 11, 12], :4] = [(24, 28, 16, 16), (24, 28, 16, 15), (24, 28, 16, 16)]
    return rows


def test_v8(tmp_path: Path) -> None:
    rows = centred_rows(7)
    rows[10, 4:] = 0.9, 0.3, 0
    rows[11, 4:] = 0.8, 0.0, 0.2  # its 0.8 is suppressed; other classes of the same box stay
    rows[12, 4:] = 0.0005, 0, 0  # below the floor
    path = graphs.constant(tmp_path / "m.onnx", {"output0": rows.T[None]})
    near = (50.0, round(4.5 / 0.32, 3), 100.0, round(19.5 / 0.32, 3))
    assert found(path) == [(LETTERBOX, 0, 0.9), (LETTERBOX, 1, 0.3), (near, 2, 0.2)]
    assert found(path, NAMES + "&score=0.25") == [(LETTERBOX, 0, 0.9), (LETTERBOX, 1, 0.3)]
    assert found(path, NAMES + "&nms=1&most=2") == [(LETTERBOX, 0, 0.9), (near, 0, 0.8)]
    turned = graphs.constant(tmp_path / "t.onnx", {"output0": rows[None]})
    assert found(turned) == found(path)


def test_v5_has_objectness_and_three_anchors(tmp_path: Path) -> None:
    rows = np.zeros((3 * graphs.CELLS, 8), np.float32)
    rows[100] = 24, 28, 16, 16, 0.5, 0.8, 0.1, 0
    maps = {f"map{i}": np.zeros((1, 3, side, side, 8)) for i, side in enumerate((8, 4, 2))}
    path = graphs.constant(tmp_path / "m.onnx", {"output": rows[None]} | maps)
    assert found(path) == [(LETTERBOX, 0, 0.4), (LETTERBOX, 1, 0.05)]


@pytest.mark.parametrize("raw", [True, False])
def test_yolox_raw_and_decoded(raw: bool, tmp_path: Path) -> None:
    corner = np.array(
        [(x, y, stride) for stride in (8, 16, 32) for y in range(64 // stride) for x in range(64 // stride)]
    )
    rows = np.zeros((graphs.CELLS, 8), np.float32)
    if not raw:
        rows[:, :2] = (corner[:, :2] + 0.5) * corner[:, 2:]
    rows[graphs.cell(2, 3), 4:] = 0.5, 0, 1, 0
    rows[graphs.cell(2, 3), :4] = (1, 0.5, np.log(2), np.log(2)) if raw else (24, 28, 16, 16)
    assert found(graphs.constant(tmp_path / "m.onnx", {"output": rows[None]})) == [(CORNER, 1, 0.5)]


def test_rows_end_to_end(tmp_path: Path) -> None:
    rows = np.array([[16, 20, 32, 36, 0.6, 2], [16, 20, 32, 36, 0.5, 2], [0, 0, 0, 0, 0, 0]])
    assert found(graphs.constant(tmp_path / "m.onnx", {"o": rows[None]})) == [
        (LETTERBOX, 2, 0.6),
        (LETTERBOX, 2, 0.5),
    ]
    assert found(graphs.constant(tmp_path / "m.onnx", {"o": rows})) == [
        (LETTERBOX, 2, 0.6),
        (LETTERBOX, 2, 0.5),
    ]
    seven = np.array([[0, 16, 20, 32, 36, 2, 0.6], [1, 16, 20, 32, 36, 2, 0.6]])
    assert found(graphs.constant(tmp_path / "m.onnx", {"o": seven})) == [(LETTERBOX, 2, 0.6)]
    assert found(graphs.constant(tmp_path / "m.onnx", {"o": np.zeros((1, 0, 6))})) == []


FRACTION = np.array([[[0.375, 0.4375, 0.25, 0.25], [0.5, 0.5, 1, 1]]])


def test_detr_drops_the_last_class_of_its_softmax(tmp_path: Path) -> None:
    logits = np.log(np.array([[[0.7, 0.1, 0.1, 0.1], [0.0004, 0.0004, 0.0002, 0.999]]]))
    path = graphs.constant(tmp_path / "m.onnx", {"logits": logits, "pred_boxes": FRACTION})
    assert found(path) == [(SQUASH, 0, 0.7)]


def test_rt_detr_has_a_sigmoid_per_class(tmp_path: Path) -> None:
    chance = np.array([[[0.75, 0.5, 0.0001], [0.0001, 0.0001, 0.25]]])
    logits = np.log(chance / (1 - chance))
    path = graphs.constant(tmp_path / "m.onnx", {"dets": FRACTION, "labels": logits})
    everything = (0.0, 0.0, 200.0, 100.0)
    assert found(path) == [(SQUASH, 0, 0.75), (SQUASH, 1, 0.5), (everything, 2, 0.25)]
    joined = np.concatenate([FRACTION, chance], axis=2)
    assert found(graphs.constant(tmp_path / "j.onnx", {"output0": joined})) == found(path)


def test_boxes_in_pixels_beside_scores_are_suppressed(tmp_path: Path) -> None:
    boxes = np.array([[[16, 20, 32, 36], [16, 20, 32, 36]]], float)
    path = graphs.constant(
        tmp_path / "m.onnx", {"boxes": boxes, "scores": np.array([[[0.9, 0, 0], [0.8, 0.3, 0]]])}
    )
    assert found(path) == [(LETTERBOX, 0, 0.9), (LETTERBOX, 1, 0.3)]


@pytest.mark.parametrize("batched", [True, False])
def test_boxes_scores_and_labels(batched: bool, tmp_path: Path) -> None:
    parts = {
        "a": np.array([[16, 20, 32, 36], [0, 0, 9, 9]], float),
        "b": np.array([1, 0]),
        "c": np.array([0.7, 0.0]),
    }
    if batched:
        parts = {name: value[None] for name, value in parts.items()}
    assert found(graphs.constant(tmp_path / "m.onnx", parts)) == [(LETTERBOX, 1, 0.7)]


def test_masks_beside_boxes_are_left_aside(tmp_path: Path) -> None:
    parts = {"boxes": np.array([[16, 20, 32, 36]], float), "labels": np.array([1]), "scores": np.array([0.7])}
    parts["masks"] = np.zeros((1, 1, 64, 64))
    flat = {"image": (TensorProto.FLOAT, (3, 64, 64))}  # torchvision exports an input without a batch
    assert found(graphs.constant(tmp_path / "m.onnx", parts, flat)) == [(LETTERBOX, 1, 0.7)]


def test_tensorflow_counts_turns_and_numbers_by_category(tmp_path: Path) -> None:
    parts = {
        "detection_boxes": np.array([[[20, 16, 36, 32], [0, 0, 64, 64], [0, 0, 64, 64]]]) / 64,
        "detection_classes": np.array([[90.0, 1.0, 12.0]]),  # toothbrush, person, and a gap
        "detection_scores": np.array([[0.9, 0.8, 0.7]]),
        "num_detections": np.array([3.0]),
    }
    eight_bits = {"input_tensor": (TensorProto.UINT8, (1, 64, 64, 3))}
    path = graphs.constant(tmp_path / "m.onnx", parts, eight_bits)
    assert found(path, "") == [(SQUASH, 79, 0.9), ((0.0, 0.0, 200.0, 100.0), 0, 0.8)]
    short = graphs.constant(tmp_path / "short.onnx", parts | {"num_detections": np.array([1.0])}, eight_bits)
    assert found(short, "") == [(SQUASH, 79, 0.9)]
    less = parts | {"detection_classes": np.array([[89.0, 0.0, 11.0]])}
    assert found(graphs.constant(tmp_path / "less.onnx", less, eight_bits), "labels=coco90") == found(
        path, "labels=coco91"
    )


@pytest.mark.parametrize("batched", [True, False])
def test_mmdeploy(batched: bool, tmp_path: Path) -> None:
    parts = {"dets": np.array([[16, 20, 32, 36, 0.7], [0, 0, 0, 0, 0]]), "labels": np.array([1, -1])}
    if batched:
        parts = {name: value[None] for name, value in parts.items()}
    assert found(graphs.constant(tmp_path / "m.onnx", parts)) == [(CORNER, 1, 0.7)]


def test_paddle_gets_its_scale_factors(tmp_path: Path) -> None:
    """The graph divides by (down, across) as Paddle's do; a class of -1 stands for no box."""
    nodes = [
        helper.make_node("Gather", ["scale_factor", "order"], ["factors"], axis=1),
        helper.make_node("Div", ["boxes", "factors"], ["placed"]),
        helper.make_node("Concat", ["heads", "placed"], ["rows"], axis=1),
        helper.make_node("Identity", ["im_shape"], ["shape"]),
    ]
    constants = {
        "order": np.array([1, 0, 1, 0]),
        "boxes": np.array([[16, 20, 32, 36], [0, 0, 9, 9]], np.float32),
        "heads": np.array([[1, 0.7], [-1, 0.9]], np.float32),
    }
    inputs: dict[str, Any] = {"image": (TensorProto.FLOAT, ("n", 3, 64, 64))}
    inputs |= dict.fromkeys(("scale_factor", "im_shape"), (TensorProto.FLOAT, (1, 2)))
    outputs = {"rows": (TensorProto.FLOAT, (2, 6)), "shape": (TensorProto.FLOAT, (1, 2))}
    assert found(graphs.save(tmp_path / "m.onnx", nodes, inputs, outputs, constants)) == [(SQUASH, 1, 0.7)]


def test_a_graph_that_asks_for_the_images_size_gets_width_and_height(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["orig_target_sizes"], ["sides"], to=TensorProto.FLOAT),
        helper.make_node("Concat", ["sides", "sides"], ["four"], axis=1),
        helper.make_node("Mul", ["fractions", "four"], ["boxes"]),
        helper.make_node("Identity", ["given_labels"], ["labels"]),
        helper.make_node("Identity", ["given_scores"], ["scores"]),
    ]
    constants = {
        "fractions": np.array([[[0.25, 0.3125, 0.5, 0.5625]]], np.float32),
        "given_labels": np.array([[2]]),
        "given_scores": np.array([[0.7]], np.float32),
    }
    inputs = graphs.IMAGES | {"orig_target_sizes": (TensorProto.INT64, (1, 2))}
    outputs = {
        "labels": (TensorProto.INT64, (1, 1)),
        "boxes": (TensorProto.FLOAT, (1, 1, 4)),
        "scores": (TensorProto.FLOAT, (1, 1)),
    }
    assert found(graphs.save(tmp_path / "m.onnx", nodes, inputs, outputs, constants)) == [(SQUASH, 2, 0.7)]
