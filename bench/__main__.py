"""Ratios measured side by side in one run: machines are noisy, so no absolute time is a claim.

``python -m bench [PART]...``
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path


def main() -> None:
    parts = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")]
    wrong = set(sys.argv[1:]) - set(parts)
    if wrong:
        sys.exit(f"no bench named {', '.join(sorted(wrong))}; there are {', '.join(parts)}")
    for part in sys.argv[1:] or parts:
        print(f"{part}", flush=True)
        for name, value, note in importlib.import_module(f"bench.{part}").run():
            print(f"  {name:<58} {value:>10.3g}   {note}", flush=True)


if __name__ == "__main__":
    main()
