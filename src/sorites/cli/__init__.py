"""The command line: one module per family of verbs.

This package only parses options and prints results; the work is done by the packages it calls, which are
imported inside the verbs so that ``sorites --help`` stays fast.
"""

from sorites.cli.app import app, main

__all__ = ["app", "main"]
