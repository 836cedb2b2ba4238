"""ONNX classifiers of many makes, against the closed form of a linear function of the mean colour."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_model, numpy_helper, save_model
from scipy.special import log_softmax

from sorites import core
from sorites.core import ImageU8
from sorites.core.errors import SoritesError
from sorites.core.labels import imagenet
from sorites.models.onnx import onnx as make
from sorites.models.preprocess import IMAGENET_MEAN, IMAGENET_STD

RNG = np.random.default_rng(3)
WEIGHT, BIAS = RNG.normal(0, 1, (4, 3)).astype(np.float32), RNG.normal(0, 1, 4).astype(np.float32)
TYPES = {"float": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}


def build(
    path: Path,
    shape: tuple[Any, ...] = ("n", 3, 8, 8),
    dtype: str = "float",
    last: str = "gemm",
    softmax: bool = False,
    names: tuple[str, ...] = ("logits",),
    metadata: dict[str, str] | None = None,
) -> str:
    """Mean colour, then a linear layer: a classifier whose answer is known in closed form."""
    nchw = shape[1] == 3
    tensors = {"w": WEIGHT if last == "gemm" else WEIGHT.T, "b": BIAS}
    nodes = [
        helper.make_node("Cast", ["images"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["x"], ["features"], axes=[2, 3] if nchw else [1, 2], keepdims=0),
    ]
    made = "inner" if softmax else names[0]
    if last == "gemm":
        nodes.append(helper.make_node("Gemm", ["features", "w", "b"], [made], transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["features", "w"], ["product"]))
        nodes.append(helper.make_node("Add", ["b", "product"] if last == "add" else ["product", "b"], [made]))
    if softmax:
        nodes.append(helper.make_node("Softmax", [made], [names[0]], axis=1))
    widths = {"features": 3, names[0]: 4}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", TYPES[dtype], shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (shape[0], widths[name])) for name in names],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata or {})
    save_model(model, str(path))
    return str(path)


def expected(images: list[ImageU8], mean: Any = IMAGENET_MEAN, std: Any = IMAGENET_STD) -> np.ndarray:
    colours = np.stack([p.reshape(-1, 3).mean(axis=0, dtype=np.float64) / 255 for p in images])
    return np.asarray((colours - mean) / std @ WEIGHT.T + BIAS)


@pytest.fixture
def images() -> list[ImageU8]:
    return [RNG.integers(0, 256, (8, 8, 3), np.uint8) for _ in range(5)]


@pytest.mark.parametrize(
    "shape", [("n", 3, 8, 8), ("n", 8, 8, 3), (1, 3, 8, 8), (2, 8, 8, 3), (None, 3, 8, 8)]
)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_any_layout_type_and_batch(
    shape: tuple[Any, ...], dtype: str, tmp_path: Path, images: list[ImageU8]
) -> None:
    model = make(build(tmp_path / "m.onnx", shape, dtype))
    np.testing.assert_allclose(
        model(images).logits, expected(images), atol=1e-5 if dtype == "float" else 5e-3
    )


@pytest.mark.parametrize("shape", [("n", 3, 8, 8), ("n", 8, 8, 3)])
def test_eight_bit_graphs_get_the_image_itself(
    shape: tuple[Any, ...], tmp_path: Path, images: list[ImageU8]
) -> None:
    model = make(build(tmp_path / "m.onnx", shape, "uint8"))
    np.testing.assert_allclose(model(images).logits, expected(images, 0, 1 / 255), rtol=1e-4)


def test_a_free_size_is_224_or_what_is_reported(tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx", ("n", 3, "h", "w"))
    grey = np.zeros((300, 300, 3), np.uint8)
    assert make(path).prepare(grey, True).shape == (224, 224, 3)
    Path(f"{path}.json").write_text('{"size": [32, 48]}')
    assert make(path).prepare(grey, True).shape == (32, 48, 3)


@pytest.mark.parametrize("where", ["metadata", "beside"])
def test_normalisation_and_labels_travel_with_the_file(
    where: str, tmp_path: Path, images: list[ImageU8]
) -> None:
    config = {"mean": [0, 0, 0], "std": [1, 1, 1], "labels": ["a", "b", "c", "d"], "crop_pct": 1.0}
    written = {key: json.dumps(value) for key, value in config.items()} | {
        "author": "someone",
        "mean": "[0, 0, 0]",
    }
    path = build(tmp_path / "m.onnx", metadata=written if where == "metadata" else {"mean": "[9, 9, 9]"})
    if where == "beside":
        Path(f"{path}.json").write_text(json.dumps(config))
    model = make(path)
    assert model.labels == ("a", "b", "c", "d")
    np.testing.assert_allclose(model(images).logits, expected(images, 0, 1), atol=1e-5)


@pytest.mark.parametrize("last", ["gemm", "matmul", "add"])
@pytest.mark.parametrize("softmax", [False, True])
def test_the_head_is_read_and_its_ends_are_seen(
    last: str, softmax: bool, tmp_path: Path, images: list[ImageU8]
) -> None:
    model = make(build(tmp_path / "m.onnx", last=last, softmax=softmax))
    outputs = model(images)
    assert model.head is not None
    assert np.array_equal(model.head[0], WEIGHT)
    assert np.array_equal(model.head[1], BIAS)
    assert outputs.features is not None
    np.testing.assert_allclose(outputs.logits, expected(images), atol=1e-5)
    np.testing.assert_allclose(outputs.features @ WEIGHT.T + BIAS, outputs.logits, atol=1e-5)


@pytest.mark.filterwarnings("ignore::sorites.core.errors.Notice")
@pytest.mark.parametrize("names", [("logits", "features"), ("scores",)])
def test_without_the_onnx_package(
    names: tuple[str, ...], tmp_path: Path, images: list[ImageU8], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "m.onnx", softmax=True, names=names)
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = make(path)
    outputs = model(images)
    assert model.head is None
    assert (outputs.features is not None) == ("features" in names)
    np.testing.assert_allclose(outputs.logits, log_softmax(expected(images), axis=1), atol=1e-5)


def test_the_version_is_the_files_hash_and_the_name_is_the_spec(tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx")
    model = core.model(f"onnx:{path}")
    assert model.version == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert model.name == f"onnx:{path}"
    Path(f"{path}.json").write_text('{"crop_pct": 1.0}')
    assert make(path).version != model.version


@pytest.mark.filterwarnings("ignore::sorites.core.errors.Notice")
def test_weights_may_stand_beside_the_graph(tmp_path: Path, images: list[ImageU8]) -> None:
    path = build(tmp_path / "m.onnx", softmax=True)
    save_model(load_model(path), path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    model = make(path)
    assert model.head is None
    np.testing.assert_allclose(model(images).logits, log_softmax(expected(images), axis=1), atol=1e-5)
    (tmp_path / "m.onnx.data").write_bytes(bytes(4096))
    assert make(path).version != model.version


def test_imagenet_labels_need_a_thousand_classes(tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx", metadata={"labels": "imagenet"})
    assert len(imagenet()) == 1000
    with pytest.raises(SoritesError, match="list of 4"):
        make(path)


def two_inputs(path: Path) -> str:
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 3, 8, 8)) for name in ("a", "b", "c")
    ]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["c"])], "g", info[:2], info[2:])
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return str(path)


def image_to_image(path: Path, shape: tuple[Any, ...], kind: int = TensorProto.FLOAT) -> str:
    info = [helper.make_tensor_value_info(name, kind, shape) for name in ("a", "b")]
    graph = helper.make_graph([helper.make_node("Abs", ["a"], ["b"])], "g", info[:1], info[1:])
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return str(path)


def test_graphs_that_are_no_classifiers(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(SoritesError, match="2: a, b"):
        make(two_inputs(path))
    with pytest.raises(SoritesError, match="2-D output"):
        make(image_to_image(path, ("n", 3, 8, 8)))
    with pytest.raises(SoritesError, match="input of N x 3 x"):
        make(image_to_image(path, ("n", 1, 8, 8)))
    with pytest.raises(SoritesError, match="input of N x 3 x"):
        make(image_to_image(path, ("n", 3)))
    with pytest.raises(SoritesError, match=r"got tensor\(int64\)"):
        make(image_to_image(path, ("n", 3, 8, 8), TensorProto.INT64))


@pytest.mark.parametrize("argument", [None, "nowhere.onnx"])
def test_no_file(argument: str | None) -> None:
    with pytest.raises(SoritesError, match="onnx:PATH"):
        make(argument)


@pytest.mark.parametrize("content", [b"", b"not a graph"])
def test_a_file_that_is_not_onnx(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(SoritesError, match=r"m\.onnx is not an ONNX model"):
        make(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[1]", "expected an object"),
        ('{"men": 1}', "unknown key 'men'"),
    ],
)
def test_a_wrong_file_beside_is_reported(text: str, message: str, tmp_path: Path) -> None:
    path = build(tmp_path / "m.onnx")
    Path(f"{path}.json").write_text(text)
    with pytest.raises(SoritesError, match=message):
        make(path)
