"""Every kind of model on three images, framed and not: the packaged networks, and files and
functions of the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

from sorites import core
from sorites.core import Model
from tools.net.hashes import Entry, of_array, of_plain
from tools.net.home import Task
from tools.net.images import three

FUNCTION = """
import numpy as np

def logits(images):
    means = np.stack([np.resize(p[::4, ::4].mean(axis=(0, 1)), 1000) for p in images])
    return (means / 25 + np.sin(np.arange(1000))).astype(np.float32)
"""
MODULE = """
import torch

class Net(torch.nn.Sequential):
    sorites = {"size": [48, 48], "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "crop_pct": 0.8, "filter": "bilinear"}

def net():
    torch.manual_seed(1)
    layers = torch.nn.Conv2d(3, 8, 5, 2), torch.nn.ReLU(), torch.nn.AvgPool2d(7), torch.nn.Flatten(), torch.nn.Linear(72, 11)
    return Net(*layers)
"""
"""Models as a user writes them."""


def tasks() -> list[Task]:
    plain = ("lite0", "lite1", "lite2", "cifar6:100")
    made = {
        "onnx": on_onnx,
        "onnx, own": on_own_onnx,
        "python": of_a_function,
        "python, torch": of_a_module,
        "timm": of_timm,
    }
    asked: dict[str, Callable[[], Model]] = {spec: functools.partial(core.model, spec) for spec in plain}
    return [
        Task((f"models/{name}",), functools.partial(digests, name, make))
        for name, make in {**asked, **made}.items()
    ]


def digests(name: str, make: Callable[[], Model]) -> Iterator[Entry]:
    model, images = make(), list(three().values())
    yield f"models/{name}/labels", of_plain(model.labels)
    yield f"models/{name}/parameters", of_plain(model.parameters)
    yield f"models/{name}/version", of_plain(model.version)
    for part, values in zip(("weights", "bias"), model.head or (None, None), strict=True):
        yield f"models/{name}/head/{part}", of_array(values)
    for framed in (False, True):
        ready = [model.prepare(image, framed) for image in images]
        how = "framed" if framed else "whole"
        for which, one in zip(three(), ready, strict=True):
            yield f"models/{name}/{how}/{which}", of_array(one)
        outputs = model(images, framed)
        yield f"models/{name}/{how}/logits", of_array(outputs.logits)
        yield f"models/{name}/{how}/features", of_array(outputs.features)
        if model.module is not None:
            yield from on_torch(model, np.stack(ready), f"models/{name}/{how}")


def on_torch(model: Model, batch: np.ndarray, called: str) -> Iterator[Entry]:
    """The same pass by torch itself, which ONNX Runtime stands in for."""
    import torch

    with torch.inference_mode():
        for part, values in zip(("logits", "features"), model.module(torch.from_numpy(batch)), strict=False):
            yield f"{called}/torch {part}", of_array(values.numpy())


def on_onnx() -> Model:
    """lite0 as it is exported, read back as a file of the user's; a JSON file beside it says what a
    graph cannot.
    """
    with mock.patch.dict(os.environ, SORITES_CACHE=str(Path("exported").resolve())):
        core.model("lite0")
    [path] = Path("exported").rglob("*.onnx")
    path.rename("mine.onnx")
    Path("mine.onnx.json").write_text(
        json.dumps({"labels": "imagenet", "crop_pct": 0.9, "filter": "bilinear"})
    )
    return core.model("onnx:mine.onnx")


def on_own_onnx() -> Model:
    """A graph of floats that ends in a softmax and says in its metadata how it wants its images."""
    from onnx import TensorProto, helper, numpy_helper, save_model

    rng, real = np.random.default_rng(2), TensorProto.FLOAT
    held = {"w": rng.normal(0, 3, (3, 5)).astype(np.float32), "b": rng.normal(0, 1, 5).astype(np.float32)}
    steps = [
        ("GlobalAveragePool", ["x"], "a"),
        ("Flatten", ["a"], "f"),
        ("Gemm", ["f", "w", "b"], "l"),
        ("Softmax", ["l"], "p"),
    ]
    nodes = [helper.make_node(kind, taken, [given]) for kind, taken, given in steps]
    into = helper.make_tensor_value_info("x", real, ["n", 3, 40, 36])
    out = helper.make_tensor_value_info("p", real, ["n", 5])
    graph = helper.make_graph(
        nodes, "own", [into], [out], [numpy_helper.from_array(v, k) for k, v in held.items()]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(
        made, {"mean": "[0.4, 0.4, 0.5]", "std": "[0.2, 0.2, 0.2]", "labels": '["a", "b", "c", "d", "e"]'}
    )
    save_model(made, "own.onnx")
    return core.model("onnx:own.onnx")


def of_a_function() -> Model:
    return _from_text("own_function", FUNCTION, "logits")


def of_a_module() -> Model:
    return _from_text("own_module", MODULE, "net")


def _from_text(module: str, text: str, name: str) -> Model:
    Path(f"{module}.py").write_text(text, encoding="utf-8")
    with mock.patch.object(sys, "path", [str(Path.cwd()), *sys.path]):
        return core.model(f"python:{module}:{name}")


def of_timm() -> Model:
    """A network of timm with weights from a file.

    Asking for one that does not exist makes timm ready to be imported.
    """
    with contextlib.suppress(Exception):
        core.model("timm:none such")
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), "weights.safetensors")
    return core.model("timm:test_resnet@weights.safetensors")
