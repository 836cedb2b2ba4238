"""Claims about training, measured anew: each part trains, prints its figures with the date, and
says which bars they reach.

``python -m proof [PART]...``; a part takes minutes to a quarter of an hour of one core. It ends
with 1 if a bar is missed.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from pathlib import Path


def main() -> None:
    parts = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")]
    wrong = set(sys.argv[1:]) - set(parts)
    if wrong:
        sys.exit(f"no proof named {', '.join(sorted(wrong))}; there are {', '.join(parts)}")
    missed = 0
    for part in sys.argv[1:] or parts:
        start = time.process_time()
        print(f"{part}, {time.strftime('%Y-%m-%d')}", flush=True)
        for line in importlib.import_module(f"proof.{part}").run():
            missed += line.missed
            print(f"  {line}", flush=True)
        print(f"  {time.process_time() - start:.0f} CPU seconds", flush=True)
    sys.exit(min(missed, 1))


if __name__ == "__main__":
    main()
