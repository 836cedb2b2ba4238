"""A table that could not be read in the middle of a question: which files of the runs that were named are damaged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sorites.errors import SoritesError


def explain_failed_read(error: BaseException, words: Sequence[str]) -> str:
    """Return the damage of the run folders among the words typed, where the reader of tables failed; else nothing."""
    if type(error).__module__.partition(".")[0] not in ("polars", "pyo3_runtime"):
        return ""
    from sorites.pipeline.damage import damage, lines
    from sorites.table import repair

    for folder in (Path(word) for word in words if "://" not in word and (Path(word) / "run.json").is_file()):
        try:
            found = damage(folder)
        except SoritesError as unread:
            return str(unread)
        if found:
            return "\n".join([*lines(found), repair(folder)])
    return ""
