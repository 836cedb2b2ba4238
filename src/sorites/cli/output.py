"""Safe output to stdout and stderr.

Names of files and models are untrusted: control characters are escaped before they reach a terminal,
characters that the stream's encoding lacks are replaced by ASCII, and a failed write is reported without a
traceback.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import in_shell

# The ``codecs`` error handler that replaces characters missing from the stream's encoding.
PLAIN = "sorites-plain"

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ASCII = {
    **dict.fromkeys("–—−─━", "-"),
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘", "+"),
    **dict.fromkeys("·•", "*"),
    **dict.fromkeys("’‘", "'"),
    **dict.fromkeys("“”", '"'),
    "×": "x",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "µ": "u",
    "²": "2",
    "°": " deg",
    "±": "+-",
    "…": "...",
}


class Unwritten(SoritesError):
    """The output cannot be written, for example because the disk is full."""

    def __init__(self, why: str) -> None:
        super().__init__(f"cannot write the output: {why}. Finished files are kept; run the command again")


def without_controls(text: str, but: str = "\n\t") -> str:
    """Return text with control characters and bidirectional marks escaped (``\\x1b``)."""
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in but else match[0].encode("unicode_escape").decode(), text
    )


def say(text: str, *, err: bool = False, nl: bool = True, exact: bool = False) -> None:
    """Print plain text.

    Args:
        text: The text; references to options (``sorites.core.messages``) become flags.
        err: Print to stderr instead of stdout.
        nl: End with a newline.
        exact: Leave control characters as they are unless the stream is a terminal.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is None:
        return
    text = in_shell(text)
    shown = text if exact and not stream.isatty() else without_controls(text)
    try:
        stream.write(_spelled(shown, stream) + "\n" * nl)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _give_up(stream)
        if not err:
            raise Unwritten(error.strerror or str(error)) from error


def _spelled(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, PLAIN).decode(encoding)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return (
        "".join(_ASCII.get(letter) or letter.encode("ascii", "backslashreplace").decode() for letter in lost),
        error.end,
    )


codecs.register_error(PLAIN, _in_ascii)


def _give_up(stream: Any) -> None:
    """Redirect a stream to the null device, so that closing it raises no further error."""
    with contextlib.suppress(Exception):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _Notes(logging.Handler):
    """Prints information that the library logs."""

    def emit(self, record: logging.LogRecord) -> None:
        notice = record.args[0] if isinstance(record.args, tuple) and record.args else record.getMessage()
        say(notice.message if isinstance(notice, Notice) else str(notice), err=True)


@contextlib.contextmanager
def printing_notices() -> Iterator[None]:
    """Print notices and information of the library to stderr, and let both streams accept any text."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)
    logger, notes = logging.getLogger("sorites"), _Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", Notice)
            warnings.showwarning = _note
            yield
    finally:
        logger.removeHandler(notes)
        logger.setLevel(level)


def _note(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning: a notice of Sorites as a note, a warning of a library with its file and line."""
    text = message.message if isinstance(message, Notice) else message
    mine = category is UserWarning or issubclass(category, Notice)
    say(f"note: {text}" if mine else f"{category.__name__}: {message} ({filename}:{lineno})", err=True)


def unwritten(error: OSError) -> Unwritten | None:
    """Return the error to report if stdout could not be written, for example because the disk is full."""
    if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        return None
    _give_up(sys.stdout)
    return Unwritten(error.strerror or str(error))
