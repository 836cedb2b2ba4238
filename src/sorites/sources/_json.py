"""Read large JSON files of annotations without keeping what nobody asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sorites.errors import SoritesError

LARGEST = 1 << 30
"""The most bytes of a JSON file that is read: parsed, it takes several times as much memory."""


def read_json(path: Path, what: str, slim: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Return the contents of a JSON file; ``what`` says what was wanted, for messages.

    ``slim`` takes each object as it is read and returns what is kept of it, so that a large file fits into memory.
    """
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise SoritesError(
                f"{path} has {size / 1e9:.1f} GB, and at most {LARGEST / 1e9:.1f} GB are read. "
                "Write the pictures that you evaluate, and their annotations, to a smaller file"
            )
        return json.loads(path.read_bytes(), object_hook=slim)
    except OSError as error:
        raise SoritesError(f"wanted {what}, and cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SoritesError(f"wanted {what}; {path} is not JSON: {error}") from error
