"""``python -m sorites``: the command line of the interpreter that runs it."""

from __future__ import annotations

from sorites.cli import main

if __name__ == "__main__":
    main()
