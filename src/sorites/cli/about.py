"""The verbs about the package: what is installed, and what to cite."""

from __future__ import annotations

from sorites.cli import options
from sorites.cli.output import say


def doctor() -> None:
    """Say what is installed, what is missing and what runs where.

    Reads the installed packages; prints each extra with the command that
    installs it, and writes no file.
    """
    from sorites.cli.doctor import doctor as account

    say(account(), nl=False)


def cite(suite: options.SuiteName) -> None:
    """Print BibTeX for the papers behind a suite.

    Reads a suite; prints the toolkit's entry and those of the benchmark, its
    shifts and its scorers.
    """
    from sorites.cli.cite import cite as entries

    say(entries(suite), nl=False, exact=True)
