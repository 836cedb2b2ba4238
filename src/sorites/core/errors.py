"""Errors that a user can act on. The message says what was wanted, what came, and what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# The most characters of an unknown name that a message repeats.
LONGEST = 200


def as_utf8(text: str) -> str:
    """Return text that any file can hold: what a file name has that is not UTF-8 becomes escapes
    (``\\udce9``), else the same.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class SoritesError(Exception):
    """A failure caused by the input and not by the program; the command line shows it without a traceback."""


def left_by_exit(error: SystemExit) -> str:
    """Say of somebody's code that it would have ended the program."""
    return f'it calls sys.exit({error.code!r}); put what only a script does under: if __name__ == "__main__"'


class UnknownName(SoritesError):
    """An unknown name; the message suggests the nearest known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5) if len(name) < LONGEST else ()
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        called = repr(name) if len(name) < LONGEST else f"{name[:LONGEST]!r}..."
        super().__init__(f"no {kind} named {called}.{hint}{' ' + see if see else ''}")


class BadImage(SoritesError):
    """An image that cannot be read.

    It becomes a row with the error in the table and does not end the run.
    """


class TooFewImages(SoritesError):
    """A scorer has too few training images.

    It gets no scores, the reason stands in their place, and the run goes on.
    """


class MissingExtra(SoritesError):
    """A library that is needed is not installed; the message has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs more than the core install. Type: pip install 'sorites[{extra}]'")


class Damaged(SoritesError):
    """A file that Sorites wrote and that is no longer what was written: cut short, empty, or of
    another kind.
    """

    def __init__(self, path: object, why: object, remedy: str) -> None:
        said = " ".join(str(why).split())
        super().__init__(f"{path} cannot be read: {said.rstrip('.')}. {remedy}")
