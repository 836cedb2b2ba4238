"""The command: hashes are made and written, or compared with those written before."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tools.net.renames import RAISED, compare

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "NUMBA_NUM_THREADS",
)
"""Set to one, before any library is loaded: a sum that is shared out among threads depends on how
many there are.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tools.net", description="Hashes of everything that Sorites computes."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, metavar="FILE", help="write the hashes")
    what.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="compare with hashes written before; differences are exit code 1",
    )
    parser.add_argument(
        "--found", type=Path, metavar="FILE", help="with --against: compare these hashes, compute none"
    )
    parser.add_argument("--only", default="", metavar="PREFIX", help="only names that start so")
    parser.add_argument(
        "--words", action="store_true", help="with --against: texts and drawings have to be equal too"
    )
    parser.add_argument(
        "--processes", type=int, default=2, metavar="N", help="tasks at a time (default: %(default)s)"
    )
    asked = parser.parse_args()
    if asked.against is not None:
        before = _read(asked.against, asked.only)
        found = _read(asked.found, asked.only) if asked.found else _computed(asked.only, asked.processes)
        return compare(before, found, asked.words)
    found = _computed(asked.only, asked.processes)
    asked.out.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    failed = [f"{name}: {digest}" for name, digest in found.items() if name.endswith(RAISED)]
    print(*failed, f"wrote {len(found)} entries to {asked.out}", sep="\n")
    return int(bool(failed))


def _read(path: Path, only: str) -> dict[str, str | list[str]]:
    held = json.loads(path.read_text(encoding="utf-8"))
    return {name: digest for name, digest in held.items() if name.startswith(only)}


def _computed(only: str, processes: int) -> dict[str, str | list[str]]:
    os.environ.update(dict.fromkeys(THREADS, "1"))
    from tools.net.tasks import computed

    return computed(only, processes)


if __name__ == "__main__":
    sys.exit(main())
