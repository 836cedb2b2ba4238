"""The files of weights that an ONNX graph names, read without the onnx package."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sorites import core
from sorites.models.onnx import external_files

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.external_data_helper import convert_model_to_external_data  # noqa: E402


def saved(folder: Path, location: str | None, inside_branch: bool = False) -> Path:
    """A classifier of mean colours whose weights lie in ``location``, in the graph or in the branch
    of an If.
    """
    folder.mkdir(exist_ok=True)
    weights = np.arange(3 * 400, dtype=np.float32).reshape(3, 400) / 1200
    held = numpy_helper.from_array(weights, "w")
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])
    logits = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 400])
    mean = helper.make_node("ReduceMean", ["x"], ["m"], axes=[2, 3], keepdims=0)
    if inside_branch:
        true = numpy_helper.from_array(np.array(True), "t")
        branch = helper.make_graph(
            [helper.make_node("MatMul", ["m", "w"], ["b"])], "b", [], [_value("b")], [held]
        )
        other = helper.make_graph(
            [helper.make_node("MatMul", ["m", "w2"], ["c"])], "c", [], [_value("c")], [_other(weights)]
        )
        last = helper.make_node("If", ["t"], ["y"], then_branch=branch, else_branch=other)
        graph = helper.make_graph([mean, last], "g", [image], [logits], [true])
    else:
        graph = helper.make_graph(
            [mean, helper.make_node("MatMul", ["m", "w"], ["y"])], "g", [image], [logits], [held]
        )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if location:
        convert_model_to_external_data(model, location=location, size_threshold=100)
    path = folder / "model.onnx"
    onnx.save_model(model, str(path))
    return path


def _value(name: str) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 400])


def _other(weights: np.ndarray) -> object:
    return numpy_helper.from_array(weights, "w2")


@pytest.mark.parametrize("inside_branch", [False, True])
def test_the_files_of_weights_are_found_wherever_the_tensors_are(tmp_path: Path, inside_branch: bool) -> None:
    path = saved(tmp_path, "w.bin", inside_branch)
    assert external_files(path) == [tmp_path / "w.bin"]


def test_other_external_weights_are_another_version(tmp_path: Path) -> None:
    path = saved(tmp_path / "a", "weights_of_tuesday.bin")
    first = core.model(f"onnx:{path}").version
    held = tmp_path / "a" / "weights_of_tuesday.bin"
    data = bytearray(held.read_bytes())
    data[-1] ^= 1
    held.write_bytes(data)
    assert core.model(f"onnx:{path}").version != first


def test_a_version_that_saw_all_weights_before_stays(tmp_path: Path) -> None:
    import hashlib

    path = saved(tmp_path, "model.onnx.data")
    whole = path.read_bytes() + (tmp_path / "model.onnx.data").read_bytes()
    assert core.model(f"onnx:{path}").version == hashlib.sha256(whole).hexdigest()
    alone = saved(tmp_path / "b", None)
    assert core.model(f"onnx:{alone}").version == hashlib.sha256(alone.read_bytes()).hexdigest()


def test_a_graph_that_is_cut_or_no_graph_names_no_files(tmp_path: Path) -> None:
    path = saved(tmp_path, "w.bin")
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        cut = tmp_path / "cut.onnx"
        cut.write_bytes(whole[:length])
        assert set(external_files(cut)) <= {tmp_path / "w.bin"}
    shutil.copy(__file__, tmp_path / "text.onnx")
    assert external_files(tmp_path / "text.onnx") == []
