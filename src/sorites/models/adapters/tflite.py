"""Run a classifier of TensorFlow Lite with LiteRT: ``tflite:PATH``.

Input, outputs and settings are read as for ``onnx:PATH``: what the file does not say is in ``PATH.json``. A
quantised input gets the normalised image in its own scale, and quantised outputs are converted back. The
network runs on the CPU on one thread per pass.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.core import MODELS, Backend, Model, add_model
from sorites.core.errors import MissingExtra, SoritesError
from sorites.core.rng import digest
from sorites.io.paths import is_file
from sorites.models.adapters.openvino import Metadata, Port
from sorites.models.onnx import classifier
from sorites.models.session import ON_CPU

# Suffixes of files of Keras.
KERAS = (".keras", ".h5", ".hdf5")
LIBRARY = "ai_edge_litert.interpreter"
# Types of numpy as ONNX Runtime spells them; those of quantised tensors count as floats.
TYPES = {np.float32: "tensor(float)", np.float16: "tensor(float16)", np.uint8: "tensor(uint8)"}


class Session:
    """A network of LiteRT with the methods of a session of ONNX Runtime.

    Args:
        library: The module with ``Interpreter``.
        content: The content of the file.
    """

    def __init__(self, library: Any, content: bytes) -> None:
        self._library, self._content, self._kept = library, content, threading.local()
        interpreter = self._interpreter()
        self._inputs, self._outputs = interpreter.get_input_details(), interpreter.get_output_details()

    def _interpreter(self) -> Any:
        """Return the interpreter of this thread; one cannot be used by several."""
        if not hasattr(self._kept, "interpreter"):
            interpreter = self._library.Interpreter(model_content=self._content, num_threads=1)
            interpreter.allocate_tensors()
            self._kept.interpreter = interpreter
        return self._kept.interpreter

    def get_inputs(self) -> list[Port]:
        """Return the inputs."""
        return [_port(each) for each in self._inputs]

    def get_outputs(self) -> list[Port]:
        """Return the outputs."""
        return [_port(each) for each in self._outputs]

    def get_modelmeta(self) -> Metadata:
        """Return no metadata."""
        return Metadata({})

    def get_providers(self) -> list[str]:
        """Return the CPU."""
        return [ON_CPU]

    def run(self, outputs: Sequence[str], feed: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the named outputs."""
        interpreter, wanted = self._interpreter(), self._inputs[0]
        (batch,) = feed.values()
        if tuple(interpreter.get_input_details()[0]["shape"]) != batch.shape:
            interpreter.resize_tensor_input(wanted["index"], batch.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(wanted["index"], _quantised(batch, wanted))
        interpreter.invoke()
        places = {each["name"]: each for each in self._outputs}
        return [_real(interpreter.get_tensor(places[name]["index"]), places[name]) for name in outputs]


def _port(each: Any) -> Port:
    shape = [int(size) if size > 0 else "?" for size in each["shape_signature"]]
    kind = np.float32 if each["quantization"][0] else each["dtype"]
    return Port(each["name"], shape, TYPES.get(kind, np.dtype(kind).name))


def _quantised(batch: NDArray[Any], tensor: Any) -> NDArray[Any]:
    scale, zero = tensor["quantization"]
    if not scale:
        return batch
    limits = np.iinfo(tensor["dtype"])
    steps: NDArray[Any] = np.clip(np.round(batch / scale) + zero, limits.min, limits.max)
    return steps.astype(tensor["dtype"])


def _real(values: NDArray[Any], tensor: Any) -> NDArray[Any]:
    scale, zero = tensor["quantization"]
    return ((values.astype(np.float32) - zero) * np.float32(scale)) if scale else values


def _guess(name: str) -> str | None:
    """Return what to do with a file of Keras, which is not read."""
    if not name.lower().endswith(KERAS):
        return None
    stem = Path(name).with_suffix("")
    return f"an export of it to ONNX or TensorFlow Lite, onnx:{stem}.onnx or tflite:{stem}.tflite"


MODELS.add_guess(_guess)


@add_model
def tflite(argument: str | None) -> Model:
    """Run a classifier of TensorFlow Lite with LiteRT (tflite:PATH); settings come from PATH.json."""
    if argument is None or not is_file(argument):
        raise SoritesError(f"model tflite: expected a file, got {argument or 'nothing'}. Use tflite:PATH")
    try:
        library = importlib.import_module(LIBRARY)
    except ImportError as error:
        raise MissingExtra("model tflite", "tflite") from error
    path = Path(argument)
    try:
        session = Session(library, path.read_bytes())
    except Exception as error:  # LiteRT raises ValueError and RuntimeError for invalid files
        reason = " ".join(str(error).split())[:200]
        raise SoritesError(f"{path} is not a model that LiteRT can run: {reason}") from error
    model = classifier(f"tflite:{argument}", path, session, head=False)
    version = digest(model.version, importlib.metadata.version("ai-edge-litert"), size=16).hex()
    return replace(model, version=version, backend=Backend("litert", batch_matters=True))
