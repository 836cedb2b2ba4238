"""Arrays in safetensors files, with the text that stands in their header."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sorites.errors import SoritesError
from sorites.reading.places import is_file, reason

Arrays = dict[str, NDArray[Any]]


def tensors(path: Path, names: Iterable[str] | None = None) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a file, all of them or those named, and the texts of its header."""
    from safetensors import safe_open

    if not is_file(path):
        raise SoritesError(f"cannot read {path}: there is no such file")
    try:
        with safe_open(str(path), framework="numpy") as file:
            wanted = list(file.keys()) if names is None else list(names)
            arrays = {name: np.asarray(file.get_tensor(name)) for name in wanted}
            return arrays, dict(file.metadata() or {})
    except Exception as error:  # a damaged file makes safetensors raise nearly anything
        raise SoritesError(f"cannot read {path}: {reason(error)}. Wanted a safetensors file") from error
