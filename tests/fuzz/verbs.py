"""Commands typed in this process, as ``sorites`` runs them."""

from __future__ import annotations

import contextlib
import io
import sys

from sorites import cli


def typed(*words: str) -> str:
    """Type a command and return what it said; anything but an exit code is raised, and so is a
    traceback in words.
    """
    out, before = io.StringIO(), sys.argv
    sys.argv = ["sorites", *words]
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            contextlib.suppress(SystemExit),
        ):
            cli.main()
    finally:
        sys.argv = before
    said = out.getvalue()
    assert "Traceback" not in said
    return said
