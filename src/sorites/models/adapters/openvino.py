"""Run a classifier with OpenVINO's own runtime: ``openvino:PATH`` with an IR (.xml) or ONNX file.

Input, outputs and settings are read as for ``onnx:PATH``: what the file does not say is in ``PATH.json``. The
network runs on the CPU in float32 on one thread per pass. Models that OpenVINO compressed to 8 bits stay so.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sorites.core import Backend, Model, add_model
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.rng import digest
from sorites.io.paths import is_file
from sorites.models.onnx import classifier
from sorites.models.session import ON_CPU

# Types of OpenVINO as ONNX Runtime spells them.
TYPES = {"f32": "tensor(float)", "f16": "tensor(float16)", "u8": "tensor(uint8)"}
SETTINGS = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


@dataclass(frozen=True)
class Port:
    """An input or output: its name, its shape with texts for open sizes, and its type."""

    name: str
    shape: list[Any]
    type: str


@dataclass(frozen=True)
class Metadata:
    """The metadata of a file, which OpenVINO does not pass on."""

    custom_metadata_map: Mapping[str, str]


class Session:
    """A network of OpenVINO with the methods of a session of ONNX Runtime.

    Args:
        library: The module ``openvino``.
        path: The file.
    """

    def __init__(self, library: Any, path: Path) -> None:
        core = library.Core()
        self._compiled = core.compile_model(core.read_model(str(path)), "CPU", SETTINGS)
        self._requests = threading.local()

    def get_inputs(self) -> list[Port]:
        """Return the inputs."""
        return [_port(each, i) for i, each in enumerate(self._compiled.inputs)]

    def get_outputs(self) -> list[Port]:
        """Return the outputs."""
        return [_port(each, i) for i, each in enumerate(self._compiled.outputs)]

    def get_modelmeta(self) -> Metadata:
        """Return no metadata."""
        return Metadata({})

    def get_providers(self) -> list[str]:
        """Return the CPU."""
        return [ON_CPU]

    def run(self, outputs: Sequence[str], feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the named outputs; each thread has a request of its own."""
        if not hasattr(self._requests, "own"):
            self._requests.own = self._compiled.create_infer_request()
        (batch,) = feed.values()
        results = self._requests.own.infer({0: batch})
        places = {port.name: i for i, port in enumerate(self.get_outputs())}
        return [results[places[name]].copy() for name in outputs]


def _port(port: Any, number: int) -> Port:
    names = sorted(port.get_names())
    shape = [size.get_length() if size.is_static else "?" for size in port.get_partial_shape()]
    kind = port.get_element_type().get_type_name()
    return Port(names[0] if names else f"port{number}", shape, TYPES.get(kind, kind))


@add_model
def openvino(argument: str | None) -> Model:
    """Run a classifier with OpenVINO (openvino:PATH, an IR or ONNX file); settings come from PATH.json."""
    if argument is None or not is_file(argument):
        raise SoritesError(f"model openvino: expected a file, got {argument or 'nothing'}. Use openvino:PATH")
    try:
        library = importlib.import_module("openvino")
    except ImportError as error:
        raise MissingExtra("model openvino", "openvino") from error
    path = Path(argument)
    try:
        session = Session(library, path)
    except Exception as error:  # OpenVINO raises many kinds of errors for invalid files
        reason = str(error).strip().split("\n")[-1][:200]
        raise SoritesError(f"{path} is not a model that OpenVINO can run: {reason}") from error
    model = classifier(f"openvino:{argument}", path, session, head=False)
    weights = path.with_suffix(".bin")
    content = weights.read_bytes() if path.suffix == ".xml" and weights.is_file() else b""
    version = digest(model.version, content, library.__version__, size=16).hex()
    return replace(model, version=version, backend=Backend("openvino", batch_matters=True))
