"""The one way out for words: any text, on whatever stands behind stdout and stderr.

Names of files and models are data. Control characters in them never reach a terminal, what a stream
cannot spell is spelled in ASCII, and a stream that cannot be written is one line and not a
traceback.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

from sorites.core.errors import Notice, SoritesError
from sorites.core.messages import in_shell

# The name of the ``codecs`` error handler that spells characters which the encoding of our streams
# does not have.
PLAIN = "sorites-plain"

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ASCII = {
    **dict.fromkeys("–—−─━", "-"), **dict.fromkeys("│┃", "|"), **dict.fromkeys("╭╮╰╯┌┐└┘", "+"), **dict.fromkeys("·•", "*"),
    **dict.fromkeys("’‘", "'"), **dict.fromkeys("“”", '"'), "×": "x", "→": "->", "≤": "<=", "≥": ">=", "µ": "u", "²": "2",
    "°": " deg", "±": "+-", "…": "...",
}  # fmt: skip


class Unwritten(SoritesError):
    """Output that could not be written, for example because the disk is full."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"cannot write the output: {why}. Files that were finished are kept; type the command again"
        )


def without_controls(text: str, but: str = "\n\t") -> str:
    """Return text whose control characters, and marks that turn the direction of writing, are
    spelled as escapes (``\\x1b``).
    """
    return _CONTROL.sub(
        lambda found: found[0] if found[0] in but else found[0].encode("unicode_escape").decode(), text
    )


def say(text: str, *, err: bool = False, nl: bool = True, exact: bool = False) -> None:
    """Print text on stdout, or on stderr; nothing in it is markup.

    ``exact`` text goes unchanged to anything but a terminal.
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
    """Let what is still to be written to a stream go nowhere, so that closing it at the end raises
    nothing more.
    """
    with contextlib.suppress(Exception):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _Steady:
    """A stream of notes that takes any text and drops what cannot be written: notes must not end work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._stream.write(_spelled(text, self._stream))
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            _give_up(self._stream)


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Make stdout and stderr take any text while a command runs; turn what cannot be written to
    stdout into an error of ours.
    """
    before, shown = sys.stderr, warnings.showwarning
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=PLAIN)
    if sys.stderr is not None:
        sys.stderr = cast(TextIO, _Steady(sys.stderr))
    warnings.showwarning = _note
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
            _give_up(sys.stdout)
            raise Unwritten(error.strerror or str(error)) from error
        raise
    finally:
        sys.stderr, warnings.showwarning = before, shown


def _note(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Show a warning: our own as a note, those of libraries with where they come from."""
    text = message.message if isinstance(message, Notice) else message
    mine = category is UserWarning or issubclass(category, Notice)
    say(f"note: {text}" if mine else f"{category.__name__}: {message} ({filename}:{lineno})", err=True)
