"""Errors and notices that a user can act on: what was expected, what was found, and what to type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

from sorites.core.messages import in_python

# Longest unknown name that a message quotes in full, in characters.
MAX_NAME_LENGTH = 200


def as_utf8(text: str) -> str:
    r"""Return ``text`` with everything that is not valid UTF-8 (as in some file names) replaced by escapes
    such as ``\udce9``.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


class SoritesError(Exception):
    """A failure caused by the input and not by the program; the command line shows it without a traceback.

    Attributes:
        code: A stable name of the kind of error, for programs.
        message: The text, which may refer to options (see ``sorites.core.messages``); ``str(error)`` is the
            text for users of the library.
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


def exit_message(error: SystemExit) -> str:
    """Return the message for user code that called ``sys.exit`` while it was imported or run."""
    return f'it calls sys.exit({error.code!r}); move script code under: if __name__ == "__main__"'


class UnknownName(SoritesError):
    """An unknown name; the message suggests the nearest known names."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        close_names = (
            difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
            if len(name) < MAX_NAME_LENGTH
            else ()
        )
        hint = f" Did you mean {' or '.join(close_names)}?" if close_names else ""
        quoted = repr(name) if len(name) < MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]!r}..."
        super().__init__(
            f"no {kind} named {quoted}.{hint}{' ' + see if see else ''}",
            kind=kind,
            name=name,
            suggestions=tuple(close_names),
        )


class BadImage(SoritesError):
    """An image that cannot be read.

    The run continues; the table gets a row with the error.
    """

    code = "bad_image"


class TooFewImages(SoritesError):
    """A scorer has too few training images.

    The run continues; the rows of this scorer contain the error instead of scores.
    """

    code = "too_few_images"


class MissingExtra(SoritesError):
    """A required library is not installed; the message contains the command that installs it."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs more than the core install. Type: pip install 'sorites[{extra}]'",
            what=what,
            extra=extra,
        )


class Damaged(SoritesError):
    """A file written by Sorites that is truncated, empty, or not of the expected format."""

    code = "damaged"

    def __init__(self, path: object, why: object, remedy: str) -> None:
        reason = " ".join(str(why).split()).rstrip(".")
        super().__init__(f"{path} cannot be read: {reason}. {remedy}", path=str(path), reason=reason)
