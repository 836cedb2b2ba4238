"""A small real input for every model and source that needs an argument, so that the registry sweeps
skip none of them.

``MODELS`` and ``SOURCES`` map the name of a plug-in to a function that writes its input into an
empty folder and returns the spec. Nothing is downloaded. A plug-in that is not listed is used by
its name alone. The fixture ``example`` of ``conftest.py`` makes each input once per session.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from tools.net import images as layouts

from sorites import core

Maker = Callable[[Path], str]

FRUIT = ("apple", "pear", "plum", "fig")
"""The classes of models that bring their own."""

FUNCTION = """
import numpy as np
def logits(images):
    return np.stack([np.resize(p.mean(axis=(0, 1)), 1000) * np.cos(np.arange(1000)) for p in images]).astype(np.float32)
"""


def onnx(folder: Path) -> str:
    """A linear classifier of the mean colour as an ONNX file."""
    from tests.models.test_onnx import build

    return f"onnx:{build(folder / 'm.onnx', metadata={'labels': json.dumps(FRUIT)})}"


def boxes(folder: Path) -> str:
    """A detector in an ONNX file; the scores of its three boxes are the colours of one pixel of its input."""
    from tests.models.box_graphs import pixels

    return f"boxes:{pixels(folder / 'm.onnx', at=(32, 32))}"


def timm(folder: Path) -> str:
    """The smallest network of timm, with random weights in a file."""
    from tests.models.test_timm import network, saved

    return f"timm:test_resnet@{saved(network('test_resnet'), folder / 'w.safetensors')}"


def torchvision(folder: Path) -> str:
    """A detector of torchvision with random weights in a file; it has few classes, since each adds
    a suppression.
    """
    from tests.models import detectors

    (folder / "names.txt").write_text("\n".join(FRUIT))
    weights = detectors.weights(folder / "w.pth", len(FRUIT) + 1)
    return f"torchvision:{detectors.NAME}@{weights}?labels={folder / 'names.txt'}"


def open_clip(folder: Path) -> str:
    """A pair of encoders of one layer each, after one training step."""
    from tests.models.shapes import taught

    return f"open_clip:{taught(folder, steps=1)}"


def diffusion(folder: Path) -> str:
    """The diffusion pipeline that the package carries, with few draws."""
    return "diffusion:toy?draws=4&first=2"


def hf(folder: Path) -> str:
    """A small ViT of transformers, saved with its processor."""
    from tests.models.hugging_face import classifier

    return f"hf:{classifier(folder / 'vit')}"


def trained(folder: Path) -> str:
    """A network of four classes after one training step."""
    from sorites.training.loop import train
    from sorites.training.recipe import parse

    layouts.photos(str(folder / "images"), 8)
    data = {"source": f"folder:{folder / 'images'}", "labels": "found"}
    return (
        f"trained:{train(parse({'name': 'r', 'steps': 1, 'batch': 4, 'data': data}, 'r'), folder / 'model')}"
    )


def crops(folder: Path) -> str:
    """The detector above, whose boxes get features from a network of timm."""
    return f"crops:{timm(folder)},{boxes(folder)}"


def groups(folder: Path) -> str:
    """Two groups of the classes of the ONNX model above."""
    (folder / "groups.json").write_text(json.dumps({"round": FRUIT[:2], "long": FRUIT[2:]}))
    return f"groups:{folder / 'groups.json'},{onnx(folder)}"


def python(folder: Path) -> str:
    """A function in a module; the fixture puts the folder on the path of modules."""
    (folder / "contract_model.py").write_text(FUNCTION)
    return "python:contract_model:logits"


def maite(folder: Path) -> str:
    """A model that follows MAITE's protocol."""
    return "maite:tests.models.test_maite:Colours"


# Set in the process of ``tests/models/test_openvino.py``, the only one that loads OpenVINO.
OPENVINO_ALONE = "SORITES_TEST_OPENVINO_ALONE"


def openvino(folder: Path) -> str:
    """The ONNX file above, run by OpenVINO in a process of its own."""
    if OPENVINO_ALONE not in os.environ:
        pytest.skip("tests/models/test_openvino.py runs OpenVINO in a process of its own")
    pytest.importorskip("openvino", reason="needs: pip install 'sorites[openvino]'")
    spec = onnx(folder)
    (folder / "m.onnx.json").write_text(json.dumps({"labels": FRUIT}))
    return f"openvino:{spec.removeprefix('onnx:')}"


def tflite(folder: Path) -> str:
    """A linear layer in a file of TensorFlow Lite."""
    pytest.importorskip("ai_edge_litert", reason="needs: pip install 'sorites[tflite]'")
    from tests.models import lite_graphs

    path = lite_graphs.build(folder / "m.tflite")
    (folder / "m.tflite.json").write_text(json.dumps({"labels": list("abcde")}))
    return f"tflite:{path}"


MODELS: Mapping[str, Maker] = {
    "boxes": boxes,
    "crops": crops,
    "diffusion": diffusion,
    "groups": groups,
    "hf": hf,
    "maite": maite,
    "onnx": onnx,
    "open_clip": open_clip,
    "openvino": openvino,
    "python": python,
    "tflite": tflite,
    "timm": timm,
    "torchvision": torchvision,
    "trained": trained,
}

CLASSES = {"diffusion": ("disc", "cross"), "open_clip": ("red disc", "green bar", "blue ring")}
"""The classes that are given to models without classes of their own."""


def operators_for(name: str) -> AbstractContextManager[None]:
    """Return a context in which a model can run: torchvision's operators do not load beside every torch."""
    if name != "torchvision":
        return nullcontext()
    from tests.models.detectors import operators

    return operators()


def laid(layout: Callable[[str], None], spec: str) -> Maker:
    """Return the maker of a folder in a published layout; ``{}`` in the spec is the folder."""

    def make(folder: Path) -> str:
        layout(str(folder / "data"))
        return spec.format(folder / "data")

    return make


def annotated(folder: Path) -> Path:
    """One image with a box, annotated for COCO and for YOLO."""
    layouts.save(folder / "images/1.png", layouts.scene(1, 20, 20))
    (folder / "labels").mkdir()
    (folder / "labels/1.txt").write_text("0 0.5 0.5 0.2 0.4\n")
    (folder / "data.yaml").write_text("names: [cat]\n")
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [8, 6, 4, 8]}
    data = {
        "images": [{"id": 1, "file_name": "images/1.png"}],
        "annotations": [row],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (folder / "a.json").write_text(json.dumps(data))
    return folder


def nuimages(folder: Path) -> str:
    """The tables of nuImages with two images."""
    from tests.sources.test_nuimages import tables

    (folder / "v1.0-val").mkdir()
    for name, rows in tables().items():
        (folder / "v1.0-val" / f"{name}.json").write_text(json.dumps(rows))
    for name in ("samples/CAM_FRONT/1.jpg", "samples/CAM_BACK/2.jpg"):
        layouts.save(folder / name, layouts.scene(1, 36, 64))
    return f"nuimages:{folder}"


def parquet(folder: Path) -> str:
    """Two images in the layout of the Hugging Face hub."""
    import polars as pl

    rows = []
    for i in range(2):
        layouts.save(folder / f"{i}.png", layouts.scene(i, 20, 30))
        rows.append({"bytes": (folder / f"{i}.png").read_bytes(), "path": f"{i}.png"})
    pl.DataFrame({"image": rows, "label": [3, 7]}).write_parquet(folder / "train-00000-of-00001.parquet")
    return f"parquet:{folder}/*.parquet"


def csv(folder: Path) -> str:
    """Two images that a list names."""
    for i in range(2):
        layouts.save(folder / f"{i}.png", layouts.scene(i, 20, 30))
    (folder / "list.csv").write_text("path,label\n0.png,3\n1.png,7\n")
    return f"csv:{folder / 'list.csv'}"


def hf_source(folder: Path) -> str:
    """Two images in an Arrow file, in the layout of ``save_to_disk``."""
    from tests.sources.test_hf import saved

    return f"hf:{saved(folder / 'saved')}"


def variants(folder: Path) -> str:
    """Two corruptions at two severities, with the original images."""
    for place in ("clean", "c/fog/1", "c/fog/2", "c/snow/1", "c/snow/2"):
        for i, wnid in enumerate(("n02123045", "n02085620")):
            layouts.save(folder / place / wnid / f"{i}.png", layouts.scene(i, 20, 30))
    return f"variants:{folder / 'c'}?clean={folder / 'clean'}&resize=18&crop=16&jpeg=85"


def context(folder: Path) -> str:
    """Composites of one cut-out in drawn places, made by the function behind ``sorites context``."""
    from tests.datasets.test_context import disc

    from sorites.datasets.context import SIDES, build_context

    core.SOURCES.names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(core.SOURCES._objects, "one_disc", lambda path, labels: [disc()])
        build_context(folder / "made", "one_disc", drawn=True, size=SIDES[0])
    return f"context:{folder / 'made'}"


def cifar(folder: Path) -> str:
    """A small archive in the layout of the npm package; ``reading`` lets the source accept it."""
    from tests.sources.test_cifar import archive

    return f"cifar:test,{archive(folder)}"


def raw(folder: Path) -> str:
    """Two RAW files of the virtual camera."""
    import numpy as np

    from sorites.apps.studio.virtual.dng import encode_dng
    from sorites.optics.camera import EOS_RP

    pytest.importorskip("rawpy", reason="needs: pip install 'sorites[raw]'")
    for i in range(2):
        values = np.random.default_rng(i).integers(600, 9000, (40, 60), dtype=np.uint16)
        (folder / f"{i}.dng").write_bytes(encode_dng(values, EOS_RP))
    return f"raw:{folder}"


@contextmanager
def reading(name: str, spec: str) -> Iterator[None]:
    """Hold a context in which a source can be read: ``cifar`` checks the checksum and the size of
    its archive.
    """
    if name != "cifar":
        yield
        return
    from tests.sources.test_cifar import EACH

    from sorites.sources import cifar as source

    archive = Path(spec.partition(",")[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
        patch.setattr(source, "SPLITS", {"train": slice(0, EACH * 5), "test": slice(EACH * 5, EACH * 6)})
        yield


def slider(folder: Path) -> str:
    """One image per class of the diffusion pipeline that the package carries, in few steps."""
    return "slider:toy?seeds=1&severities=0.5,1&steps=2"


def edited(folder: Path) -> str:
    """Photographs of two shapes, moved along the sliders that the package carries, in few steps."""
    import numpy as np
    from PIL import Image

    from sorites.diffusion.toy import world

    for number, name in enumerate(("disc", "cross")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        drawn = world.draw(name, "plain", np.random.default_rng(number))
        Image.fromarray((drawn * 255).round().astype(np.uint8)).save(folder / name / "photograph.png")
    return f"edited:toy?photos=folder:{folder}&severities=0.2,0.5&steps=3"


def python_source(folder: Path) -> str:
    """A list of samples in a module that is on the path already."""
    return "python:tests.contracts.examples:SAMPLES"


DOCS = Path(__file__).parents[2] / "docs"
SAMPLES = [core.Sample(name, core.FileRef(DOCS / name), label=7) for name in ("report.png", "weather.jpg")]


SOURCES: Mapping[str, Maker] = {
    "cifar": cifar,
    "cns_bench": laid(layouts.cns_bench, "cns_bench:{}"),
    "coco": lambda folder: f"coco:{annotated(folder)}/a.json",
    "context": context,
    "csv": csv,
    "edited": edited,
    "focus": laid(layouts.focus, "focus:{}"),
    "hf": hf_source,
    "folder": laid(functools.partial(layouts.photos, count=8), "folder:{}"),
    "imagenet_es": laid(layouts.imagenet_es, "imagenet_es:{}/es-test"),
    "imagenet_es_diverse": laid(layouts.imagenet_es_diverse, "imagenet_es_diverse:{}"),
    "is_ood": laid(layouts.is_ood, "is_ood:{}"),
    "maite": lambda folder: "maite:tests.models.test_maite:Fruit",
    "nuimages": nuimages,
    "openood": laid(layouts.openood, "openood:{},cifar10"),
    "parquet": parquet,
    "python": python_source,
    "raw": raw,
    "slider": slider,
    "variants": variants,
    "webdataset": laid(layouts.shards, "webdataset:{}"),
    "yolo": lambda folder: f"yolo:{annotated(folder)}",
}
