"""Options of ``ask``. This module is imported for ``sorites --help`` and therefore imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from sorites.core.options import Options, declare


@dataclass(frozen=True, kw_only=True)
class AskOptions(Options):
    """Options of ``ask``."""

    words: str = declare(
        "",
        "What you would like to know, in your own words; default: all questions.",
        metavar="WORDS",
        argument=True,
        repeat=True,
        parse=" ".join,
    )
