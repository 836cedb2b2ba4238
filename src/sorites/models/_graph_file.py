"""An ONNX graph in a file: opening it, and the hash that identifies it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError
from sorites.models import _session
from sorites.models._external import external_files


def opened(path: Path) -> Any:
    """Return a session over the graph; a file that ONNX Runtime cannot run is named."""
    try:
        return _session.session(str(path))
    except Exception as error:  # ONNX Runtime has an exception for each way a file can be wrong
        reason = str(error).strip().split("\n")[0][:200]
        raise SoritesError(f"{path} is not an ONNX model that ONNX Runtime can run: {reason}") from error


def version_of(path: Path) -> str:
    """Return one SHA-256 of the file, of its weights and settings beside it (PATH.data, PATH.json), and of every other file in
    which the graph says its weights are."""
    beside = [Path(f"{path}{suffix}") for suffix in ("", ".data", ".json")]
    hasher = hashlib.sha256()
    for part in [*beside, *(file for file in external_files(path) if file not in beside)]:
        if part.is_file():
            with part.open("rb") as file:
                while block := file.read(1 << 20):
                    hasher.update(block)
    return hasher.hexdigest()
