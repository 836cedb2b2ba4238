"""The command line: one module per family of verbs, each verb a single call into the rooms below.

Parsing and printing live here and nothing else; heavy rooms are imported when their verb is typed.
"""

from sorites.cli.app import app, main

__all__ = ["app", "main"]
