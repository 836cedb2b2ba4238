"""Errors a user can act on: what was wanted, what came, what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SoritesError(Exception):
    """Any failure that is the input's and not the program's; shown without a traceback."""


class UnknownName(SoritesError):
    """A name that nobody owns, with the nearest ones that somebody does."""

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        super().__init__(f"no {kind} named {name!r}.{hint}{' ' + see if see else ''}")


class BadPicture(SoritesError):
    """A picture that cannot be read; becomes an error row, never a crash."""


class MissingExtra(SoritesError):
    """A library this needs is not installed; the message names the install command."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more than the core install. Type: pip install 'sorites[{extra}]'")
