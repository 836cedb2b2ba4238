"""Errors and notices that a user can act on: what was expected, what was found, and what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

from sorites.core.messages import in_python

# The most characters of an unknown name that a message repeats.
LONGEST = 200


def as_utf8(text: str) -> str:
    """Return text that any file can hold: what a file name has that is not UTF-8 becomes escapes
    (``\\udce9``), else the same.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class SoritesError(Exception):
    """A failure caused by the input and not by the program; the command line shows it without a traceback.

    Attributes:
        code: A stable name of the kind of error, for programs.
        message: The text, which may refer to options (see ``sorites.core.messages``); ``str(error)`` is the text for
            users of the library.
        fields: The values that the error is about, by name.
    """

    code: ClassVar[str] = "error"

    def __init__(self, message: str, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def __str__(self) -> str:
        return in_python(self.message)

    def __format__(self, spec: str) -> str:
        # Inside another message the references to options stay as they are, until that message is shown.
        return format(self.message, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses have other signatures; errors cross process boundaries as class, text and fields.
        return _restore, (type(self), self.message, self.fields)


def _restore(kind: type[SoritesError], message: str, fields: dict[str, object]) -> SoritesError:
    error = kind.__new__(kind)
    SoritesError.__init__(error, message, **fields)
    return error


class Notice(UserWarning):
    """Something that a user should know about a result; it does not stop the work.

    Attributes:
        code: A stable name of the kind of notice.
        message: The text, which may refer to options.
        fields: The values that the notice is about, by name.
    """

    def __init__(self, message: str, code: str = "notice", **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.fields = fields

    def __str__(self) -> str:
        return in_python(self.message)


def left_by_exit(error: SystemExit) -> str:
    """Say of somebody's code that it would have ended the program."""
    return f'it calls sys.exit({error.code!r}); put what only a script does under: if __name__ == "__main__"'


class UnknownName(SoritesError):
    """An unknown name; the message suggests the nearest known names."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5) if len(name) < LONGEST else ()
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        called = repr(name) if len(name) < LONGEST else f"{name[:LONGEST]!r}..."
        super().__init__(
            f"no {kind} named {called}.{hint}{' ' + see if see else ''}",
            kind=kind,
            name=name,
            suggestions=tuple(near),
        )


class BadImage(SoritesError):
    """An image that cannot be read.

    It becomes a row with the error in the table and does not end the run.
    """

    code = "bad_image"


class TooFewImages(SoritesError):
    """A scorer has too few training images.

    It gets no scores, the reason stands in their place, and the run goes on.
    """

    code = "too_few_images"


class MissingExtra(SoritesError):
    """A library that is needed is not installed; the message has the command that installs it."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs more than the core install. Type: pip install 'sorites[{extra}]'",
            what=what,
            extra=extra,
        )


class Damaged(SoritesError):
    """A file that Sorites wrote and that is no longer what was written: cut short, empty, or of
    another kind.
    """

    code = "damaged"

    def __init__(self, path: object, why: object, remedy: str) -> None:
        reason = " ".join(str(why).split()).rstrip(".")
        super().__init__(f"{path} cannot be read: {reason}. {remedy}", path=str(path), reason=reason)
