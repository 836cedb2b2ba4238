"""Errors and notices that a user can act on: what was expected, what was found, and what to type."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar

from sorites.core.messages import in_python, option

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

    Notices are warnings of Python, and the command line prints them as notes. ``Information`` is the subclass
    for what needs no attention.

    Attributes:
        code: A stable name of the kind of notice.
        message: The text, which may refer to options.
        fields: The values that the notice is about, by name.
    """

    code: str = "notice"

    def __init__(self, message: str, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.fields = fields

    def __str__(self) -> str:
        return in_python(self.message)


class Information(Notice):
    """A message about what a run does or has done. Python logs it (logger ``sorites``, level INFO)."""

    code = "information"


def tell(notice: Notice, stacklevel: int = 2) -> None:
    """Issue a notice: log information, warn of anything else."""
    if isinstance(notice, Information):
        import logging  # the runtime of a guard imports this module, and needs no log

        logging.getLogger("sorites").info("%s", notice)
    else:
        warnings.warn(notice, stacklevel=stacklevel + 1)


def inform(text: str) -> None:
    """Issue information about the progress of some work."""
    tell(Information(text, code="progress"))


def exit_message(error: SystemExit) -> str:
    """Return the message for user code that called ``sys.exit`` while it was imported or run."""
    return f'it calls sys.exit({error.code!r}); move script code under: if __name__ == "__main__"'


class UnknownName(SoritesError):
    """An unknown name; the message suggests the nearest known names."""

    code = "unknown_name"

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        import difflib  # only an error needs it

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
    """A required library is not installed; the message contains the command that installs it.

    Args:
        what: What needs the library.
        extra: The extra that contains it.
        package: The library alone, where the extra has many others.
    """

    code = "missing_extra"

    def __init__(self, what: str, extra: str, package: str = "") -> None:
        wanted = package or f"'sorites[{extra}]'"
        super().__init__(
            f"{what} needs more than the core install. Type: pip install {wanted}",
            what=what,
            extra=extra,
        )


class InvalidOption(SoritesError):
    """An option has a value that it does not accept, or contradicts another option.

    Attributes:
        name: The Python name of the option.
    """

    code = "invalid_option"

    def __init__(self, name: str, message: str, **fields: object) -> None:
        super().__init__(message, name=name, **fields)


class BatchTooLarge(SoritesError):
    """A model ran out of memory, and its rows depend on the batch size, so that it cannot be halved."""

    code = "batch_too_large"

    def __init__(self, model: str, batch: int) -> None:
        super().__init__(
            f"model {model}: not enough memory for {batch} images at once. Its rows depend on the batch size,"
            f" which therefore stays the same in a run. Start another one with"
            f" {option('batch', max(1, batch // 2))} and another {option('out', 'DIR')}.",
            model=model,
            batch=batch,
        )


class MissingFile(SoritesError):
    """A file or folder that was named does not exist or cannot be read."""

    code = "missing_file"

    def __init__(self, path: object, message: str) -> None:
        super().__init__(message, path=str(path))


class UnfinishedRun(SoritesError):
    """The verb needs a finished run, and this one is not."""

    code = "unfinished_run"

    def __init__(self, path: object, message: str) -> None:
        super().__init__(message, path=str(path))


class IncompatibleRun(SoritesError):
    """A folder contains another run than the one requested, or two runs cannot be compared."""

    code = "incompatible_run"

    def __init__(self, path: object, message: str, **fields: object) -> None:
        super().__init__(message, path=str(path), **fields)


class TooManyErrors(SoritesError):
    """A run in which nothing was evaluated, or too many rows have errors. The rows stay in the run folder.

    The command line exits with code 3.
    """

    code = "too_many_errors"

    def __init__(self, folder: object, rows: int, errors: int, first: str) -> None:
        what = f"{errors} of {rows} rows have errors" if rows else "no image was evaluated"
        hint = f"; the first: {first}. To accept more, pass {option('max_errors', 'SHARE')}" if first else ""
        super().__init__(
            f"{what} in {folder}{hint}", folder=str(folder), rows=rows, errors=errors, first=first
        )


class Damaged(SoritesError):
    """A file written by Sorites that is truncated, empty, or not of the expected format."""

    code = "damaged"

    def __init__(self, path: object, why: object, remedy: str) -> None:
        reason = " ".join(str(why).split()).rstrip(".")
        super().__init__(f"{path} cannot be read: {reason}. {remedy}", path=str(path), reason=reason)
