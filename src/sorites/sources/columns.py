"""Choose the columns of a table that lists images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path

from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import option


def named(file: str | Path, columns: Iterable[str], asked: str | None, defaults: Iterable[str]) -> str | None:
    """Return the column that was asked for, otherwise the first default that exists, or None. Case and spaces
    around the names of defaults do not matter.

    Raises:
        SoritesError: The column that was asked for does not exist.
    """
    known = list(columns)
    if asked is not None and asked not in known:
        raise SoritesError(f"{file} has no column {asked}; it has {', '.join(known)}")
    plain = {name.strip().lower(): name for name in reversed(known)}
    found = (name if name in known else plain.get(name.lower()) for name in defaults)
    return asked or next(filter(None, found), None)


def note_no_labels(spec: str, columns: Iterable[str], others: Iterable[str]) -> None:
    """Tell that no column has a usual name of labels, if a column is left that could be one.

    Args:
        spec: The source and its file, such as ``csv:list.csv``.
        columns: All columns.
        others: The columns that are read for something else.
    """
    left = [name for name in columns if name not in set(others)]
    if left:
        text = (
            f"{spec} has no column with a usual name of labels; if one of {', '.join(left)} has them, pass"
            f" {option('source', f'{spec}?label={left[0]}')}"
        )
        warnings.warn(Notice(text, code="no_label_column", columns=left), stacklevel=2)
